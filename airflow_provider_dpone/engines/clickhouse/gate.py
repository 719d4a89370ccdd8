"""The gate of one-time users: issued in memory, closed for good, and proved closed.

The name is journaled before the user exists and never used again; the password lives only in the credential handed out
and reaches the server as a salted hash. Closing rests on the server's own order of things: once DROP USER has returned,
every later access check of that user fails, and every query that had passed its check stays listed until its effect
ends. So "user gone, then nothing of it running" proves that nothing can come any more.

A user whose CREATE was never answered is closed by taking its name: a **tombstone** (unknowable password, no host, no
rights) stays under it, so that a CREATE still under way fails. Creates and closes; decides nothing about outcomes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from airflow_provider_dpone.contracts.ports import (
    ClickHouseControl,
    IssuedCredential,
    PrincipalJournal,
)
from airflow_provider_dpone.contracts.proofs import GateClosure, QuiescenceObservation
from airflow_provider_dpone.contracts.states import Connector, GateState, Purpose
from airflow_provider_dpone.engines.clickhouse.catalog import ServerStart, start_of
from airflow_provider_dpone.engines.clickhouse.closing import Closing, ServerClosure
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, literal, load, table
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy, Right
from airflow_provider_dpone.engines.clickhouse.writers import ISSUED_NAME
from airflow_provider_dpone.errors import DponeError, GateNotClosed, GateRefused, ServerRefused

_USER_EXISTS = 493


@dataclass(frozen=True)
class _Password:
    """A password that no printed frame shows."""

    text: str = field(repr=False)


@dataclass
class _Issued:
    """What this process knows of a name, for closing without the ledger."""

    uuid: str | None = None
    created: bool | None = None
    """How CREATE USER was answered; None while its answer is unknown."""
    start: ServerStart | None = None
    dispatches: list[str] = field(default_factory=list)


class ClickHouseGate:
    """Issues and closes the users of one attempt.

    :param service_id: ``serverUUID()`` both ends were proved to have.
    :param journal: the attempt's journal in the ledger.
    :param tables: the names (database, table) these users can touch; nothing may be pending on them after closing.
    :param checkpoint: called before each statement of an issue; raises to stop it.
    """

    def __init__(
        self,
        control: ClickHouseControl,
        service_id: str,
        journal: PrincipalJournal,
        policy: GatePolicy,
        *,
        tables: Sequence[tuple[str, str]] = (),
        randomness: Callable[[int], bytes] = secrets.token_bytes,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        self._control = control
        self._service_id = service_id
        self._journal = journal
        self._policy = policy
        self._tables = [f"{database}.{name}" for database, name in tables]
        self._randomness = randomness
        self._clock = clock
        self._checkpoint = checkpoint
        self._issued: dict[str, _Issued] = {}

    # --- issuing ----------------------------------------------------------------------------------------------

    def issue_once(self, purpose: Purpose, rights: Sequence[Right]) -> IssuedCredential:
        """Issue a user with exactly these rights; it is used for what it is issued for, then closed.

        :raises GateRefused: the server refused a step or shows something else than was meant; closed again.
        :raises GateNotClosed: issuing failed and closing could not be proved either; the gate stays open in the ledger.
        """
        name = f"dpone_{purpose.value}_{self._randomness(16).hex()}"
        password = _Password(self._randomness(32).hex())
        self._checkpoint()
        self._journal.journal(connector=Connector.CLICKHOUSE, service_id=self._service_id, name=name, purpose=purpose)
        known = self._issued[name] = _Issued()
        try:
            uuid = self._create(known, name, password, purpose, rights)
            self._journal.ready(name=name, principal_uuid=uuid)
        except BaseException as error:
            if self.close(name) is None:  # somebody settled this attempt, perhaps before CREATE USER arrived
                self.remove_leftover(name)
            if isinstance(error, ServerRefused):
                self._checkpoint()  # refused because the task was stopped and its rights taken away
                if error.retryable:
                    raise
                code = error.details.get("server_code")
                raise GateRefused(
                    f"the server refused to issue {name} for {purpose.value} (code {code}); "
                    "check the controller's grants",
                    server_code=code,
                ) from None
            raise
        return IssuedCredential(name=name, principal_uuid=uuid, password=password.text)

    def start_at_issue(self, name: str) -> ServerStart:
        """The run of the server under which a user was issued: its budget lasts only as long."""
        start = self._issued[name].start
        if start is None:
            raise GateRefused(f"{name} was not issued by this process")
        return start

    def note_dispatch(self, name: str, query_id: str) -> None:
        """Remember a query id sent under a user, for closing without the ledger."""
        self._issued[name].dispatches.append(query_id)

    def _create(self, known: _Issued, name: str, password: _Password, purpose: Purpose, rights: Sequence[Right]) -> str:
        who = identifier(name)
        with self._control.fresh() as control:
            self._checkpoint()
            try:
                control.command(self._create_user(name, password, purpose))
            except ServerRefused as error:
                if error.details.get("server_code") != _USER_EXISTS:  # then a tombstone is under the name
                    known.created = False
                raise
            known.created = True
            if purpose is not Purpose.INGEST:
                control.command(f"CREATE QUOTA {who} FOR INTERVAL 100 YEAR MAX queries = 1 TO {who}")
            for right in rights:
                self._checkpoint()
                control.command(f"GRANT {', '.join(right.privileges)} ON {table(right.database, right.table)} TO {who}")
            rows = control.query(load("gate_issued.sql"), {"name": name})
            known.start = start_of(control)
            if known.start.service_id != self._service_id:
                raise GateRefused(
                    f"the connection leads to server {known.start.service_id} instead of {self._service_id}"
                )
        known.uuid = self._verified(name, purpose, rights, rows)
        return known.uuid

    def _create_user(self, name: str, password: _Password, purpose: Purpose) -> str:
        salt = self._randomness(16).hex()
        hashed = hashlib.sha256((password.text + salt).encode()).hexdigest()
        until = f"{(self._clock() + timedelta(seconds=self._policy.lifetime)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        hosts = ", ".join(f"IP {literal(host)}" for host in self._policy.hosts) or "ANY"
        settings = ", ".join(f"{key} = {value} CONST" for key, value in self._policy.settings(purpose).items())
        return (
            f"CREATE USER {identifier(name)} IDENTIFIED WITH sha256_hash BY '{hashed}' SALT '{salt}' "
            f"VALID UNTIL '{until}' HOST {hosts} DEFAULT ROLE NONE GRANTEES NONE SETTINGS {settings}"
        )

    def _verified(
        self, name: str, purpose: Purpose, rights: Sequence[Right], rows: Sequence[tuple[object, ...]]
    ) -> str:
        """The user's UUID, after comparing all the server has under the name with what was meant."""
        found: dict[str, list[list[str]]] = {}
        for kind, fields in rows:
            found.setdefault(str(kind), []).append([str(value) for value in fields])  # type: ignore[attr-defined]
        wanted_grants = sorted(
            [privilege, right.database, right.table, "", "0", "0"] for right in rights for privilege in right.privileges
        )
        settings = {key: [str(value), "CONST"] for key, value in self._policy.settings(purpose).items()}
        users = found.get("user", [])
        checks = {
            "one user with a hashed password": len(users) == 1 and users[0][1] == "['sha256_password']",
            "hosts": len(users) == 1
            and self._policy.admits(users[0][2].split(","), users[0][3])
            and users[0][4:6] == ["[]", "[]"],
            "no role and no grantee": len(users) == 1
            and users[0][6:] == ["0", "[]", "0", "[]"]
            and not found.get("role"),
            "grants": sorted(found.get("grant", [])) == wanted_grants,
            "settings": {row[0]: row[1:] for row in found.get("setting", [])} == settings,
            "budget": purpose is Purpose.INGEST
            or (
                [row[1:] for row in found.get("quota", [])] == [["0", f"['{name}']"]] and found.get("limit") == [["1"]]
            ),
        }
        failed = [what for what, holds in checks.items() if not holds]
        if failed:
            raise GateRefused(
                f"the server shows {name} otherwise than it was issued: {', '.join(failed)}", checks=failed
            )
        return users[0][0]

    # --- closing ----------------------------------------------------------------------------------------------

    def close(self, name: str) -> tuple[GateClosure, QuiescenceObservation] | None:
        """Close a user for good, on the server and in the ledger; resumes wherever an earlier closing stopped.

        :returns: the evidence as it was recorded; None when the ledger has somebody else's already.
        :raises GateNotClosed: closing could not be proved; the gate stays CLOSING.
        """
        principal = self._journal.closing(name=name)
        if principal.state is GateState.CLOSED:
            return None
        if principal.service_id != self._service_id:
            raise GateNotClosed(
                f"{name} was issued on server {principal.service_id}, but the connection leads to {self._service_id}; "
                "point it back, then settle again"
            )
        seen = self.close_on_server(name, principal_uuid=principal.principal_uuid, dispatch_ids=principal.dispatch_ids)
        evidence = (seen.closure(), seen.quiescence())
        return evidence if self._journal.closed(name=name, evidence=evidence) else None

    def close_on_server(
        self,
        name: str,
        *,
        principal_uuid: str | None = None,
        dispatch_ids: Sequence[str] = (),
        wait: float | None = None,
    ) -> ServerClosure:
        """Take every right away on the server and prove it; needs no ledger and may be repeated.

        :param principal_uuid: the user's UUID once it was READY; without it the name gets a tombstone.
        :param wait: seconds to wait for running statements; default is the policy's.
        """
        known = self._issued.get(name, _Issued())
        uuid = principal_uuid or known.uuid
        closing = Closing(
            fresh=self._control.fresh,
            service_id=self._service_id,
            name=name,
            uuid=uuid,
            created=True if uuid else known.created,
            dispatches=sorted({*dispatch_ids, *known.dispatches}),
            tables=self._tables,
            randomness=self._randomness,
        )
        return closing.run(self._policy.quiet_timeout if wait is None else wait)

    def close_known(self, wait: float | None = None) -> None:
        """Close every user this process issued, on the server alone; the ledger is written by whoever settles.

        :raises DponeError: one could not be proved closed; the others were closed all the same.
        """
        doubts: list[DponeError] = []
        for name in reversed(list(self._issued)):  # the newest holds the most
            try:
                self.close_on_server(name, wait=wait)
            except DponeError as doubt:
                doubts.append(doubt)
        if doubts:
            raise doubts[0]

    # --- leftovers --------------------------------------------------------------------------------------------

    def leftovers(self) -> list[str]:
        """Issued users on the server that could log in (tombstones cannot); the ledger says which are closed."""
        return usable_names(self._control)

    def remove_leftover(self, name: str) -> ServerClosure | None:
        """Drop a user that came back although its gate is CLOSED (a power loss can revert a DROP).

        :returns: None when the server has no such user, or only its tombstone.
        """
        if name not in self.leftovers():
            return None
        with self._control.fresh() as control:
            [(uuid,)] = control.query(
                "SELECT toString(id) FROM system.users WHERE name = {name:String}", {"name": name}
            )
        return self.close_on_server(name, principal_uuid=str(uuid))


def usable_names(control: ClickHouseControl) -> list[str]:
    """Names of issued users on the server that could log in; tombstones cannot."""
    with control.fresh() as fresh:
        rows = fresh.query(
            "SELECT name FROM system.users WHERE startsWith(name, 'dpone_') AND NOT (empty(host_ip) AND "
            "empty(host_names) AND empty(host_names_regexp) AND empty(host_names_like)) ORDER BY name"
        )
    return [str(name) for (name,) in rows if ISSUED_NAME.match(str(name))]
