"""Commands about nonproduction authority: trust policies, and grants signed under them.

A private key is read from the file named on the command line, used once and kept nowhere.
"""

from __future__ import annotations

import argparse
import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_dpone.errors import DocumentInvalid

if TYPE_CHECKING:
    from airflow_provider_dpone.contracts.authority import GrantedWorkload, TrustPolicy
    from airflow_provider_dpone.ledger.authority import AuthorityStore
    from airflow_provider_dpone.ledger.authority_log import StoredGrant
    from airflow_provider_dpone.ledger.transaction import Ledger


def add_authority_commands(commands: Any) -> None:
    """Add them to a subparsers object."""
    group = commands.add_parser("authority", help="trust policies and signed grants of nonproduction environments")
    things = group.add_subparsers(dest="thing", required=True)
    _add_trust(things.add_parser("trust", help="who may sign what").add_subparsers(dest="action", required=True))
    _add_grant(things.add_parser("grant", help="what was signed").add_subparsers(dest="action", required=True))


def _common(parser: argparse.ArgumentParser, conn_id: str, *, dry_run: bool = True) -> None:
    from airflow_provider_dpone.cli import add_control

    if dry_run:
        parser.add_argument("--dry-run", action="store_true", help="check everything, write nothing")
    parser.add_argument("--json", action="store_true")
    add_control(parser, conn_id)


def _add_trust(actions: Any) -> None:
    put = actions.add_parser("set", help="append a trust policy (provisioner or administrator)")
    put.add_argument("--policy", type=Path, required=True, help="YAML or JSON; see docs/authority.md")
    put.add_argument("--environment", default="default")
    put.add_argument(
        "--replaces", required=True, metavar="SHA256", help="digest of the policy in force, or `none` for the first"
    )
    _common(put, "dpone_control_admin")
    put.set_defaults(handler=_set_trust)
    show = actions.add_parser("show", help="the trust policy in force")
    show.add_argument("--environment", default="default")
    show.add_argument("--history", action="store_true", help="every revision")
    _common(show, "dpone_control", dry_run=False)
    show.set_defaults(handler=_show_trust)


def _add_grant(actions: Any) -> None:
    sign = actions.add_parser("sign", help="sign a grant under the trust policy in force")
    sign.add_argument("--phase", choices=("execution", "qualification"), required=True)
    sign.add_argument("--environment", default="default")
    sign.add_argument("--campaign", required=True, help="UUID of the campaign")
    sign.add_argument("--run", help="with qualification: the one run it is for")
    sign.add_argument("--workload", action="append", default=[], help="of the active release; default: all of it")
    sign.add_argument("--bundle", type=Path, required=True, help="file with the originals this rests on, at most 8 MiB")
    sign.add_argument("--key", type=Path, required=True, help="file of the private Ed25519 key (PEM)")
    sign.add_argument("--valid-for", type=int, default=3600, metavar="SECONDS")
    for name, words in (
        ("attempts", "attempts of the activation, all together"),
        ("rows", "rows a workload may declare"),
        ("source-bytes", "source bytes a workload may declare"),
        ("attempt-seconds", "seconds an attempt may work"),
    ):
        sign.add_argument(f"--max-{name}", type=int, help=f"{words} (default: the policy's ceiling)")
    sign.add_argument("--output", type=Path, required=True, help="new file for the signed grant; never written over")
    _common(sign, "dpone_control")
    sign.set_defaults(handler=_sign)
    register = actions.add_parser("register", help="keep a signed grant and its bundle (provisioner or administrator)")
    register.add_argument("--grant", type=Path, required=True)
    register.add_argument("--bundle", type=Path, required=True)
    _common(register, "dpone_control_admin")
    register.set_defaults(handler=_register)
    show = actions.add_parser("show", help="registered grants, and whether each authorises anything now")
    show.add_argument("grant", nargs="?", help="beginning of a grant id; default: all")
    show.add_argument("--environment")
    _common(show, "dpone_control", dry_run=False)
    show.set_defaults(handler=_show_grants)


def _open(options: argparse.Namespace) -> tuple[Ledger, AuthorityStore]:
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.ledger.authority import AuthorityStore

    ledger = DponeControlHook(options.control_conn_id).ledger()
    return ledger, AuthorityStore(ledger)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentInvalid(f"{path} cannot be read: {error.strerror}") from error


