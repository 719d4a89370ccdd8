"""Commands about attempts: what is held, what happened, what to do, and doing it; doctor looks over everything."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_dpone.ledger.attempts import StoredAttempt
    from airflow_provider_dpone.ledger.transaction import Ledger


def add_attempt_commands(commands: Any) -> None:
    """Add them to a subparsers object."""
    from airflow_provider_dpone.cli import add_control

    listing = commands.add_parser("attempts", help="open attempts: what is held, and by whom")
    listing.add_argument(
        "--last", type=int, metavar="N", help="the N attempts admitted last instead, whatever became of them"
    )
    listing.add_argument("--json", action="store_true")
    add_control(listing)
    listing.set_defaults(handler=_attempts)
    show = commands.add_parser("show", help="one attempt: what happened, what it holds, what to do next")
    show.add_argument("attempt", help="beginning of its digest, as `attempts` and the task log print it")
    show.add_argument("--json", action="store_true")
    add_control(show)
    show.set_defaults(handler=_show)
    reconcile = commands.add_parser(
        "reconcile",
        help="fence an attempt and settle it by observation",
        description="Fence an attempt and settle it by observation. If its task is still at work, that task stops with "
        "DPONE_FENCED; the target is safe either way.",
    )
    reconcile.add_argument("attempt", help="beginning of its digest")
    reconcile.add_argument("--dry-run", action="store_true", help="only say what would be done")
    reconcile.add_argument("--json", action="store_true")
    add_control(reconcile)
    reconcile.set_defaults(handler=_reconcile)
    adjudicate = commands.add_parser("adjudicate", help="decide a COMMIT_UNKNOWN attempt (administrator)")
    adjudicate.add_argument("attempt", help="beginning of its digest")
    adjudicate.add_argument("--state", choices=("SUCCEEDED", "FAILED"), required=True)
    adjudicate.add_argument("--statement", required=True, help="what was looked at and why this is so")
    adjudicate.add_argument("--by", default=os.environ.get("USER", ""), help="who decides")
    adjudicate.add_argument("--dry-run", action="store_true", help="only say what would be decided")
    adjudicate.add_argument("--json", action="store_true")
    add_control(adjudicate, "dpone_control_admin")
    adjudicate.set_defaults(handler=_adjudicate)
    establish = commands.add_parser(
        "establish",
        help="end an attempt whose server or gates are gone for good as COMMIT_UNKNOWN (administrator)",
        description="For an attempt that can never be settled: its gate, database or server is gone for good. It is "
        "fenced and settled first if that can be done after all. Otherwise your word closes its gates in the "
        "ledger, on record, and it ends as COMMIT_UNKNOWN; `adjudicate` then decides it.",
    )
    establish.add_argument("attempt", help="beginning of its digest")
    establish.add_argument(
        "--statement", required=True, help="what was looked at, and why nothing of it can act any more"
    )
    establish.add_argument("--by", default=os.environ.get("USER", ""), help="who established it")
    establish.add_argument("--json", action="store_true")
    add_control(establish, "dpone_control_admin")
    establish.set_defaults(handler=_establish)
    doctor = commands.add_parser("doctor", help="look over ledger and servers; exit 1 when something is bad")
    doctor.add_argument("--json", action="store_true")
    add_control(doctor)
    doctor.set_defaults(handler=_doctor)


def _ledger(options: argparse.Namespace) -> Ledger:
    from airflow_provider_dpone.hooks.control import DponeControlHook

    return DponeControlHook(options.control_conn_id).ledger()


def _find(options: argparse.Namespace) -> tuple[Ledger, StoredAttempt]:
    from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore

    ledger = _ledger(options)
    return ledger, CompositionAttemptStore(ledger).find(options.attempt)


def _table(*headings: str) -> Any:
    from rich import box
    from rich.table import Table

    return Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)


def _print(renderable: Any) -> None:
    from rich.console import Console

    width = None if sys.stdout.isatty() else 200  # a pipe has no width; names must not be cut
    Console(width=width, highlight=False, soft_wrap=False).print(renderable)


def _line(stored: StoredAttempt) -> dict[str, Any]:
    where = stored.identity.coordinates
    return {
        "attempt": stored.sha256,
        "workload": stored.identity.workload_id,
        "cell": stored.identity.cell,
        "state": stored.state.name,
        "fenced": stored.fenced,
        "admitted_at": stored.admitted_at.astimezone(UTC).isoformat(timespec="seconds"),
        "dag_id": where.dag_id,
        "run_id": where.run_id,
        "task_id": where.task_id,
        "try_number": where.try_number,
    }


def _attempts(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore

    store = CompositionAttemptStore(_ledger(options))
    found = [_line(a) for a in (store.latest(options.last) if options.last else store.all_open())]
    if options.json:
        print(json.dumps(found))
        return
    if found:
        table = _table("attempt", "admitted", "state", "workload", "run", "try")
        for line in found:
            state = line["state"] + (" fenced" if line["fenced"] else "")
            when = line["admitted_at"].replace("+00:00", "Z")
            table.add_row(line["attempt"][7:19], when, state, line["workload"], line["run_id"], str(line["try_number"]))
        _print(table)
    if not options.last:
        print(f"{len(found)} open attempt{'' if len(found) == 1 else 's'}")


def _show(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.attempts.doctor import next_step
    from airflow_provider_dpone.ledger.history import history

    ledger, stored = _find(options)
    lines = history(ledger, stored)
    if options.json:
        print(json.dumps({**_line(stored), "history": lines, "next": next_step(stored)}))
        return
    for line in lines:
        print(line)
    print(f"next        {next_step(stored)}")


def _reconcile(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.states import TERMINAL_ATTEMPTS, GateState
    from airflow_provider_dpone.ledger.journal import LedgerJournal
    from airflow_provider_dpone.operators.reconcile import settle_one

    ledger, stored = _find(options)
    already = stored.state in TERMINAL_ATTEMPTS
    if options.dry_run:
        gates = [p for p in LedgerJournal(ledger, stored.sha256).principals() if p.state is not GateState.CLOSED]
        steps = [f"close {p.name} ({p.state.name}) on {p.connector} and prove it quiet" for p in gates]
        if not stored.fenced:
            steps.insert(0, "fence it for good; if its task is still at work, that stops with DPONE_FENCED")
        steps.append("observe the target; end the attempt as that shows, or leave everything held")
        if already:
            steps = []
        if options.json:
            print(json.dumps({**_line(stored), "would": steps}))
            return
        print(f"attempt {stored.sha256[7:19]} is {stored.state.name}; reconcile would")
        for step in steps or ["do nothing: it has ended"]:
            print(f"  {step}")
        return
    ended = settle_one(ledger, stored)
    if options.json:
        print(json.dumps({**_line(ended), "already": already}))
    else:
        print(f"attempt {ended.sha256[7:19]} is {ended.state.name}{' already' if already else ''}")


def _adjudicate(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.operators.reconcile import adjudicate, decision

    ledger, stored = _find(options)
    signed = decision(stored, options.state, options.by, options.statement)
    if options.dry_run:
        print(f"attempt {stored.sha256[7:19]} is {stored.state.name}; would record, signed off by {signed.decided_by}: "
              f"{signed.state.name}, {signed.statement!r}; then its guards are free")  # fmt: skip
        return
    ended = adjudicate(ledger, signed)
    if options.json:
        print(json.dumps(_line(ended)))
        return
    print(f"attempt {ended.sha256[7:19]} is {ended.state.name}; enrol the target again before the next run")


def _establish(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.operators.reconcile import establish

    ledger, stored = _find(options)
    ended, signed = establish(ledger, stored, options.by, options.statement)
    if options.json:
        print(json.dumps({**_line(ended), "established": None if signed is None else signed.digest()}))
        return
    short = ended.sha256[7:19]
    if signed is None:
        print(f"attempt {short} could be settled after all: it is {ended.state.name}; nothing was recorded by hand")
        return
    closed = ", ".join(signed.principals) or "no gate"
    print(f"attempt {short} is {ended.state.name}; closed by your word: {closed}. It was tried: {signed.refusal}")
    print(f"now decide it: `dpone-airflow adjudicate {short} --state FAILED --statement ...`")


def _doctor(options: argparse.Namespace) -> int:
    from airflow_provider_dpone.attempts.doctor import Severity, examine
    from airflow_provider_dpone.hooks.targets import world_behind

    ledger = _ledger(options)
    found = examine(ledger, lambda conn_id: world_behind(ledger, conn_id))
    if options.json:
        print(json.dumps([{"severity": f.severity, "what": f.what, "where": f.where, "do": f.do} for f in found]))
    else:
        table = _table("", "what", "where", "do")
        for finding in found:
            table.add_row(finding.severity, finding.what, finding.where, finding.do)
        if found:
            _print(table)
        bad = sum(f.severity is Severity.BAD for f in found)
        print(f"ledger {ledger.service_id} of family {ledger.family}: {bad} bad, {len(found) - bad} to know")
    return int(any(f.severity is Severity.BAD for f in found))
