"""The ledger's public names: the rendered schemas, and the stores on both databases."""

from __future__ import annotations

import re
import uuid

import pytest

from airflow_provider_dpone.errors import DeclarationInvalid, LedgerUnavailable
from airflow_provider_dpone.ledger import mssql, postgres, schema
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect
from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect

RENDERED = [mssql.render_composition_mssql_schema, postgres.render_composition_postgres_schema]
DIALECTS = [MssqlDialect, PostgresDialect]
#: SQL Server's need its driver even to fail: tests/live_mssql/test_store.py opens those.
STORES = [postgres.PostgresCompositionActivationStore, postgres.PostgresCompositionAttemptStore]


@pytest.mark.parametrize("render", RENDERED)
def test_a_rendered_schema_begins_with_its_refusal_of_every_name(render: type) -> None:
    refusal, _, rest = render().partition("CREATE SCHEMA")
    assert "ledger_exists" in refusal
    for name in (*schema.LEGACY_TABLES, *(table.name for table in schema.metadata.sorted_tables)):
        assert f"'{name}'" in refusal
    assert "CREATE TABLE" in rest


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_control_schema_is_named_everywhere(dialect: type) -> None:
    other = dialect("other_control")
    texts = [other.script(), *other.grants("role"), *other.provisioner_grants("role")]
    ours = r"(?<!\w)dpone(?!\w)(?!\.\w+\.v\d)"  # the names of kinds of documents stay as they are
    assert [text for text in texts if re.search(ours, text)] == []
    assert len(re.findall(r"\bother_control\b", other.script())) == len(re.findall(ours, dialect().script()))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["Upper", "a b", "a]b", "a'b", "1a", ""])
def test_a_control_schema_is_a_plain_name(dialect: type, name: str) -> None:
    with pytest.raises(DeclarationInvalid, match="plain"):
        dialect(name)


@pytest.mark.parametrize("store", STORES)
def test_a_store_opens_its_connections_through_the_factory_it_was_given(store: type) -> None:
    opened = []

    def connect() -> None:
        opened.append(1)
        raise OSError("no server")

    found = store(connect, expected_service_id=uuid.uuid4(), control_schema="other_control")
    assert opened == []
    with pytest.raises((OSError, LedgerUnavailable)):
        found.guards() if hasattr(found, "guards") else found.all_open()
    assert opened == [1]
