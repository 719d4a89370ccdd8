"""Mutations of releases, activation, connections and the command line."""

# ruff: noqa: E501 - what is replaced reads better in one line

from __future__ import annotations

from tools.mutations import Rows

CONNECTIONS = "tests/integration/test_connections.py::"

BY_FILE: Rows = [
    (
        "hooks/clickhouse.py",
        [
            ("P3", '            verify=fields["verify"],', "            verify=False,",
             (CONNECTIONS + "test_a_certificate_nobody_vouches_for_gets_no_login",)),
            ("P3", '        if not fields["verify"]:', "        if True:",
             (CONNECTIONS + "test_a_certificate_nobody_vouches_for_gets_no_login",)),
            ("P3", "            options.update({name: fields[name] for name in _TLS if fields[name] is not None})\n", "",
             (CONNECTIONS + "test_an_authority_a_server_name_and_a_client_certificate_serve_both_ports",)),
        ],
    ),
    (
        "engines/clickhouse/wire.py",
        [
            ("P3", "end.server_hostname or end.host", "end.host",
             (CONNECTIONS + "test_an_authority_a_server_name_and_a_client_certificate_serve_both_ports",)),
        ],
    ),
    (
        "hooks/fields.py",
        [
            ("P13", "            if key not in known:", "            if key not in known and False:",
             (CONNECTIONS + "test_unknown_words_and_fields_of_a_clickhouse_connection_are_refused_by_name",)),
            ("P13", '            if value is None or value == "" or key in ignored:', "            if key in ignored:",
             (CONNECTIONS + "test_what_an_untouched_form_stores_means_the_defaults",)),
            ("P13", '        return word in _TRUE', '        return bool(value)',
             (CONNECTIONS + "test_booleans_that_arrive_as_text_are_read",)),
        ],
    ),
    (
        "hooks/dbt.py",
        [
            ("P3", '            ("trust_cert", fields["TrustServerCertificate"]),', '            ("trust_cert", True),',
             (CONNECTIONS + "test_fields_of_a_sql_server_connection_are_read_for_odbc_and_dbt_alike",)),
        ],
    ),
]  # fmt: skip
