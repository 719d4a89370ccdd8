"""Mutations of releases, activation, connections and the command line."""

# ruff: noqa: E501 - what is replaced reads better in one line

from __future__ import annotations

from tools.mutations import Rows

CONNECTIONS = "tests/integration/test_connections.py::"

RELEASES = "tests/unit/test_releases.py::"
BINDINGS = "tests/integration/test_bindings.py::"
HANDOVER = "tests/integration/test_handover.py::"

TRIGGER = "tests/integration/test_guard_trigger.py::"
DECLARATIONS = "tests/unit/test_declarations.py::"

COLUMNS = "tests/integration/test_columns.py::"

SUGGEST = "tests/integration/test_suggest.py::"

FAILING = "tests/unit/test_failing.py::"

BY_FILE: Rows = [
    (
        "operators/failing.py",
        [
            ("P13", "    cause = first_cause(error)", "    cause = error",
             (FAILING + "test_the_first_failure_is_the_cause_whatever_failed_while_it_was_handled",)),
            ("P13", "    while seen.__cause__ is None and not seen.__suppress_context__ and isinstance(seen.__context__, DponeError):",
             "    while isinstance(seen.__context__, DponeError):", (FAILING + "test_an_error_that_explains_another_stands_for_itself",)),
        ],
    ),
    (
        "enrolment/suggest.py",
        [
            ("P16", '        if column.nullable or "." in column.name or not whole:', "        if False:",
             (SUGGEST + "test_a_clickhouse_target_as_printed_is_published_into",)),
            ("P16", '    return "text" if own else column.declared', "    return column.declared",
             (SUGGEST + "test_a_postgres_target_as_printed_is_loaded_into",)),
        ],
    ),
    (
        "transfer/convert.py",
        [
            ("P16", "for name in named if name not in by_name]", "for name in named if False]", (COLUMNS + "test_excluded_columns_are_not_read",)),
            ("P16", 'if name in targets or choice.on_new == "refuse"]', "if name in targets]", (COLUMNS + "test_excluded_columns_are_not_read",)),
            ("P16", "    left_out = sorted(set(by_name) - {name for name, _ in renamed})", "    left_out = sorted(set(choice.exclude))",
             (COLUMNS + "test_new_source_columns_are_ignored_by_choice_and_named_in_the_receipt",)),
            ("P16", "        if name in {target for _, target in renamed}\n", "        if False\n",
             (COLUMNS + "test_defaults_fill_target_columns_that_the_source_has_not",)),
        ],
    ),
    (
        "engines/postgres/aggregates.py",
        [
            ("P16", '    parts = [f"{quoted(name)} AS {quoted(target)}" for name, target in chosen.renamed]', '    parts = [f"{quoted(target)}" for name, target in chosen.renamed]',
             (COLUMNS + "test_columns_are_renamed_whatever_they_are_called",)),
        ],
    ),
    (
        "contracts/choice.py",
        [
            ("P11", '            members["on_new_source_column"] = self.on_new\n', "            pass\n", (COLUMNS + "test_the_choice_is_part_of_the_declaration",)),
            ("P11", '            members["defaults"] = ", ".join(f"{_quoted(name)} = {value!r}"', '            members["defaults"] = ", ".join(f"{_quoted(name)} = {value}"', (COLUMNS + "test_the_choice_is_part_of_the_declaration",)),
        ],
    ),
    (
        "triggers/guard.py",
        [
            ("P1", "                if stored.state is not AttemptState.RUNNING:", "                if False:",
             (TRIGGER + "test_it_wakes_once_when_the_attempt_is_resolved",)),
            ("P1", "                    if await sync_to_async(_gone)(stored):", "                    if True:",
             (TRIGGER + "test_it_wakes_once_when_the_attempt_is_resolved",)),
        ],
    ),
    (
        "operators/copying.py",
        [
            ("P13", '            arguments.relation("source_table", source_table)\n', "            pass\n",
             (DECLARATIONS + "test_an_argument_is_refused_by_its_name_while_the_file_is_parsed",)),
            ("P13", '            arguments.count("min_rows", min_rows)\n', "            pass\n",
             (DECLARATIONS + "test_an_argument_is_refused_by_its_name_while_the_file_is_parsed",)),
        ],
    ),
    (
        "releases/plan.py",
        [
            ("P13", "        elif members := unsupported_members(declaration):", "        elif members := []:",
             (RELEASES + "test_the_plan_admits_no_member_without_an_effect",)),
        ],
    ),
    (
        "releases/generated_transfer.py",
        [
            ("P13", "        elif name in EFFECTS and value not in EFFECTS[name]:", "        elif False:",
             (RELEASES + "test_the_plan_admits_no_member_without_an_effect",)),
            ("P11", "**limits, **self.members()},", "**limits},",
             (RELEASES + "test_a_generated_transfer_keeps_every_member_and_runs_as_declared",)),
        ],
    ),
    (
        "contracts/release.py",
        [
            ("P13", "        if CELL_CONSTITUENTS.get(self.cell, self.constituent) != self.constituent:", "        if False:",
             (RELEASES + "test_an_ordinary_declaration_is_not_eligible_for_the_generated_cell",)),
            ("P11", "    occurrence_id: Uuid4\n", "    occurrence_id: Text\n",
             (RELEASES + "test_an_occurrence_is_a_random_uuid",)),
        ],
    ),
    (
        "releases/manifest.py",
        [
            ("P13", "    if len(raw) > MAX_BYTES:", "    if False:", (RELEASES + "test_manifests_are_bounded_before_anything_is_made_of_them",)),
            ("P13", "        if isinstance(event, yaml.AliasEvent):", "        if False:", (RELEASES + "test_manifests_are_bounded_before_anything_is_made_of_them",)),
            ("P13", "            if depth > MAX_DEPTH:", "            if False:", (RELEASES + "test_manifests_are_bounded_before_anything_is_made_of_them",)),
            ("P13", "    if len(paths) > MAX_MANIFESTS:", "    if False:", (RELEASES + "test_manifests_are_bounded_before_anything_is_made_of_them",)),
        ],
    ),
    (
        "releases/sources.py",
        [
            ("P11", "        elif found.get(workload) != sources.pins[workload]:", "        elif workload not in found:",
             (RELEASES + "test_verify_derives_the_inventory_from_the_pinned_files_again",)),
            ("P11", '    differing += [f"DAG {dag}" for dag in sorted(set(dags) ^ set(sources.release.dags))]\n', "",
             (RELEASES + "test_verify_derives_the_inventory_from_the_pinned_files_again",)),
        ],
    ),
    (
        "activation/physical.py",
        [
            ("P1", "domains.setdefault(place.domain_of(relation), []).append(", "domains.setdefault(place.domain, []).append(",
             (BINDINGS + "test_helper_names_are_compared_in_the_database_they_are_in",)),
            ("P11", "        bindings = sources | {", "        bindings = {",
             (BINDINGS + "test_a_source_is_sealed_as_the_server_and_database_it_is",)),
        ],
    ),
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
