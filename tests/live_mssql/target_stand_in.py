"""What a server that only speaks T-SQL lacks of a SQL Server *target*, and what a test asks it instead.

Each row names the missing capability. On a real server nothing of this file is used. A capability that is replaced here
is not proved by a test that passes there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from airflow_provider_dpone.engines.mssql import (
    aggregates,
    control,
    gate,
    install,
    json_rows,
    load_writer,
    place,
    policy,
    row_bytes,
    scripts,
    session,
    staging,
)
from airflow_provider_dpone.engines.mssql.scripts import statement
from airflow_provider_dpone.engines.mssql.target_types import MssqlType
from airflow_provider_dpone.enrolment import mssql as enrolment
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.transfer.target_types import TargetType
from tests.live_mssql.source_support import bytewise
from tests.stand_in import numbered

NOTHING: Final = "SELECT N'' AS found WHERE 1 = 0"
_OURS: Final = "(s.security_id = {sid} OR s.original_security_id = {sid})"
#: Capability, file, part: its text there; None leaves the part out.
PARTS: Final[dict[tuple[str, str], tuple[str, str | None]]] = {
    ("gate_install.sql", "owner"): ("users without a login", None),
    ("gate_install.sql", "schema_of_gate"): ("users without a login", "CREATE SCHEMA dpone_gate"),
    ("gate_install.sql", "row_locks"): ("options of an index", None),
    ("gate_install.sql", "escalation"): ("options of a table", None),
    ("gate_install.sql", "reader"): ("LOGON triggers", None),
    ("gate_install.sql", "reader_disabled"): ("LOGON triggers", None),
    ("gate_install.sql", "reader_user"): ("LOGON triggers", None),
    ("gate_install.sql", "reader_right"): ("LOGON triggers", None),
    ("gate_install.sql", "login_trigger"): ("LOGON triggers", None),
    ("target_install.sql", "owner"): ("users without a login", None),
    ("target_install.sql", "writer"): ("owners of roles", "CREATE ROLE dpone_writer"),
    ("target_install.sql", "writer_makes"): ("rights of a database", None),
    ("target_install.sql", "writer_sees"): ("rights on a system view", None),
    ("gate_install.sql", "fence_right"): (
        "chains of ownership",
        "GRANT EXECUTE ON OBJECT::dpone_gate.fence TO public; GRANT SELECT ON OBJECT::dpone_gate.gate TO public"),
    ("target_install.sql", "conclude_right"): (
        "chains of ownership",
        "GRANT EXECUTE ON OBJECT::dpone_gate.conclude TO public; GRANT INSERT ON OBJECT::dpone_gate.receipt TO public"),
    ("gate_layout.sql", "server_trigger"): ("LOGON triggers", None),
    ("gate_layout.sql", "reader"): ("LOGON triggers", None),
    ("gate_layout.sql", "owner"): ("users without a login", None),
    ("reader_probe.sql", "probe"): (
        "EXECUTE AS", "SELECT 1, N'dpone_gate_reader', SUSER_SNAME(), ORIGINAL_LOGIN()"),
    ("gate_issued.sql", "login"): (
        "the SID of a login",
        "SELECT SUBSTRING(p.name, 9, 32) AS sid, p.type, CONVERT(bit, p.is_disabled) AS is_disabled, "
        "p.default_database_name FROM sys.server_principals AS p WHERE p.name = ?"),
    ("gate_issued.sql", "server_right"): ("rights of the server", "SELECT N'CONNECT SQL', N'GRANT' WHERE LEN(?) > 0"),
    ("gate_issued.sql", "database_user"): (
        "the SID of a login",
        "SELECT SUBSTRING(u.name, 9, 32) AS sid, u.type, u.default_schema_name FROM sys.database_principals AS u "
        "WHERE u.name = ?"),
    ("gate_issued.sql", "grant"): (
        "rights as the catalog shows them",
        "SELECT N'database' AS kind, DB_NAME() AS place, N'CONNECT' AS permission, N'false' AS grantable "
        "UNION ALL SELECT N'table', CONCAT(SCHEMA_NAME(t.schema_id), N'.', t.name), w.name, N'false' FROM sys.tables AS t "
        "CROSS JOIN (VALUES (N'INSERT', 'INSERT'), (N'SELECT', 'SELECT'), (N'DELETE', 'DELETE'), (N'UPDATE', 'UPDATE'), "
        "(N'VIEW DEFINITION', 'DELETE')) AS w (name, asked) WHERE ISNULL(IS_ROLEMEMBER(N'dpone_writer', {user}), 0) = 0 AND "
        "SCHEMA_NAME(t.schema_id) <> N'dpone_gate' AND "
        "CAST(pg_catalog.has_table_privilege(CAST(CONCAT(DB_NAME(), '_', {user}) AS name), "
        "CAST(t.object_id AS oid), CAST(w.asked AS text)) AS int) = 1"),
    ("gate_issued.sql", "gate_row"): (
        "hexadecimal text of bytes",
        "SELECT SUBSTRING(g.name, 9, 32) AS sid, g.state, g.guard, g.epoch, g.attempt, g.made "
        "FROM [control].dpone_gate.gate AS g WHERE g.name = ?"),
    ("gate_quiet.sql", "transactions"): ("transactions as the server shows them", "SELECT N'' AS whose WHERE 1 = 0"),
    ("gate_quiet.sql", "locks"): ("locks as the server shows them", "SELECT 0"),
    ("gate_quiet.sql", "login"): (
        "the SID of a login",
        "SELECT p.name, SUBSTRING(p.name, 9, 32) AS sid, p.type, CONVERT(bit, p.is_disabled) AS is_disabled "
        "FROM sys.server_principals AS p WHERE p.name = {name}"),
    ("gate_quiet.sql", "users"): (
        "the SID of a login", "SELECT N'target' AS place FROM sys.database_principals AS u WHERE u.name = {name}"),
    ("gate_quiet.sql", "moment"): (
        "when the server was started",
        "SELECT CONVERT(datetime, '20000101') AS started, GETUTCDATE() AS seen"),
    ("policy_server.sql", "version"): ("editions and versions", "SELECT 3 AS edition, 16 AS major"),
    ("table_size.sql", "size"): (
        "pages of a table",
        "SELECT pg_catalog.pg_total_relation_size(CONVERT(int, OBJECT_ID(QUOTENAME({schema}) + N'.' + QUOTENAME({name}))))"),
}  # fmt: skip
#: Parts that answer nothing there, by capability.
SILENT: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "event notifications and scoped credentials": (("policy.sql", "unsupported_feature"),),
    "assemblies": (("policy.sql", "assembly"),),
    "rights of the server": (("policy_server.sql", "visible"), ("policy_server.sql", "server_right")),
    "a server of one's own": (("policy_server.sql", "server_principal"),),  # other tests make sysadmins there
    "graph, temporal and ledger tables": (("target_features.sql", "special"),),
    "row security": (("target_features.sql", "security"),),
    "indexed views": (("target_features.sql", "indexed_views"),),
    "users without a login": (("policy.sql", "gate_owner"),),
}
#: Capability: what is written there instead in any statement.
REWRITES: Final[tuple[tuple[str, str, str], ...]] = (
    ("the SID of a login", r", SID = 0x[0-9a-f]{32}", ""),
    ("password policies", ", CHECK_POLICY = ON, CHECK_EXPIRATION = OFF", ""),
    ("the right to see definitions", r"(GRANT [A-Z, ]*), VIEW DEFINITION ON", r"\1 ON"),
    ("rights to alter", r"(GRANT [A-Z, ]*)ALTER, ", r"\1"),
    ("rights to refer", r"(GRANT [A-Z, ]*)REFERENCES, ", r"\1"),
    ("the SID of a login", re.escape("CONVERT(binary(16), SUSER_SID())"),
     "(SELECT o.sid FROM dpone_gate.gate AS o WHERE o.name = SUSER_SNAME())"),
    ("the SID of a login", re.escape("u.principal_id = 1 AND r.name = N'db_owner' AND u.sid = SUSER_SID({controller})"),
     "u.name = N'dbo' AND r.name = N'db_owner'"),
    ("the SID of a login", re.escape("SUBSTRING(u.sid, 1, 4) = 0x64706F6E"), "1 = 1"),
    ("hexadecimal text of bytes", r"CONVERT\(varbinary\(max\), (\[(?:[^\]]|\]\])+\]), 2\)",
     r"CAST(pg_catalog.decode(CAST(\1 AS text), CAST('hex' AS text)) AS varbinary(max))"),
    ("when others logged in", re.escape("CONVERT(nvarchar(33), s.login_time, 126)"),
     "ISNULL(CONVERT(nvarchar(33), s.login_time, 126), N'hidden')"),
    ("transaction numbers", re.escape("CURRENT_TRANSACTION_ID()"), "pg_catalog.txid_current()"),
    ("hexadecimal text of bytes", r",\s+CONSTRAINT gate_name_of_sid CHECK \(.*\)", ""),
    ("the SID of a login", re.escape(_OURS), "s.login_name = {name}"),
    ("the SID of a login", re.escape(_OURS[1:-1]), "s.login_name = {name}"),
)  # fmt: skip


def rewritten(sql: str) -> str:
    """A statement as the stand-in understands it."""
    for _, found, instead in REWRITES:
        sql = re.sub(found, instead, sql)
    return sql


def parts(file: str) -> dict[str, str]:
    """The parts of a file, with what the stand-in lacks replaced."""
    found: dict[str, str] = {}
    silent = {key for keys in SILENT.values() for key in keys}
    for name, sql in _PARTS(file).items():
        _, text = PARTS.get((file, name), ("", rewritten(sql)))
        if (file, name) in silent:
            text = NOTHING
        if text is not None:
            found[name] = text
    return found


_UTF8_LENGTH: Final = "pg_catalog.octet_length(CAST({v} AS text))"
_HEX: Final = f"CAST(pg_catalog.encode(CAST(SUBSTRING({{v}}, 1, {aggregates.PREFIX}) AS bytea), CAST('hex' AS text)) AS varchar(max))"
_PARTS: Final = scripts.parts
_RUN: Final = control.MssqlSession._run
#: "rights of a database": what is shown of a login that got a sysadmin's instead.
_MAKERS: Final = {
    "server_role": "SELECT N'' AS name WHERE LEN(?) < 0",
    "role": "SELECT N'dpone_writer' AS name WHERE LEN(?) > 0",
    "database_user": "SELECT SUBSTRING(p.name, 9, 32) AS sid, N'S', N'mart' FROM sys.server_principals AS p WHERE p.name = ?",
    "grant": "SELECT N'database' AS kind, DB_NAME() AS place, N'CONNECT' AS p, N'false' AS g WHERE LEN({user}) > 0",
}
_LAYOUT: Final = install.layout
_POLICY: Final = policy.require_policy


def use(patch: pytest.MonkeyPatch, *, exact: bool = False, makers: bool = False) -> None:
    """Put the replacements in place for one test.

    :param makers: workers make relations, for which there is no right there but a sysadmin's.

    :param exact: read layout and policy at every look, as the product does; it takes many seconds there.
    """
    layouts: dict[str, str] = {}
    judged: set[str] = set()

    def run(self: control.MssqlSession, sql: str, values: Any) -> Any:
        sql = rewritten(sql)
        if makers:
            sql = sql.replace("ALTER ROLE [dpone_writer] ADD", "ALTER SERVER ROLE sysadmin ADD")
            sql = re.sub(r"\ACREATE USER \[dpone_w_.*", "SELECT 1", sql)  # it is dbo then
        if "{user}" in sql:
            sql, values = sql.replace("{user}", scripts.literal(values[0])), ()
        dropped = re.fullmatch(r"DROP USER \[(dpone_w_\w+)\]", sql)
        if dropped is not None:  # a user with rights cannot be dropped there
            asked = PARTS["gate_issued.sql", "grant"][1]
            assert asked is not None
            for kind, place, right, _ in _RUN(self, asked.replace("{user}", scripts.literal(dropped[1])), ())[0]:
                if kind == "table" and right != "VIEW DEFINITION":
                    _RUN(self, f"REVOKE {right} ON {place} FROM [{dropped[1]}]", ())
        return _RUN(self, sql, values)

    def layout(controlled: control.MssqlControl, session: control.MssqlSession) -> str:
        name = controlled.params.database
        if exact or name not in layouts:
            layouts[name] = _LAYOUT(controlled, session)
        return layouts[name]

    def require_policy(session: control.MssqlSession, **rules: Any) -> None:
        key = repr((session._params.database, sorted(rules.items())))
        if exact or key not in judged:
            _POLICY(session, **rules)
            judged.add(key)

    patch.setattr(gate, "batch", lambda connection, sql: batch(connection, rewritten(sql)))
    for module in (policy, enrolment):
        patch.setattr(module, "require_policy", require_policy)
    patch.setattr(scripts, "parts", lambda file: {**parts(file), **(_MAKERS if makers and "issued" in file else {})})
    patch.setattr(control.MssqlSession, "_run", run)
    patch.setattr(session, "diagnose", numbered)
    for module in (install, policy, enrolment):
        patch.setattr(module, "layout", layout)
    patch.setattr(place, "statement", lambda name: _PLACE if name == "place.sql" else statement(name))
    patch.setattr(staging, "row_digest_sql", row_digest_sql)
    patch.setattr(load_writer, "insert_sql", insert_sql)
    patch.setattr(aggregates, "BYTEWISE", "Latin1_General_100_BIN2")  # collations of UTF-8
    low, high = bytewise(aggregates)
    total = f"CONVERT(nvarchar(20), COALESCE(SUM(CONVERT(bigint, {_UTF8_LENGTH})), 0))"
    patch.setitem(aggregates._SQL, aggregates.Shape.TEXT, (low, high, total))
    *_, total = aggregates._SQL[aggregates.Shape.BYTES]
    patch.setitem(aggregates._SQL, aggregates.Shape.BYTES, (f"MIN({_HEX})", f"MAX({_HEX})", total))


#: It has no identity of a database but the number, and that is never used again.
_PLACE: Final = (
    "SELECT d.database_id, CONVERT(char(36), w.g) AS database_guid, w.g AS recovery_fork_guid, N'2000' AS created, w.g AS broker, "
    "0 AS state, 0 AS is_read_only, NULL AS source_database_id, 0 AS containment, NULL AS replica "
    "FROM sys.databases AS d CROSS APPLY (SELECT CONCAT(REPLICATE('0', 8 - LEN(CONVERT(varchar(8), d.database_id))), "
    "d.database_id, '-0000-4000-8000-000000000000') AS g) AS w WHERE d.database_id = DB_ID()"
)
#: It adds bytes up instead of joining them, and has no bytes of Unicode text: the same bytes by the functions below it.
_JOIN: Final = "CAST(pg_catalog.byteacat(CAST({0} AS bytea), CAST({1} AS bytea)) AS varbinary(max))"
#: Installed in a database under test.
UTF16: Final = """CREATE FUNCTION dpone_gate.utf16 (@t nvarchar(max)) RETURNS varbinary(max) AS
BEGIN
  DECLARE @i int = 1, @n int = LEN(@t + N'.') - 1, @h varchar(max) = '', @c int;
  WHILE @i <= @n
  BEGIN
    SET @c = UNICODE(SUBSTRING(@t, @i, 1));
    IF @c > 65535
    BEGIN
      SET @h = @h + RIGHT('0' + pg_catalog.to_hex((@c - 65536) / 1024 % 256), 2) + pg_catalog.to_hex(216 + (@c - 65536) / 262144);
      SET @c = 56320 + (@c - 65536) % 1024;
    END;
    SET @h = @h + RIGHT('0' + pg_catalog.to_hex(@c % 256), 2) + RIGHT('0' + pg_catalog.to_hex(@c / 256), 2);
    SET @i = @i + 1;
  END;
  RETURN CAST(pg_catalog.decode(CAST(@h AS text), CAST('hex' AS text)) AS varbinary(max));
