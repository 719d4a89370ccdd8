"""docs/types.md has a row for every type of a live PostgreSQL, and each row is what the code does."""

from __future__ import annotations

import re

import psycopg
import pytest

from airflow_provider_dpone.contracts.columns import ValueKind
from airflow_provider_dpone.engines.postgres.session import quoted
from airflow_provider_dpone.engines.postgres.snapshot import open_snapshot
from airflow_provider_dpone.engines.postgres.types import CLASSES, EXTENSION_TYPES, TYPES, rule_of
from airflow_provider_dpone.errors import TypeNotMapped
from tests.integration.transfer_support import SourceDatabase, plan
from tests.servers import PostgresUnderTest
from tests.unit.test_transfer_convert import design
from tools.types_page import PAGE, render

EXTENSIONS = ("hstore", "citext", "ltree", "cube", "isn", "seg", "pg_trgm", "intarray", "btree_gist", "vector")


@pytest.fixture(scope="module")
def source(postgres_server: PostgresUnderTest) -> SourceDatabase:
    database = SourceDatabase.fresh(postgres_server)
    database.run(
        *(f"CREATE EXTENSION {extension}" for extension in EXTENSIONS),
        "CREATE TYPE public.mood AS ENUM ('a')",
        "CREATE TYPE public.pair AS (a int, b text)",
        "CREATE TYPE public.span AS RANGE (subtype = float8)",
        "CREATE DOMAIN public.code AS text",
    )
    return database


def listed(connection: psycopg.Connection, where: str) -> list[tuple[str, str, str, str | None]]:
    return connection.execute(
        "SELECT n.nspname, t.typname, t.typtype::text, x.extname FROM pg_type t "
        "JOIN pg_namespace n ON n.oid = t.typnamespace "
        "LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e' "
        "LEFT JOIN pg_extension x ON x.oid = d.refobjid "
        f"WHERE NOT (t.typcategory = 'A' AND t.typlen = -1 AND t.typelem <> 0) AND {where} ORDER BY 1, 2".encode()
    ).fetchall()


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python tools/types_page.py"


def test_every_type_of_the_server_has_a_row(source: SourceDatabase) -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`([^`]+)`", page))
    with source.connect() as connection:
        types = listed(connection, "t.typtype <> 'c' AND n.nspname <> 'information_schema'")
        assert len(types) > 120
        missing = [name for namespace, name, _, _ in types if namespace == "pg_catalog" and name not in named]
        assert not missing, f"built-in types without a row of their own: {missing}"
        for namespace, name, type_class, extension in types:
            assert rule_of(namespace, name, type_class, extension) in (
                *TYPES.values(), *EXTENSION_TYPES.values(), *CLASSES.values(),
            )  # fmt: skip


def test_every_type_that_is_not_refused_can_be_read_and_every_refused_one_is(source: SourceDatabase) -> None:
    params = source.params()
    read, refused = 0, []
    with source.connect() as connection:
        types = listed(connection, "t.typtype <> 'p' AND t.typisdefined AND (t.typtype <> 'c' OR t.typname = 'pair')")
        for namespace, name, type_class, extension in types:
            connection.execute("DROP TABLE IF EXISTS public.one")
            try:
                connection.execute(f"CREATE TABLE public.one (a {quoted(namespace, name)})".encode())
            except psycopg.errors.Error:
                continue  # no column can be of this type
            connection.execute("INSERT INTO public.one VALUES (NULL)")
            rule = rule_of(namespace, name, type_class, extension)
            with open_snapshot(params, "public", "one") as snapshot:
                target = "Nullable(Decimal(38, 2))" if name == "money" else "Nullable(String)"
                if rule.kind is None:
                    with pytest.raises(TypeNotMapped):
                        plan(snapshot, [design(target)])
                    refused.append(name)
                    continue
                conversion = plan(snapshot, [design(target)])
                [batch] = [conversion.convert(batch) for batch in snapshot.batches(conversion)]
                assert (batch.num_rows, batch.column(0).null_count) == (1, 1)
                assert snapshot.aggregates(conversion).columns[0].nulls == 1
                read += 1
    assert read > 80
    assert {"pg_node_tree", "gtsvector", "ghstore"} <= set(refused)


def test_a_refused_type_really_has_no_way_back(source: SourceDatabase) -> None:
    """Refusals rest on the server: the input function of each refused type gives an error for any text."""
    with source.connect() as connection:
        for namespace, name, type_class, extension in listed(connection, "t.typtype = 'b'"):
            if rule_of(namespace, name, type_class, extension).kind is None:
                with pytest.raises(psycopg.errors.FeatureNotSupported):
                    connection.execute(f"SELECT ''::{quoted(namespace, name)}".encode())


def test_samples_of_extension_types_come_back_from_their_text_form(source: SourceDatabase) -> None:
    samples = {"hstore": 'a=>1,"b c"=>NULL', "ltree": "a.b.c", "cube": "(1,2),(3,4.5)", "isbn": "978-0-393-04002-9",
               "seg": "1.5 .. 2.50", "vector": "[1,2.5]", "sparsevec": "{1:1.5}/3"}  # fmt: skip
    params = source.params()
    with source.connect() as connection:
        for name, text in samples.items():
            connection.execute("DROP TABLE IF EXISTS public.sample")
            connection.execute(f"CREATE TABLE public.sample (a {name} NOT NULL)".encode())
            connection.execute(f"INSERT INTO public.sample VALUES ('{text}')".encode())
            with open_snapshot(params, "public", "sample") as snapshot:
                conversion = plan(snapshot, [design("String")])
                [value] = next(iter(snapshot.batches(conversion))).column(0).to_pylist()
            same = connection.execute(f"SELECT a::text = ('{value}'::{name})::text FROM public.sample".encode())
            assert same.fetchone() == (True,)
            assert conversion.columns[0].kind is ValueKind.TEXT


def test_no_section_of_the_page_names_a_type_twice() -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(sections) == 3
    for section in sections:
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        names = re.findall(r"`([^`]+)`", " ".join(rows))
        assert len(names) == len(set(names)), section[:20]
