"""Mutations of the course of an attempt, its cells and the ClickHouse engine."""

from __future__ import annotations

from tools.mutations import Rows

SNAPSHOT = "tests/integration/test_snapshot.py::"
LOAD = "tests/integration/test_load.py::"
WAITS = "tests/integration/test_waits.py::"
CONTRACTS = "tests/unit/test_contracts.py::"
NEVER_SENT = CONTRACTS + "test_what_was_never_sent_is_not_published_while_a_and_b_are_in_place"
APPEARS = SNAPSHOT + "test_what_appears_before_the_exchange_ends_the_attempt_not_published_and_is_named"
UNKNOWN = SNAPSHOT + "test_an_unknown_outcome_says_what_was_seen"
OVER_HTTP = WAITS + "test_silence_over_http_ends_and_the_outcome_is_observed"
RETENTION = "tests/integration/test_retention.py::"
CATALOG = "tests/live_clickhouse/test_product_catalog.py::"
RECORDED = CATALOG + "test_a_writer_the_local_server_cannot_make_is_seen_in_recorded_rows"
POLICIES = CATALOG + "test_what_the_local_server_cannot_have_is_seen_in_recorded_rows"
AUTHORITY = "tests/integration/test_publication_authority.py::"
REOPENED = AUTHORITY + "test_every_original_behind_a_generation_is_reopened_and_compared"
OWNED = AUTHORITY + "test_an_intent_is_carried_by_its_attempt_guard_and_release_alone"
CLOSES = AUTHORITY + "test_a_publisher_closed_by_somebody_else_needs_its_evidence"
DBT = "tests/integration/test_dbt.py::"
RUNNER = "tests/unit/test_dbt_runner.py::"
EVERY_FIELD = (
    "tests/live_clickhouse/test_product_gate.py::test_every_single_field_the_server_shows_of_an_issued_user_is_compared"
)
GIVEN = "tests/unit/test_declarations.py::test_everything_a_dbt_task_is_given_reaches_dbt"