END"""


def row_digest_sql(columns: list[tuple[str, TargetType]]) -> str:
    """SQL of the SHA-256 of the same bytes as :func:`row_bytes.row_digest_sql`."""
    parts = []
    for name, kind in columns:
        column = row_bytes.quoted(name)
        form = row_bytes.FORMS[kind.family]
        if form == row_bytes.FORMS["String"]:
            form = "dpone_gate.utf16({c})"
        value = f"CONVERT(varbinary(max), {form.format(c=column)})"  # a binary(n) has no way to its bytes
        if kind.family in row_bytes.VARYING:
            value = _JOIN.format(f"CONVERT(varbinary(4), CONVERT(int, DATALENGTH({value})))", value)
        parts.append(f"CASE WHEN {column} IS NULL THEN 0x00 ELSE {_JOIN.format('0x01', value)} END")
    joined = "CONVERT(varbinary(max), 0x)"
    for part in parts:
        joined = _JOIN.format(joined, part)
    return f"HASHBYTES('SHA2_256', {joined})"


#: It hands out text of JSON as it is written there, escapes and all, and only as the old type ``text`` beyond 4,000.
_UNESCAPED: Final = (
    "CASE WHEN CHARINDEX('\\', {c}) > 0 THEN CAST(pg_catalog.jsonb_array_element_text("
    "CAST(CONCAT('[\"', {c}, '\"]') AS jsonb), 0) AS nvarchar(max)) ELSE CAST({c} AS nvarchar(max)) END"
)


def insert_sql(relation: str, types: Mapping[str, MssqlType]) -> str:
    """The statement that fills a staging table, undoing the escapes of text itself."""
    into, select, rest = json_rows.insert_sql(relation, types).partition(" SELECT ")
    for name, kind in types.items():
        if kind.family in ("String", "Varchar", "Char", "Carried"):
            column = scripts.quoted(name)
            rest = rest.replace(f"{column} {kind.staged} '$[", f"{column} text '$[")
            rest = rest.replace(column, _UNESCAPED.format(c=column), 1)
    return into + select + rest


#: What dbt-sqlserver writes that it does not understand: query labels, CREATE OR ALTER VIEW, a rename without its kind.
DBT_MACROS: Final = """
{% macro apply_label() %};{% endmacro %}
{% macro get_query_options(parse_options=False) %};{% endmacro %}
{% macro sqlserver__create_view_as(relation, sql) -%}
  {% set query %}CREATE VIEW {{ relation.include(database=False) }} AS {{ sql }};{% endset %}
  {{ get_use_database_sql(relation.database) }}
  EXEC('DROP VIEW IF EXISTS {{ relation.include(database=False) }}');
  EXEC('{{- escape_single_quotes(query) -}}')
{% endmacro %}
{% macro sqlserver__rename_relation(from_relation, to_relation) -%}
  {% call statement('rename_relation') -%}
    {{ get_use_database_sql(from_relation.database) }}
    EXEC sp_rename N'{{ from_relation.schema }}.{{ from_relation.identifier }}', N'{{ to_relation.identifier }}', N'OBJECT'
  {%- endcall %}
{% endmacro %}
"""
