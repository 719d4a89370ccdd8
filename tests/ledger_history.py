"""A long history of a ledger, written at once by its own documents past its rules."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from airflow_provider_dpone.contracts.canonical import digest_bytes, digest_of
from airflow_provider_dpone.contracts.proofs import AttemptProof, ProofKind
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from tests import builders
from tests.ledger_database import LedgerDatabase


def ended_attempts(connection: psycopg.Connection[Any], ledger: LedgerDatabase, count: int) -> None:
    """History: ended attempts of a retired activation with complete proofs, written by the ledger's own documents."""
    runtime, name = ledger.runtime(), f"history{secrets.token_hex(3)}"
    history = builders.activate(ledger.admin(), runtime, name, environment=name)
    attempts = CompositionAttemptStore(runtime)
    sha256 = attempts.admit_once(history.attempt(name))
    builders.end(attempts, sha256, AttemptState.FAILED)
    stored = attempts.read_exact(sha256)
    with unruled(connection), connection.cursor() as cursor:
        evidence, rows, guards = [], [], []
        for number in range(count):
            coordinates = stored.identity.coordinates.model_copy(
                update={"run_id": f"{name}-{number}", "task_instance_id": str(uuid.uuid4())}
            )
            identity = stored.identity.model_copy(update={"coordinates": coordinates})
            mine = identity.digest()
            outcome = builders.outcome(mine, AttemptState.FAILED)
            held = "\n".join(f"{g.guard_id} {g.epoch}" for g in identity.guard_epochs)
            proofs = [
                AttemptProof(
                    family=identity.family, kind=kind, attempt_sha256=mine, activation_sha256=identity.activation_sha256,
                    guard_epochs_sha256=digest_of(held.encode()), authorities=(),
                    dispatches=() if kind is ProofKind.CLOSED_GATES else None,
                    evidence_sha256=(outcome.digest(),) if kind is ProofKind.OUTCOME else (),
                    outcome_state=AttemptState.FAILED if kind is ProofKind.OUTCOME else None,
                )
                for kind in (ProofKind.CLOSED_GATES, ProofKind.QUIESCENCE, ProofKind.OUTCOME)
            ]  # fmt: skip
            evidence.append((digest_bytes(outcome.digest()), 9, digest_bytes(mine), outcome.wire()))
            evidence += [(digest_bytes(p.digest()), 8, digest_bytes(mine), p.wire()) for p in proofs]
            rows.append(
                (
                    digest_bytes(mine), digest_bytes(identity.activation_sha256), digest_bytes(identity.scheduler_key()),
                    identity.wire(), identity.workload_id, coordinates.dag_id, coordinates.run_id, coordinates.task_id,
                    coordinates.map_index, coordinates.try_number, coordinates.task_instance_id,
                    *(digest_bytes(p.digest()) for p in proofs),
                )
            )  # fmt: skip
            guard, epoch = identity.guard_epochs[0].guard_id, identity.guard_epochs[0].epoch
            activation = digest_bytes(identity.activation_sha256)
            guards.append((digest_bytes(mine), activation, digest_bytes(guard), epoch, number + 2))
        cursor.executemany(
            "INSERT INTO dpone.evidence (evidence_sha256, kind, subject, document) VALUES (%s, %s, %s, %s)", evidence
        )
        cursor.executemany(
            "INSERT INTO dpone.attempt (attempt_sha256, activation_sha256, scheduler_key, document, workload_id, dag_id, run_id,"
            " task_id, map_index, try_number, task_instance_id, state, fenced, acknowledged, closed_sha256,"
            " quiescence_sha256, outcome_sha256) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 3, false, false, %s, %s, %s)",
            rows,
        )
        cursor.executemany("INSERT INTO dpone.attempt_guard VALUES (%s, %s, %s, %s, %s, false)", guards)
        cursor.execute("UPDATE dpone.guard SET admitted = %s WHERE guard_id = %s", (count + 1, guards[0][2]))
    history.store.begin_retirement(history.stored.sha256)
    history.store.finalize_retirement(history.stored.sha256)


@contextmanager
def unruled(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Write history without its rules; the layout is as installed again afterwards."""
    rules = connection.execute(
        "SELECT tgrelid::regclass::text, tgname, tgenabled FROM pg_trigger"
        " WHERE tgrelid::regclass::text LIKE 'dpone.%' AND NOT tgisinternal"
    ).fetchall()
    for table, name, _ in rules:
        connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER {name}".encode())
    yield
    for table, name, enabled in rules:
        how = "ENABLE ALWAYS" if enabled == "A" else "ENABLE"
        connection.execute(f"ALTER TABLE {table} {how} TRIGGER {name}".encode())
    connection.commit()