BY_FILE: Rows = [
    (
        "attempts/cells/snapshot.py",
        [
            (
                "P8",
                "        if facts.rows != content.rows:",
                "        if False:",
                (SNAPSHOT + "test_a_row_inserted_after_the_digest_is_not_sealed_with_it",),
            ),
            (
                "P8",
                "            parts_sha256=parts_sha256,",
                "            parts_sha256=facts.parts_sha256,",
                (SNAPSHOT + "test_a_row_changed_after_the_digest_is_not_published",),
            ),
            (
                "P8",
                "        if facts.uuid != before.uuid:",
                "        if False:",
                (SNAPSHOT + "test_a_generation_replaced_while_it_is_read_is_not_sealed",),
            ),
            (
                "P5",
                "            world.attempts.require_acting(attempt)\n            make_generation",
                "            make_generation",
                (SNAPSHOT + "test_a_fenced_attempt_makes_no_generation",),
            ),
        ],
    ),
    (
        "attempts/cells/load.py",
        [
            (
                "P5",
                "            world.attempts.require_acting(attempt)\n            baseline =",
                "            baseline =",
                (LOAD + "test_fenced_load_writes_no_baseline_and_makes_no_staging_table",),
            ),
        ],
    ),
    (
        "engines/postgres/staging.py",
        [
            (
                "P5",
                '        "AND c.relname = ANY (%(names)s)",',
                '        "AND %(names)s IS NOT NULL",',
                (LOAD + "test_load_that_wakes_late_leaves_the_staging_table_of_its_successor",),
            ),
        ],
    ),
    (
        "engines/postgres/load_writer.py",
        [
            (
                "P8",
                "        if stands != record.content:",
                "        if False:",
                (
                    LOAD + "test_staging_row_changed_after_its_digest_is_refused_inside_the_transaction",
                    LOAD + "test_accepted_trigger_that_changes_rows_is_found_inside_the_transaction",
                ),
            ),
            (
                "P8",
                '        session.query("SET CONSTRAINTS ALL IMMEDIATE")',
                '        session.query("SELECT 1")',
                (LOAD + "test_accepted_trigger_that_changes_rows_is_found_inside_the_transaction",),
            ),
        ],
    ),
    (
        "contracts/publication.py",
        [
            ("P9", "        if never_sent and as_it_was and", "        if never_sent and", (NEVER_SENT,)),
            (
                "P9",
                "        if never_sent and as_it_was and",
                "        if as_it_was and",
                (CONTRACTS + "test_only_a_complete_matching_observation_decides",),
            ),
            ("P9", ' and reason != "foreign_target":', ":", (NEVER_SENT,)),
        ],
    ),
    (
        "publication/publisher.py",
        [
            ("P9", '{error.message}", never_sent=True)', '{error.message}")', (APPEARS,)),
            (
                "P9",
                "verdict = judge(intent, seen, never_sent=True)",
                "verdict = judge(intent, seen)",
                (SNAPSHOT + "test_what_appears_before_the_claim_lets_a_settler_cancel",),
            ),
            (
                "P9",
                "            reason = _joined(verdict.reason, shown(intent, seen), reason)",
                "            reason = verdict.reason",
                (UNKNOWN,),
            ),
        ],
    ),
    (
        "attempts/clickhouse.py",
        [
            (
                "P9",
                "            code, reason = PublicationUnknown.code, publication.record.reason",
                "            pass",
                (UNKNOWN,),
            ),
        ],
    ),
    (
        "waiting.py",
        [
            (
                "N21",
                "                sock.shutdown(socket.SHUT_RDWR)",
                "                pass",
                (WAITS + "test_only_the_sockets_of_the_connection_are_cut_and_each_looks_after_its_peer",),
            ),
            (
                "N21",
                " if _inode(fd) == inode]",
                "]",
                (WAITS + "test_a_descriptor_that_became_another_socket_is_left_alone",),
            ),
            ("N21", " or not self._thread.is_alive():", ":", (WAITS + "test_deadlines_work_in_a_forked_process",)),
            (
                "N21",
                "    line.keep_alive()",
                "    pass",
                (WAITS + "test_only_the_sockets_of_the_connection_are_cut_and_each_looks_after_its_peer",),
            ),
        ],
    ),
    (
        "engines/clickhouse/wire.py",
        [
            (
                "N21",
                "        self._connection.sock.settimeout(self._answer_within)",
                "        self._connection.sock.settimeout(40)",
                (OVER_HTTP,),
            ),
            (
                "N21",
                "        keep_alive(self._connection.sock)",
                "        pass",
                ("tests/unit/test_clickhouse_wire.py::test_a_dispatch_looks_after_its_peer",),
            ),
        ],
    ),
    (
        "engines/postgres/session.py",
        [
            (
                "N21",
                "        with self.line.within(self.seconds):",
                "        with self.line.within(40):",
                (WAITS + "test_silence_of_a_postgres_session_is_a_lost_answer",),
            ),
        ],
    ),
    (
        "engines/postgres/snapshot.py",
        [
            (
                "N21",
                "yield from self._line.each(self._params.answer_seconds, batches)",
                "yield from self._line.each(40, batches)",
                (WAITS + "test_silence_while_arrow_rows_are_read_is_a_lost_answer",),
            ),
        ],
    ),
    (
        "ledger/transaction.py",
        [
            (
                "N21",
                "with line.within(self.longest):",
                "with line.within(40):",
                (WAITS + "test_silence_of_the_ledger_ends_in_doubt_or_unavailable_and_a_later_try_settles",),
            ),
        ],
    ),
    (
        "engines/dbt/process.py",
        [
            (
                "N21",
                "        deadline.start()",
                "        pass",
                ("tests/unit/test_dbt_runner.py::test_a_build_that_waits_for_ever_is_ended",),
            ),
        ],
    ),
    (
        "engines/clickhouse/catalog_features.sql",
        [
            ("P8", "'WindowView', 'TimeSeries', 'Distributed'", "'TimeSeries', 'Distributed'", (RECORDED,)),
            ("P8", "'TimeSeries', 'Distributed'", "'Distributed'", (RECORDED,)),
            ("P8", "'Distributed', 'Buffer'", "'Buffer'", (RECORDED,)),
            ("P8", "'Buffer', 'Alias', 'Merge'", "'Buffer', 'Merge'", (RECORDED,)),
            ("P8", "'Alias', 'Merge', 'Hybrid'", "'Alias', 'Hybrid'", (RECORDED,)),
            ("P8", "'Merge', 'Hybrid', 'StorageProxy'", "'Merge', 'StorageProxy'", (RECORDED,)),
            ("P8", "'Hybrid', 'StorageProxy'", "'Hybrid'", (RECORDED,)),
            ("P8", " OR engine_full = ''", "", (RECORDED,)),
            ("P8", "SELECT 'row_policy', [short_name]", "SELECT 'none', [short_name]", (POLICIES,)),
            ("P8", "SELECT 'masking_policy', [short_name]", "SELECT 'none', [short_name]", (POLICIES,)),
            ("P8", "WHERE type = 'replicated'", "WHERE type = 'none'", (POLICIES,)),
        ],
    ),
    (
        "attempts/clickhouse.py",
        [
            (
                "P17",
                "        return sorted(str(name) for (name,) in rows)",
                "        return []",
                (RETENTION + "test_retained_generations_count_against_the_ceiling",),
            ),
        ],
    ),
    (
        "attempts/cells/retention.py",
        [
            (
                "P17",
                "        _freed(self._removable)",
                "        pass",
                (RETENTION + "test_a_table_without_a_size_is_not_removed_and_not_counted_as_nothing",),
            ),
            (
                "P14",
                "        if changed:",
                "        if False:",
                (RETENTION + "test_what_may_not_go_any_more_once_admitted_is_not_removed",),
            ),
        ],
    ),
    (
        "publication/authority.py",
        [
            ("P11", "        _require_closed(record.ingest, ingest, closures, quiet)", "        pass", (REOPENED,)),
            (
                "P11",
                "(c.name, c.principal_uuid) == (meant.name, meant.uuid)",
                "c.name == meant.name",
                (REOPENED,),
            ),
            ("P11", "(q.name, q.service_id) == (meant.name, ingest.service_id)", "True", (REOPENED,)),
            ("P11", "        if aggregates.rows != record.content.rows:", "        if False:", (REOPENED,)),
            ("P11", "if c.digest() == ingest.closure_sha256]", "]", (REOPENED,)),
            ("P11", "if q.digest() == ingest.quiescence_sha256]", "]", (REOPENED,)),
            (
                "P11",
                "if ingest.state is not GateState.CLOSED or ingest",
                "if ingest",
                (REOPENED,),
            ),
            (
                "P11",
                " or ingest.closure_sha256 != record.closed_ingest_sha256:",
                ":",
                (REOPENED,),
            ),
            ("P11", "if publisher.state is not GateState.READY or publisher", "if publisher", (REOPENED,)),
            ("P11", " or publisher.principal_uuid is None:", ":", (REOPENED,)),
            ("P11", "        if stored.identity != attempt:", "        if False:", (REOPENED,)),
            (
                "P11",
                "        if guard is None or guard.enrolment_sha256 != record.target.enrolment_sha256:",
                "        if guard is None:",
                (REOPENED,),
            ),
            ("P11", "        if guard.target_uuid != record.old_target_uuid or guard", "        if guard", (REOPENED,)),
            (
                "P11",
                " or guard.table.design.digest() != record.design_sha256:",
                ":",
                (REOPENED,),
            ),
            ("P11", "if record.digest() != generation_ref or record", "if record", (REOPENED,)),
            ("P11", " or record.family is not attempt.family:", ":", (REOPENED,)),
            ("P11", "    if len(found) != 1:", "    if not found:", (REOPENED,)),
            ("P11", "    if stored.fenced or stored.state", "    if stored.state", (REOPENED,)),
            (
                "P11",
                "if guard is None or held.get(guard_id) != guard.epoch or guard",
                "if guard is None or guard",
                (REOPENED,),
            ),
            (
                "P11",
                " or guard.owner_sha256 != stored.identity.activation_sha256:",
                ":",
                (REOPENED,),
            ),
            (
                "P11",
                "        if stored.identity.activation_sha256 != intent.activation_sha256:",
                "        if False:",
                (OWNED,),
            ),
            (
                "P11",
                "        if activation.state not in (ActivationState.ACTIVE, ActivationState.RETIRING):",
                "        if False:",
                (OWNED,),
            ),
            (
                "P11",
                "                publisher.name != intent.publisher.name\n                or publisher",
                "                publisher",
                (CLOSES,),
            ),
            ("P11", "                or publisher.closure_sha256 is None\n", "", (CLOSES,)),
            ("P11", "                or publisher.quiescence_sha256 is None\n", "", (CLOSES,)),
        ],
    ),
    (
        "attempts/cells/dbt.py",
        [
            (
                "P6",
                "                self._prepared.stop()  # before",
                "                pass  # before",
                (DBT + "test_dbt_has_ended_before_its_login_is_closed",),
            ),
        ],
    ),
    (
        "attempts/dbt_outcomes.py",
        [
            (
                "P9",
                "            if schema.relations() != relations:",
                "            if False:",
                (DBT + "test_a_schema_that_changes_while_it_is_read_back_is_looked_at_again",),
            ),
        ],
    ),
    (
        "engines/clickhouse/gate.py",
        [
            ("P4", ' == [["0", f"[\'{name}\']"]] and found', ' == [["0", f"[\'{name}\']"]] or found', (EVERY_FIELD,)),
            ("P4", " and users[0][1] == \"['sha256_password']\"", "", (EVERY_FIELD,)),
            ("P4", '            and not found.get("role"),', "            ,", (EVERY_FIELD,)),
            ("P4", '            and users[0][4:6] == ["[]", "[]"],', "            ,", (EVERY_FIELD,)),
        ],
    ),
    (
        "enrolment/clickhouse.py",
        [
            (
                "P13",
                "    if found != marker and not (found is None and dry_run):",
                "    if found != marker and not dry_run:",
                (SNAPSHOT + "test_a_dry_run_of_an_enrolment_refuses_what_the_enrolment_would_refuse",),
            ),
        ],
    ),
    (
        "operators/dbt.py",
        [
            (
                "P13",
                "            environment={str(name): str(value) for name, value in self.env.items()},",
                "            environment={},",
                (GIVEN,),
            ),
            ("P13", "            exclude=_texts(self.exclude),", "            exclude=(),", (GIVEN,)),
            ("P13", "            fail_fast=self.fail_fast,", "            fail_fast=False,", (GIVEN,)),
            (
                "P13",
                "            dbt_executable=self.dbt_executable_path,",
                "            dbt_executable=None,",
                (GIVEN,),
            ),
        ],
    ),
    (
        "engines/dbt/process.py",
        [
            (
                "P6",
                "            self._wait(grace)\n",
                "",
                (RUNNER + "test_a_process_that_is_told_to_end_is_waited_for_before_it_is_killed",),
            ),
            (
                "P6",
                "            self._signal(signal.SIGKILL)  # also",
                "            pass  # also",
                (RUNNER + "test_a_process_that_does_not_end_when_told_is_killed",),
            ),
            (
                "P6",
                "                self._wait(3.0)",
                "                pass",
                (RUNNER + "test_a_planned_process_is_let_go_and_ends_by_itself",),
            ),
        ],
    ),
    (
        "engines/clickhouse/wire.py",
        [
            (
                "P6",
                "            self._connection.close()",
                "            pass",
                ("tests/unit/test_clickhouse_wire.py::test_a_connection_is_closed_once_the_answer_was_read",),
            ),
        ],
    ),
]
