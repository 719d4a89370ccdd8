"""The whole authority log held against its originals and against itself, a page at a time. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, select

from airflow_provider_dpone.contracts.authority import Membership, SignedGrant, TrustPolicy
from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.errors import DocumentInvalid, GrantRefused
from airflow_provider_dpone.ledger.authority_log import memberships_in, policy_of, rows
from airflow_provider_dpone.ledger.schema import authority_log, evidence


def disagreements(connection: Connection, page: int) -> Iterator[str]:
    """Walk the log in the order of its keys, one page at a time."""
    last: bytes | None = None
    chains: dict[str, dict[int, TrustPolicy]] = {}
    for (environment,) in connection.execute(select(authority_log.c.environment).distinct()).all():
        chains[environment] = {}
        while (policy := _readable(connection, environment, len(chains[environment]) + 1)) is not None:
            before = chains[environment].get(policy.revision - 1)
            if policy.previous_sha256 != (None if before is None else before.digest()):
                yield f"a trust policy does not follow the one before it {environment}/{policy.revision}"
            chains[environment][policy.revision] = policy
    while True:
        after = [] if last is None else [authority_log.c.entry_sha256 > last]
        query = select(authority_log.c.entry_sha256).where(*after).order_by(authority_log.c.entry_sha256).limit(page)
        keys = [bytes(key) for key in connection.execute(query).scalars()]
        for key in keys:
            yield from _entry_disagreements(connection, key, chains)
        if len(keys) < page:
            return
        last = keys[-1]


def _readable(connection: Connection, environment: str, revision: int) -> TrustPolicy | None:
    try:
        return policy_of(connection, environment, revision)
    except DocumentInvalid:
        return None  # the walk over the keys names it


def _entry_disagreements(
    connection: Connection, key: bytes, chains: dict[str, dict[int, TrustPolicy]]
) -> Iterator[str]:
    which = key.hex()
    try:
        [(row, document)] = rows(connection, authority_log.c.entry_sha256 == key)
    except DocumentInvalid:
        yield f"an entry of the authority log differs from its original {which}"
        return
    if isinstance(document, Membership):
        brought = connection.execute(
            select(evidence.c.document)
            .join(authority_log, authority_log.c.document_sha256 == evidence.c.evidence_sha256)
            .where(authority_log.c.entry_sha256 == row["grant_sha256"], authority_log.c.revision == row["revision"])
        ).scalar_one_or_none()
        try:
            justified = brought is not None and document.workload in SignedGrant.parse(bytes(brought)).grant.workloads
        except DocumentInvalid:
            justified = False
        if not justified:
            yield f"a membership no grant brought in {which}"
    elif isinstance(document, SignedGrant):
        policy = chains.get(document.grant.environment, {}).get(document.grant.trust_revision)
        try:
            if policy is None:
                raise GrantRefused("no such revision", reason="trust")
            document.require_signed_under(policy)
            members = memberships_in(connection, document.grant)
        except (GrantRefused, DocumentInvalid):
            yield f"a registered grant does not hold under the policy it names {which}"
            return
        if any(w.digest() not in members for w in document.grant.workloads):
            yield f"a registered grant lacks a membership {which}"
        bundle = connection.execute(
            select(evidence.c.document).where(evidence.c.evidence_sha256 == row["bundle_sha256"])
        ).scalar_one_or_none()
        if bundle is None or digest_of(bytes(bundle)) != document.grant.bundle_sha256:
            yield f"the bundle of a registered grant is missing or altered {which}"
