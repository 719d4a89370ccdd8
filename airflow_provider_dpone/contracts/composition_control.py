"""The contract boundary of application services: every document and policy they exchange, from one place.

It only re-exports; it does no I/O, selects no backend and registers nothing.
"""

from __future__ import annotations

from airflow_provider_dpone.contracts.canonical import Document, digest_of
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity, GuardEpoch, TaskCoordinates, guard_id
from airflow_provider_dpone.contracts.limits import LimitsDocument, SnapshotLimits
from airflow_provider_dpone.contracts.proofs import (
    Adjudication,
    AttemptProof,
    GateClosure,
    Outcome,
    ProofAuthority,
    ProofKind,
    Quiescence,
)
from airflow_provider_dpone.contracts.publication import (
    CatalogObservation,
    GenerationRecord,
    PublicationRecord,
    SnapshotIntent,
    SnapshotTarget,
    Verdict,
    judge,
)
from airflow_provider_dpone.contracts.release import (
    CELL_CONSTITUENTS,
    ActivationRequest,
    Binding,
    Deployment,
    PhysicalObservation,
    PhysicalResource,
    Release,
    WorkloadAdmission,
    WorkloadDeclaration,
    WriteClass,
)
from airflow_provider_dpone.contracts.states import (
    ActivationState,
    AttemptState,
    Connector,
    DispatchState,
    Family,
    GateState,
    PublicationState,
    Purpose,
)

__all__ = [
    "CELL_CONSTITUENTS",
    "ActivationRequest",
    "ActivationState",
    "Adjudication",
    "AttemptProof",
    "AttemptState",
    "Binding",
    "CatalogObservation",
    "CompositionAttemptIdentity",
    "Connector",
    "Deployment",
    "DispatchState",
    "Document",
    "Family",
    "GateClosure",
    "GateState",
    "GenerationRecord",
    "GuardEpoch",
    "LimitsDocument",
    "Outcome",
    "PhysicalObservation",
    "PhysicalResource",
    "ProofAuthority",
    "ProofKind",
    "PublicationRecord",
    "PublicationState",
    "Purpose",
    "Quiescence",
    "Release",
    "SnapshotIntent",
    "SnapshotLimits",
    "SnapshotTarget",
    "TaskCoordinates",
    "Verdict",
    "WorkloadAdmission",
    "WorkloadDeclaration",
    "WriteClass",
    "digest_of",
    "guard_id",
    "judge",
]