def _set_trust(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.authority import policy_from

    _, store = _open(options)
    known = {p.digest(): p for p in store.trust_history(options.environment)}
    previous = known.get(options.replaces)
    if previous is None and options.replaces != "none":
        raise DocumentInvalid(
            f"{options.replaces} is no trust policy of {options.environment}; `dpone-airflow authority trust show` "
            "names the one in force"
        )
    policy = policy_from(_bytes(options.policy), environment=options.environment, previous=previous)
    store.set_trust(policy, dry_run=options.dry_run)
    _print_policy(policy, options, "would become" if options.dry_run else "is")


def _show_trust(options: argparse.Namespace) -> None:
    _, store = _open(options)
    found = store.trust_history(options.environment) if options.history else [store.trust(options.environment)]
    if options.json and options.history:
        print(json.dumps([_policy(p) for p in found]))
        return
    for policy in found:
        _print_policy(policy, options, "is")


def _policy(policy: TrustPolicy) -> dict[str, Any]:
    return {"sha256": policy.digest(), "policy": policy.model_dump(mode="json")}


def _print_policy(policy: TrustPolicy, options: argparse.Namespace, word: str) -> None:
    if options.json:
        print(json.dumps(_policy(policy)))
        return
    demands = "a grant is required" if policy.grants_required else "no grant is required"
    print(f"revision {policy.revision} of {policy.environment} {word} {policy.digest()}: {demands}")
    most = policy.ceilings
    print(f"  at most {policy.max_workloads} workloads a campaign, {most.max_attempts} attempts, {most.max_rows} rows, "
          f"{most.max_source_bytes} source bytes, {most.max_attempt_seconds} s an attempt, valid for "
          f"{policy.max_window_seconds} s; revocation epoch {policy.revocation_epoch}")  # fmt: skip
    for signer in policy.signers:
        print(f"  key {signer.key_id[7:19]} may sign {', '.join(signer.phases)}")


def _sign(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.authority import Ceilings, Grant, instant, key_id, private_key
    from airflow_provider_dpone.contracts.canonical import digest_of
    from airflow_provider_dpone.contracts.states import Family

    ledger, store = _open(options)
    policy = store.trust(options.environment)
    key = private_key(_bytes(options.key))
    bundle = _bytes(options.bundle)
    activation, workloads = _workloads(ledger, options)
    now = datetime.now(UTC)
    ceilings = {
        name: getattr(policy.ceilings, name) if getattr(options, name) is None else getattr(options, name)
        for name in ("max_attempts", "max_rows", "max_source_bytes", "max_attempt_seconds")
    }
    if options.phase == "qualification" and not options.run:
        raise DocumentInvalid("a qualification is for one run; name it with --run")
    signed = Grant.of(
        family=Family.NONPRODUCTION,
        ledger_service_id=str(ledger.service_id),
        grant_id=str(uuid.uuid4()),
        phase=options.phase,
        environment=options.environment,
        campaign_id=options.campaign,
        subject=activation if options.phase == "execution" else options.run,
        workloads=tuple(sorted(workloads)),
        ceilings=Ceilings.of(**ceilings),
        trust_revision=policy.revision,
        trust_sha256=policy.digest(),
        revocation_epoch=policy.revocation_epoch,
        not_before=instant(now),
        not_after=instant(now + timedelta(seconds=options.valid_for)),
        bundle_sha256=digest_of(bundle),
        bundle_bytes=len(bundle),
        key_id=key_id(key.public_key()),
    ).sign(key)
    signed.require_signed_under(policy)
    if not options.dry_run:
        try:
            with options.output.open("xb") as file:
                file.write(signed.wire())
        except OSError as error:
            raise DocumentInvalid(f"{options.output} cannot be written: {error.strerror}") from error
    grant = signed.grant
    if options.json:
        print(signed.wire().decode())
        return
    word = "would sign" if options.dry_run else "signed"
    print(f"{word} {grant.phase} grant {grant.grant_id} for {len(grant.workloads)} workloads of {grant.environment}, "
          f"{grant.not_before} to {grant.not_after}")  # fmt: skip


def _workloads(ledger: Ledger, options: argparse.Namespace) -> tuple[str, list[GrantedWorkload]]:
    """The active activation, and those of its workloads that are asked for."""
    from airflow_provider_dpone.contracts.authority import GrantedWorkload
    from airflow_provider_dpone.ledger.activations import CompositionActivationStore

    active = CompositionActivationStore(ledger).require_active(options.environment)
    pins = {w.workload_id: w.pack_sha256 for w in active.request.workloads}
    unknown = [name for name in options.workload if name not in pins]
    if unknown:
        raise DocumentInvalid(f"{', '.join(unknown)}: not in the active release of {options.environment}")
    wanted = options.workload or list(pins)
    return active.sha256, [GrantedWorkload.of(workload_id=name, pack_sha256=pins[name]) for name in wanted]


def _register(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.authority import SignedGrant

    _, store = _open(options)
    signed = SignedGrant.parse(_bytes(options.grant))
    stored = store.register(signed, _bytes(options.bundle), dry_run=options.dry_run)
    if options.json:
        print(json.dumps(_line(stored, "would be registered" if options.dry_run else "registered")))
        return
    word = "would register" if options.dry_run else "registered"
    print(f"{word} {stored.grant.phase} grant {stored.grant.grant_id}, entry {stored.entry[7:19]}")


def _line(stored: StoredGrant, standing: str) -> dict[str, Any]:
    return {
        "entry": stored.entry,
        "standing": standing,
        "recorded_at": stored.recorded_at.astimezone(UTC).isoformat(timespec="seconds"),
        "grant": stored.grant.model_dump(mode="json"),
    }


def _show_grants(options: argparse.Namespace) -> None:
    _, store = _open(options)
    wanted = options.grant or ""
    found = [g for g in store.grants(options.environment) if g.grant.grant_id.startswith(wanted)]
    policies = {p.environment: p for p in store.trust_history()}  # the newest of each comes last
    now = datetime.now(UTC)
    lines = [_line(g, g.signed.standing(policies[g.grant.environment], now)) for g in found]
    if options.json:
        print(json.dumps(lines))
        return
    for line in lines:
        grant = line["grant"]
        print(f"{grant['grant_id']} {grant['phase']} {grant['environment']} {line['standing']}, "
              f"{grant['not_before']} to {grant['not_after']}, {len(grant['workloads'])} workloads")  # fmt: skip
    print(f"{len(lines)} grant{'' if len(lines) == 1 else 's'}")
