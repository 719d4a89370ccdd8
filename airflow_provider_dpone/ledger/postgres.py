"""The control ledger on PostgreSQL by its public names: its schema, and its stores behind a factory of connections."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect
from airflow_provider_dpone.ledger.schema import SCHEMA
from airflow_provider_dpone.ledger.transaction import Ledger

if TYPE_CHECKING:
    import psycopg


def render_composition_postgres_schema(control_schema: str = SCHEMA) -> str:
    """The ledger's schema as one transaction, for an empty control database.

    It refuses tables and views of its own names and of the earlier system's, and so itself a second time. Its identity
    and the runtime role's rights follow with :func:`airflow_provider_dpone.ledger.install.provision`.
    """
    return PostgresDialect(control_schema).script()


class PostgresCompositionActivationStore(CompositionActivationStore):
    """Guards and activations.

    :param connect: opens an independent connection each time: no pool, no retry.
    :param expected_service_id: the one installation this caller writes to.
    :param control_schema: schema of the ledger's tables.
    """

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        *,
        expected_service_id: uuid.UUID,
        control_schema: str = SCHEMA,
    ) -> None:
        super().__init__(Ledger(connect, PostgresDialect(control_schema), expected_service_id))


class PostgresCompositionAttemptStore(CompositionAttemptStore):
    """Attempts; takes what :class:`PostgresCompositionActivationStore` takes."""

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        *,
        expected_service_id: uuid.UUID,
        control_schema: str = SCHEMA,
    ) -> None:
        super().__init__(Ledger(connect, PostgresDialect(control_schema), expected_service_id))
