"""Entries of the authority log with their originals: read completely and compared member by member, or appended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, func, select

from airflow_provider_dpone.contracts.authority import (
    AuthorityKind,
    Grant,
    Membership,
    Phase,
    SignedGrant,
    TrustPolicy,
)
from airflow_provider_dpone.contracts.canonical import Document, digest_bytes, digest_of
from airflow_provider_dpone.errors import DocumentInvalid
from airflow_provider_dpone.ledger.schema import EvidenceKind, authority_log, evidence
from airflow_provider_dpone.ledger.transaction import Row, Tx, hexed

_CLASSES: Final[dict[AuthorityKind, type[Document]]] = {
    AuthorityKind.TRUST: TrustPolicy,
    AuthorityKind.GRANT: SignedGrant,
    AuthorityKind.MEMBERSHIP: Membership,
}
_EVIDENCE: Final = {
    AuthorityKind.TRUST: EvidenceKind.TRUST_POLICY,
    AuthorityKind.GRANT: EvidenceKind.GRANT,
    AuthorityKind.MEMBERSHIP: EvidenceKind.MEMBERSHIP,
}


@dataclass(frozen=True)
class StoredGrant:
    """A registered grant, parsed from its complete original."""

    entry: str
    signed: SignedGrant
    recorded_at: datetime

    @property
    def grant(self) -> Grant:
        return self.signed.grant


def rows(connection: Connection, *where: ColumnElement[bool]) -> Iterator[tuple[Row, Document]]:
    """Entries with their originals, each compared member by member; oldest first.

    :raises DocumentInvalid: an original is missing, altered, or contradicts its row.
    """
    query = (
        select(authority_log, evidence.c.document)
        .join(evidence, evidence.c.evidence_sha256 == authority_log.c.document_sha256, isouter=True)
        .where(*where)
        .order_by(authority_log.c.revision, authority_log.c.recorded_at, authority_log.c.entry_sha256)
    )
    for found in connection.execute(query).mappings().all():
        row = dict(found)
        raw = b"" if row["document"] is None else bytes(row["document"])
        document = _CLASSES[AuthorityKind(row["kind"])].parse(raw)
        if digest_bytes(digest_of(raw)) != bytes(row["document_sha256"]) or _members(document) != _columns(row):
            raise DocumentInvalid("an entry of the authority log contradicts its original")
        yield row, document


def _columns(row: Row) -> Row:
    return {
        "entry_sha256": hexed(row["entry_sha256"]),
        "environment": row["environment"],
        "revision": row["revision"],
        "epoch": row["epoch"],
        "campaign": None if row["campaign"] is None else str(row["campaign"]),
        "phase": row["phase"],
        "subject": hexed(row["subject"]),
        "grant_sha256": hexed(row["grant_sha256"]),
        "bundle_sha256": hexed(row["bundle_sha256"]),
    } | ({"revision": None} if row["kind"] == AuthorityKind.MEMBERSHIP else {})


def _members(document: Document) -> Row:
    """What the row of a document must say; a membership names its revision through its grant only."""
    empty: Row = dict.fromkeys(("revision", "epoch", "campaign", "phase", "subject", "grant_sha256", "bundle_sha256"))
    if isinstance(document, TrustPolicy):
        given = {"entry_sha256": document.digest(), "environment": document.environment}
        return empty | given | {"revision": document.revision, "epoch": document.revocation_epoch}
    if isinstance(document, Membership):
        return empty | {
            "entry_sha256": document.entry(),
            "environment": document.environment,
            "campaign": document.campaign_id,
            "phase": int(Phase[document.phase.upper()]),
            "subject": document.subject_key(),
            "grant_sha256": document.grant_entry_sha256,
        }
    assert isinstance(document, SignedGrant)
    grant = document.grant
    return empty | {
        "entry_sha256": grant.entry(),
        "environment": grant.environment,
        "revision": grant.trust_revision,
        "campaign": grant.campaign_id,
        "phase": int(grant.phase_code),
        "subject": grant.subject_key(),
        "bundle_sha256": grant.bundle_sha256,
    }


def policy_of(connection: Connection, environment: str, revision: int | None = None) -> TrustPolicy | None:
    """One revision of an environment's trust, the newest by default; its original read completely."""
    mine = and_(authority_log.c.kind == int(AuthorityKind.TRUST), authority_log.c.environment == environment)
    newest = select(func.max(authority_log.c.revision)).where(mine).scalar_subquery()
    found = list(rows(connection, mine, authority_log.c.revision == (newest if revision is None else revision)))
    if not found:
        return None
    [(_, document)] = found
    assert isinstance(document, TrustPolicy)
    return document


def trust_in(tx: Tx, environment: str) -> TrustPolicy | None:
    """The trust policy in force, as the basis of a decision in this very transaction.

    :raises LedgerMismatch: the transaction does not hold the ledger lock alone, or is another one.
    """
    tx.verify()
    found = policy_of(tx.connection, environment)
    tx.verify()
    return found


def grants_in(connection: Connection, *where: ColumnElement[bool]) -> list[StoredGrant]:
    found = []
    for row, document in rows(connection, authority_log.c.kind == int(AuthorityKind.GRANT), *where):
        assert isinstance(document, SignedGrant)
        found.append(StoredGrant(document.grant.entry(), document, row["recorded_at"]))
    return found


def memberships_in(connection: Connection, grant: Grant) -> dict[str, Membership]:
    """Members of the grant's campaign and phase, by workload."""
    where = (
        authority_log.c.kind == int(AuthorityKind.MEMBERSHIP),
        authority_log.c.environment == grant.environment,
        authority_log.c.campaign == uuid.UUID(grant.campaign_id),
        authority_log.c.phase == int(grant.phase_code),
    )
    found = [document for _, document in rows(connection, *where)]
    return {m.subject_key(): m for m in found if isinstance(m, Membership)}


def append(tx: Tx, kind: AuthorityKind, document: Document, revision: int) -> None:
    """Add one entry and its original."""
    members = _members(document)
    recorded = tx.record(_EVIDENCE[kind], members["entry_sha256"], document)
    digests = ("entry_sha256", "subject", "grant_sha256", "bundle_sha256")
    values = {n: None if v is None else digest_bytes(v) for n, v in members.items() if n in digests}
    tx.insert(
        authority_log,
        kind=int(kind),
        environment=members["environment"],
        revision=revision,
        epoch=members["epoch"],
        campaign=None if members["campaign"] is None else uuid.UUID(members["campaign"]),
        phase=members["phase"],
        document_sha256=digest_bytes(recorded),
        **values,
    )
