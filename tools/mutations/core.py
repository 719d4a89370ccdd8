"""Mutations of what was there first: ledger, publication, gates, loads, dbt, releases."""

# ruff: noqa: E501 - what is replaced reads better in one line

from __future__ import annotations

from tools.mutations import Rows

RULES = "ledger/dialects/postgres/rules.sql"
LEDGER = "tests/integration/test_ledger.py::"
BREAKING = "tests/integration/test_breaking.py::"
RECOVERY = "tests/integration/test_recovery.py::"
RETENTION = "tests/integration/test_retention.py::"
ACTIVATION = "tests/integration/test_activation.py::"
DBT = "tests/integration/test_dbt.py::"
DBT_RELATIONS = "tests/unit/test_dbt_relations.py"
DBT_RUNNER = "tests/unit/test_dbt_runner.py"
DBT_VERDICT = "tests/unit/test_dbt_verdict.py"
HANDOVER = "tests/integration/test_handover.py::"
GATE = "tests/live_clickhouse/test_product_gate.py::"
PUBLICATION = "tests/live_clickhouse/test_product_publication.py::"
CONTRACTS = "tests/unit/test_contracts.py::"
JUDGE = CONTRACTS + "test_only_a_complete_matching_observation_decides"
PG_GATE = "tests/integration/test_postgres_gate.py::"
LOAD = "tests/integration/test_load.py::"
AUTHORITY = "tests/integration/test_authority.py::test_authority"
AUTHORITY_CLI = "tests/integration/test_authority_cli.py::"
NEXT = LEDGER + "test_the_database_refuses_every_step_that_is_not_next"
RESOLVES = LEDGER + "test_the_database_resolves_an_attempt_only_over_closed_gates_and_a_settled_publication"

BY_FILE: Rows = [
    (
        "ledger/schema.py",
        [
            ("P1", '    "uq_attempt_guard_open",\n    attempt_guard.c.guard_id,\n    unique=True,',
             '    "uq_attempt_guard_open",\n    attempt_guard.c.guard_id,\n    unique=False,',
             (LEDGER + "test_admission_is_once_per_instance_and_one_per_guard",)),
            ("P2", '    UniqueConstraint("scheduler_key", name="uq_attempt_scheduler"),\n', "",
             (LEDGER + "test_an_instance_is_admitted_once_whatever_its_plan",)),
        ],
    ),
    (
        RULES,
        [
            ("P10", "    PERFORM dpone.refuse('ledger_lock');", "    NULL;",
             (LEDGER + "test_a_write_without_the_ledger_lock_is_refused",)),
            ("P5", "    PERFORM dpone.refuse('attempt_fenced');", "    NULL;",
             (LEDGER + "test_fenced_attempt_can_do_nothing_more",)),
            ("P5", "    PERFORM dpone.refuse('attempt_not_running');", "    NULL;",
             (LEDGER + "test_a_finished_attempt_can_do_nothing_more",)),
            ("P5", "      PERFORM dpone.refuse('dispatch_gate_not_ready');", "      NULL;",
             (LEDGER + "test_gates_move_forward_only_and_settle_their_dispatches",)),
            ("P6", "    PERFORM dpone.refuse('dispatch_settled_by_closing_only');", "    NULL;",
             (LEDGER + "test_gates_move_forward_only_and_settle_their_dispatches",)),
            ("P10", "    PERFORM dpone.refuse('evidence_append_only');", "    NULL;",
             (LEDGER + "test_documents_and_history_are_immutable",)),
            ("P9", "    PERFORM dpone.refuse('evidence_administrator');", "    NULL;",
             (LEDGER + "test_only_an_administrator_adjudicates",)),
            ("P12", "    PERFORM dpone.refuse('activation_unresolved');", "    NULL;",
             (LEDGER + "test_retirement_waits_for_every_attempt_and_keeps_epochs",)),
            ("P10", "     OR (OLD.fenced AND NOT NEW.fenced)", "     OR (false)", (NEXT,)),
            ("P6", "      PERFORM dpone.refuse('attempt_open_gates');", "      NULL;", (RESOLVES,)),
            ("P9", "      PERFORM dpone.refuse('attempt_publication');", "      NULL;", (RESOLVES,)),
            ("P9", " AND p.state NOT IN (3, 4) AND EXISTS (", " AND EXISTS (",
             (BREAKING + "test_adjudication_cannot_contradict_what_was_observed",)),
            ("P6", "      PERFORM dpone.refuse('principal_open_dispatch');", "      NULL;", (RESOLVES,)),
            ("P6", "      PERFORM dpone.refuse('principal_evidence');", "      NULL;", (NEXT,)),
            ("P10", "    PERFORM dpone.refuse('principal_transition');", "    NULL;", (NEXT,)),
            ("P10", "  IF NEW.revision <> OLD.revision + 1\n     OR NOT", "  IF NOT", (NEXT,)),
            ("P5", "      PERFORM dpone.refuse('publication_gate_not_ready');", "      NULL;", (NEXT,)),
            ("P8", "    PERFORM dpone.refuse('publication_gate_not_closed');", "    NULL;", (NEXT,)),
            ("P1", "IS DISTINCT FROM OLD.enrolment_sha256 AND held THEN", "IS DISTINCT FROM OLD.enrolment_sha256 AND false THEN",
             (BREAKING + "test_re_enrolment_is_refused_while_an_attempt_is_at_work",)),
        ],
    ),
    (
        "ledger/dialects/postgres/checks.sql",
        [("P10", "evidence_sha256 = sha256(document) AND ", "",
          (LEDGER + "test_documents_and_history_are_immutable",))],
    ),
    (
        "ledger/transaction.py",
        [
            ("P11", "pins.layout != self.dialect.layout(connection):", "False:",
             (LEDGER + "test_altered_layout_stops_every_write",)),
            ("P11", "        if self._expected is not None and pins.service_id != self._expected:", "        if False:",
             (LEDGER + "test_pinned_service_id_is_compared",)),
            ("P9", "        if self.dialect.transaction_id(connection) != identity:", "        if False:",
             (LEDGER + "test_a_transaction_replaced_while_it_was_open_is_no_write",)),
            ("P9", "            self._read_back(tx, lost)\n", "            pass\n",
             (LEDGER + "test_lost_commit_ack_is_read_back_not_replayed", LEDGER + "test_commit_in_doubt_is_never_success")),
            ("P9", "self._transaction(lock=lost is not None)", "self._transaction(lock=False)",
             (LEDGER + "test_a_commit_still_under_way_is_waited_for_before_it_is_read_back",)),
        ],
    ),
    (
        "ledger/dialects/postgres/__init__.py",
        [("P9", "        if durability not in", "        if False and durability not in",
          ("tests/integration/test_ledger_postgres.py::test_a_session_that_could_lose_or_miss_a_commit_is_refused",))],
    ),
    (
        "ledger/attempts.py",
        [
            ("P1", '                    or row["epoch"] != held.epoch\n', "",
             (LEDGER + "test_admission_demands_the_pinned_declaration_and_epochs",)),
            ("P11", "        if pinned != [identity.pack_sha256,", "        if False and pinned != [identity.pack_sha256,",
             (LEDGER + "test_admission_demands_the_pinned_declaration_and_epochs",)),
            ("P5", "                if identity.coordinates.superseded_by(other.identity.coordinates):", "                if False:",
             (BREAKING + "test_an_earlier_instance_that_starts_late_neither_fences_nor_outruns_its_successor",)),
        ],
    ),
    (
        "ledger/publications.py",
        [
            ("P5", "        self._before_claim()\n        after = before", "        after = before",
             (BREAKING + "test_a_stop_just_before_the_claim_sends_nothing",)),
            ("P7", '            if error.details.get("rule") in ("publication_changed", "dispatch_pkey"):', "            if True:\n                return after\n            if False:",
             (LEDGER + "test_claim_has_one_winner",)),
            ("P9", "            raise ClaimUncertain(f\"the claim is not certain ({error.code}); nothing was sent\") from error", "            return after",
             (LEDGER + "test_a_claim_in_doubt_is_no_claim",)),
            ("P8", "            if after.state is PublicationState.PUBLISHED:", "            if False:",
             (RECOVERY + "test_cleared_success_copies_anew",)),
        ],
    ),
    (
        "ledger/journal.py",
        [("P10", "                return False\n", "                return True\n",
          (BREAKING + "test_a_publication_names_the_closure_the_ledger_has",))],
    ),
    (
        "contracts/canonical.py",
        [
            ("P10", "        if document.wire() != raw:", "        if False:", (CONTRACTS + "test_noncanonical_bytes_are_refused",)),
            ("P10", "    if len(members) != len(pairs):", "    if False:", (CONTRACTS + "test_a_repeated_member_is_named",)),
        ],
    ),
    (
        "contracts/publication.py",
        [
            ("P8", "    if seen.unsupported:", "    if False:", (JUDGE,)),
            ("P8", "    if parts != intent.parts_sha256 and content != intent.content:", "    if False:", (JUDGE,)),
            ("P8", "    if pair == (intent.generation_uuid, intent.old_target_uuid):", "    if pair[0] == intent.generation_uuid:", (JUDGE,)),
            ("P8", "    if seen.target != intent.target or seen.service_id != intent.target.service_id:", "    if False:", (JUDGE,)),
        ],
    ),
    (
        "publication/publisher.py",
        [
            ("P7", "        claimed = self._store.claim(intent, record)\n", "        claimed = record.next(PublicationState.EXCHANGE_INTENT)\n",
             (PUBLICATION + "test_an_uncertain_claim_sends_nothing",)),
            ("P5", "            self._authority.require_current(intent)\n            self._catalog", "            self._catalog",
             (PUBLICATION + "test_an_attempt_fenced_after_its_claim_sends_nothing_and_is_settled",)),
            ("P7", "            self._catalog.require_ready(intent)\n", "",
             (PUBLICATION + "test_what_changed_since_the_seal_is_seen_before_dispatch",)),
            ("P7", "        if record.state is not PublicationState.PREPARED:\n            raise AlreadyClaimed", "        if False:\n            raise AlreadyClaimed",
             (PUBLICATION + "test_a_claim_found_never_grants_another_exchange",)),
            ("P8", "            closure = self._authority.close_publisher(intent)\n            seen = self._catalog.observe(intent)\n", "            seen = self._catalog.observe(intent)\n            closure = self._authority.close_publisher(intent)\n",
             (RECOVERY + "test_killed_before_the_exchange_took_effect_it_never_does", BREAKING + "test_an_exchange_that_arrives_while_its_publisher_is_closed_is_found_published")),
            ("P9", "        if verdict.state is not PublicationState.NOT_PUBLISHED:", "        if False:",
             (BREAKING + "test_altered_generation_of_an_unclaimed_publication_can_be_adjudicated",)),
            ("P9", "            if now != record:  # another reconciler", "            if False:  # another reconciler",
             (BREAKING + "test_two_settlers_of_one_contradictory_attempt_both_find_it_unknown",)),
        ],
    ),
    (
        "publication/authority.py",
        [
            ("P11", "        _require_running(stored)\n        _require_guard", "        _require_guard",
             (BREAKING + "test_what_authorises_a_publication_is_read_again_when_it_is_prepared",)),
            ("P11", "        if record.digest() != generation_ref or record.attempt_sha256 != sha256 or record.family is not attempt.family:", "        if False:",
             (BREAKING + "test_what_authorises_a_publication_is_read_again_when_it_is_prepared",)),
            ("P9", "        if stored.state not in (AttemptState.RUNNING, AttemptState.COMMIT_UNKNOWN):", "        if False:",
             (BREAKING + "test_what_authorises_a_publication_is_read_again_when_it_is_prepared",)),
        ],
    ),
    (
        "engines/clickhouse/executor.py",
        [("P7", "        credential, self._credential = self._credential, None\n", "        credential = self._credential\n",
          (PUBLICATION + "test_the_credential_is_used_once",))],
    ),
    (
        "engines/clickhouse/wire.py",
        [("P7", "        if self._used:", "        if False:", ("tests/unit/test_clickhouse_wire.py::test_a_dispatch_cannot_be_sent_again",))],
    ),
    (
        "engines/clickhouse/observer.py",
        [
            ("P8", "            if _equal(before, after):", "            if True:",
             (PUBLICATION + "test_an_observation_that_changed_under_way_is_repeated_until_it_stands_still",)),
            ("P7", "                and not view.start.same_run(self._budget_since),", "                and False,",
             (PUBLICATION + "test_readiness_refuses_a_server_restarted_since_the_issue",)),
            ("P1", "            self._require_owned(control)\n", "",
             (BREAKING + "test_a_marker_taken_away_in_mid_attempt_sends_nothing",)),
        ],
    ),
    (
        "engines/clickhouse/gate.py",
        [
            ("P4", "        self._journal.journal(connector=Connector.CLICKHOUSE, service_id=self._service_id, name=name, purpose=purpose)\n        known = self._issued[name] = _Issued()\n        try:\n            uuid = self._create(known, name, password, purpose, rights)\n",
             "        known = self._issued[name] = _Issued()\n        try:\n            uuid = self._create(known, name, password, purpose, rights)\n            self._journal.journal(\n                connector=Connector.CLICKHOUSE, service_id=self._service_id, name=name, purpose=purpose\n            )\n",
             (RECOVERY + "test_late_create_user_of_a_settled_attempt_fails_against_its_tombstone",)),
            ("P3", "    text: str = field(repr=False)\n", "    text: str\n", (GATE + "test_no_frame_of_a_failed_issue_shows_the_password",)),
            ("P4", "                if error.details.get(\"server_code\") != _USER_EXISTS:", "                if True:",
             (BREAKING + "test_stopped_while_a_user_is_being_created_ends_with_its_name_taken",)),
            ("P4", "                self.remove_leftover(name)\n", "                pass\n",
             (GATE + "test_a_user_that_became_usable_after_its_gate_was_closed_is_removed_by_whoever_issued_it",)),
            ("P4", "    created: bool | None = None", "    created: bool | None = False",
             (GATE + "test_a_create_whose_answer_was_lost_is_dropped_and_its_name_kept",)),
            ("P6", "        if principal.service_id != self._service_id:", "        if False:",
             (GATE + "test_a_user_issued_on_another_server_is_never_closed_here",)),
            ("P6", "            except DponeError as doubt:\n                doubts.append(doubt)", "            except DponeError:\n                raise",
             (GATE + "test_one_user_that_cannot_be_proved_quiet_does_not_keep_another_open",)),
            ("P7", "            \"grants\": sorted(found.get(\"grant\", [])) == wanted_grants,", "            \"grants\": True,",
             (GATE + "test_a_user_the_server_shows_otherwise_than_issued_is_refused_and_closed",)),
            ("P7", "            \"budget\": purpose is Purpose.INGEST", "            \"budget\": True or purpose is Purpose.INGEST",
             (GATE + "test_a_user_the_server_shows_otherwise_than_issued_is_refused_and_closed",)),
        ],
    ),
    (
        "engines/clickhouse/rights.py",
        [("P16", '            return common | {\n                "max_execution_time": self.lifetime,', '            return {\n                "max_execution_time": self.lifetime,',
          (GATE + "test_pinned_settings_cannot_be_changed",))],
    ),
    (
        "engines/clickhouse/closing.py",
        [
            ("P6", "            if not (queries or inserts or queued or mutations):", "            if True:",
             (GATE + "test_an_exchange_that_passed_its_check_is_waited_for",)),
            ("P6", "            if not own:", "            if False:",
             (GATE + "test_a_view_that_does_not_show_what_must_be_there_is_not_believed",)),
            ("P6", "        if control_user != 1:", "        if False:",
             (GATE + "test_a_view_that_does_not_show_what_must_be_there_is_not_believed",)),
            ("P6", "        elif found:\n", "        elif False:\n", (GATE + "test_a_user_that_is_there_again_right_after_its_drop_is_not_closed",)),
            ("P6", "        if not before.same_run(after):", "        if False:",
             (GATE + "test_a_restart_between_absence_and_quiet_is_noticed",)),
            ("P6", '        return "lost" not in outcomes', "        return True", (GATE + "test_a_lost_answer_while_closing_is_asked_again_not_believed",)),
            ("P6", 'and self._do(control, "fence", "SYSTEM RELOAD USERS") == "ok"', "and True", (GATE + "test_a_closed_user_cannot_log_in_and_leaves_nothing",)),
            ("P6", "        if start.service_id != self.service_id:", "        if False:",
             (GATE + "test_another_server_behind_the_connection_is_never_taken_for_closed",)),
        ],
    ),
    (
        "attempts/settle.py",
        [
            ("P5", "        self._world.attempts.fence(stored.sha256)\n", "",
             (BREAKING + "test_an_attempt_that_cannot_be_settled_is_fenced_all_the_same",)),
            ("P5", "                if mine.superseded_by(theirs):", "                if False:",
             (BREAKING + "test_an_earlier_instance_that_starts_late_neither_fences_nor_outruns_its_successor",)),
            ("P1", "and not finished(theirs):", "and False:",
             (RECOVERY + "test_another_run_waits_and_takes_over_only_what_airflow_reports_finished",)),
            ("P9", "        if adjudication is not None and stored.state is not AttemptState.COMMIT_UNKNOWN:", "        if False:",
             (BREAKING + "test_only_an_attempt_that_observation_cannot_settle_is_adjudicated",)),
            ("P9", "            if now.state is stored.state:\n                raise\n", "            raise\n",
             (BREAKING + "test_two_settlers_of_one_unpublished_attempt_both_find_its_end",)),
        ],
    ),
    (
        "attempts/clickhouse.py",
        [
            ("P9", "            if _unproved(publication):", "            if False:",
             (BREAKING + "test_an_outcome_that_cannot_be_looked_at_now_stays_pending_and_held",)),
        ],
    ),
    (
        "attempts/protocol.py",
        [
            ("P13", "self.perform(self.admission.refreshed(admissible))", "self.perform(admissible)",
             (BREAKING + "test_a_whole_other_run_between_preflight_and_admission_is_no_foreign_change",)),
            ("P13", "        except BaseException as error:\n            if self._attempt is None and", "        except Exception as error:\n            if self._attempt is None and",
             (RECOVERY + "test_timeout_raised_as_base_exception_still_cleans_up",)),
        ],
    ),
    (
        "attempts/admission.py",
        [
            ("P1", "        if guard.service_id != self._world.service_id:", "        if False:",
             (BREAKING + "test_a_connection_that_leads_to_another_server_is_refused_before_admission",)),
            ("P9", "            or last.identity.coordinates.max_tries != coordinates.max_tries\n", "", (RECOVERY + "test_cleared_success_copies_anew",)),
            ("P9", "            or last.acknowledged\n", "", (RECOVERY + "test_accepted_success_is_never_reused",)),
            ("P9", "            or last.identity.plan_sha256 != plan_sha256\n", "", (RECOVERY + "test_other_rendered_values_are_never_reused",)),
        ],
    ),
    (
        "attempts/cells/snapshot.py",
        [
            ("P9", "            or publication.intent.generation_uuid != admissible.guard.target_uuid\n", "", (RECOVERY + "test_an_older_runs_publication_is_not_reported_as_current",)),
            ("P16", "        if content != copied.result.content:", "        if False:",
             (BREAKING + "test_a_generation_that_is_not_the_source_is_seen_in_two_independent_ways",)),
            ("P16", "        if difference is not None:", "        if False:",
             (BREAKING + "test_a_generation_that_is_not_the_source_is_seen_in_two_independent_ways",)),
            ("P17", "        if copied.wire_bytes > work.limits.max_wire_bytes:", "        if False:",
             (BREAKING + "test_bytes_on_the_wire_are_checked_at_the_end_with_their_framing",)),
        ],
    ),
    (
        "attempts/cells/retention.py",
        [
            ("P14", "            elif (meant or name in leftovers) and carried not in live:", "            elif meant or name in leftovers:",
             (BREAKING + "test_a_table_that_was_once_live_is_no_leftover_of_a_failed_attempt",)),
            ("P14", "        if str(found) != candidate.uuid:", "        if False:",
             (BREAKING + "test_a_table_put_under_the_name_before_its_removal_is_renamed_back",)),
            ("P14", "or predecessors.get(name) == carried\n", "or name in predecessors\n",
             (RETENTION + "test_foreign_table_under_a_generation_name_is_kept",)),
            ("P14", "        require_target(self.world.target.control, admissible.guard)\n", "",
             (RETENTION + "test_live_table_that_was_exchanged_back_by_hand_is_never_dropped",)),
        ],
    ),
    (
        "enrolment/clickhouse.py",
        [
            ("P1", "        require_marker(fresh, enrolment)\n", "", (ACTIVATION + "test_an_altered_or_removed_marker_stops_the_runtime",)),
            ("P1", "    if found != marker and not (found is None and dry_run):", "    if False:", (ACTIVATION + "test_one_database_has_one_ledger",)),
            ("P14", '    if target_table.startswith("dpone_"):', "    if False:", (BREAKING + "test_names_of_our_own_tables_cannot_be_enrolled",)),
            ("P13", '        control.command(f"DROP TABLE IF EXISTS {table(database, generation)} SYNC")\n', "",
             ("tests/integration/test_snapshot.py::test_a_table_the_server_did_not_keep_as_told_is_dropped_at_once",)),
            ("P13", "    if facts.uuid != guard.target_uuid:", "    if False:", (RETENTION + "test_live_table_that_was_exchanged_back_by_hand_is_never_dropped",)),
        ],
    ),
    (
        "activation/physical.py",
        [
            ("P1", "                elif other is not declaration:", "                elif False:",
             (HANDOVER + "test_a_refusal_changes_nothing[alias of a database]",)),
            ("P1", "            if self.backend.same_place(one, other) != claimed:", "            if False:",
             (HANDOVER + "test_a_refusal_changes_nothing[two claim to be one]",)),
            ("P1", "    if place.ledger_service_id is not None and place.ledger_service_id != ledger_service_id:", "    if False:",
             (HANDOVER + "test_a_database_of_another_ledger_is_refused",)),
        ],
    ),
    (
        "activation/coordinator.py",
        [
            ("P11", "        if (current.request.deployment_id if current else None) != previous_deployment_id:", "        if False:",
             (HANDOVER + "test_a_refusal_changes_nothing[stale compare-and-swap]",)),
            ("P11", "        if preparation.physical.seal(plan, environment) != deployment:", "        if False:",
             (HANDOVER + "test_a_refusal_changes_nothing[stale context]",)),
            ("P11", "        if found.request != given.request or found.epochs != given.epochs:", "        if False:",
             (HANDOVER + "test_a_stale_epoch_acknowledges_nothing",)),
        ],
    ),
    (
        "activation/cache.py",
        [
            ("P11", "    if not isinstance(receipt, StoredActivation):", "    if False:",
             (HANDOVER + "test_only_the_typed_receipt_of_this_activation_acknowledges[native]",)),
            ("P11", "            if (active.request, active.epochs) != (prepared.request, prepared.epochs):", "            if False:",
             (HANDOVER + "test_only_the_typed_receipt_of_this_activation_acknowledges[epochs]",)),
            ("P11", "    if loaded != expected:", "    if False:", (HANDOVER + "test_a_dag_that_does_not_load_is_no_release",)),
        ],
    ),
    (
        "releases/sources.py",
        [
            ("P11", "        if digest_of(original) != expected_release_id:", "        if False:",
             ("tests/unit/test_releases.py::test_a_release_that_lists_its_own_forgery_is_still_another_release",)),
            ("P11", "        if missing or foreign or altered:", "        if missing or foreign:",
             ("tests/unit/test_releases.py::test_one_byte_or_one_file_more_or_less_is_refused",)),
            ("P11", "            if files.get(at) != builder.build(declaration, outlet_binding=\"logical\").wire():", "            if at not in files:",
             ("tests/unit/test_releases.py::test_a_release_that_lists_its_own_forgery_is_still_another_release",)),
        ],
    ),
    (
        "ledger/activations.py",
        [
            ("P10", "            tx.audit()\n", "", (HANDOVER + "test_an_audit_that_finds_something_stops_the_activation",)),
        ],
    ),
    (
        "transfer/values.py",
        [
            ("P16", "        if greatest is None or greatest < 1.5 * 10.0 ** (target.precision - target.scale):", "        if True:",
             ("tests/unit/test_transfer_convert.py::test_decimal_text_is_kept_to_the_last_digit_or_refused",)),
            ("P16", '    if bounds["min"] is not None and (bounds["min"] < low or bounds["max"] > high):', "    if False:",
             ("tests/unit/test_transfer_convert.py::test_whole_numbers_are_kept_or_refused",)),
        ],
    ),
    (
        "transfer/meter.py",
        [
            ("P17", '        _check("source_bytes", self.source_bytes, self.limits.max_source_bytes)\n', "",
             ("tests/unit/test_transfer_stream.py::test_a_ceiling_on_the_stream_stops_it_in_the_middle",)),
            ("P17", "    if value is None or value < 0:", "    if value is None:\n        return 0\n    if value < 0:",
             ("tests/unit/test_transfer_stream.py::test_a_storage_number_that_cannot_be_read_stops_the_stream",)),
        ],
    ),
    (
        "engines/postgres/install.sql",
        [
            ("P4", "    FOR SHARE NOWAIT;\n  IF NOT FOUND THEN\n    RAISE EXCEPTION USING ERRCODE = '28000'",
             ";\n  IF NOT FOUND THEN\n    RAISE EXCEPTION USING ERRCODE = '28000'",
             (PG_GATE + "test_login_inside_its_trigger_is_seen_and_ended_before_anything_is_called_closed",
              PG_GATE + "test_locked_gate_row_refuses_logins_at_once_and_leaves_others_alone")),
            ("P4", "      AND g.role_oid = pg_catalog.quote_ident(session_user::text)::pg_catalog.regrole::oid\n", "",
             (PG_GATE + "test_role_made_anew_under_the_name_blocks_closing",)),
            ("P4", "WHERE g.name = session_user AND g.state = 2\n      AND g.role_oid", "WHERE g.name = session_user\n      AND g.role_oid",
             (PG_GATE + "test_login_is_refused_until_the_gate_is_ready",)),
            ("P2", "CREATE UNIQUE INDEX gate_one_worker ON", "CREATE INDEX gate_one_worker ON",
             (PG_GATE + "test_second_login_of_an_attempt_is_refused_also_after_the_first_was_closed",)),
            ("P5", "  PERFORM dpone_gate.fence(conclude.guard, conclude.epoch, conclude.attempt, true);\n", "",
             (LOAD + "test_worker_whose_gate_was_closed_is_refused_by_the_fence_in_its_transaction",)),
            ("P10", "RAISE EXCEPTION USING ERRCODE = 'DP002', MESSAGE = 'gate_transition';", "NULL;",
             (PG_GATE + "test_gate_never_goes_back",)),
            ("P1", "RAISE EXCEPTION USING ERRCODE = 'DP002', MESSAGE = 'gate_stale_epoch';", "NULL;",
             (PG_GATE + "test_older_epoch_gets_no_login_in_the_target_either",)),
        ],
    ),
    (
        "engines/postgres/closing.py",
        [
            ("P6", "            if prepared:\n", "            if False:\n",
             (PG_GATE + "test_prepared_transaction_blocks_closing_until_an_administrator_ends_it",)),
            ("P6", "            if not (sessions or prepared or unattributed):", "            if True:",
             (PG_GATE + "test_running_command_and_open_transaction_end_without_effect",
              PG_GATE + "test_prepared_transaction_blocks_closing_until_an_administrator_ends_it")),
            ("P6", "                if role[1] != \"false\":", "                if False:",
             (PG_GATE + "test_login_enabled_again_by_hand_is_still_refused_and_is_no_closing",)),
            ("P6", "        if found != row.role_oid:", "        if False:",
             (PG_GATE + "test_role_made_anew_under_the_name_blocks_closing",)),
            ("P11", "        if layout(session) != self._enrolment.gate_layout:", "        if False:",
             (PG_GATE + "test_altered_barrier_refuses_issuing_and_proves_no_closing",)),
        ],
    ),
    (
        "engines/postgres/gate.py",
        [
            ("P3", "PASSWORD {literal(session.scrambled(password.text, name))}", "PASSWORD {literal(password.text)}",
             (PG_GATE + "test_password_never_reaches_the_server",)),
        ],
    ),
    (
        "engines/sql/closing.py",
        [("P6", "                self._end_sessions(session)\n", "",
          (PG_GATE + "test_long_transaction_that_holds_the_fence_does_not_hold_the_closer",))],
    ),
    (
        "engines/sql/gate.py",
        [("P4", "            self._bring_up(name, incarnation, password, rights)\n            self._checkpoint()\n            self._open(name)\n",
          "            self._create(name, incarnation, password, rights)\n            self._open(name)\n"
          "            self._journal.ready(name=name, principal_uuid=incarnation)\n",
          (PG_GATE + "test_login_is_refused_until_the_gate_is_ready", PG_GATE + "test_lost_answer_of_opening_gives_no_password_out_and_closes"))],
    ),
    (
        "engines/postgres/load_writer.py",
        [
            ("P16", "        if inserted != record.content.rows:", "        if False:",
             (LOAD + "test_staging_table_that_lost_its_rows_is_not_swapped_in",)),
            ("P11", "if describe_target(session, table.schema, table.name, table.features) != table:", "if False:",
             (LOAD + "test_target_altered_after_planning_is_refused_inside_the_transaction",)),
            ("P15", 'session.query(f"DELETE FROM {relation}")', 'session.query(f"TRUNCATE {relation}")',
             (LOAD + "test_readers_see_no_error_no_wait_no_empty_and_no_mixed_table",)),
        ],
    ),
    (
        "engines/postgres/staging.py",
        [("P16", "            if not is_changed:\n", "            if True:\n",
          (LOAD + "test_value_that_does_not_fit_is_refused_and_the_target_keeps_its_rows",))],
    ),
    (
        "attempts/sql.py",
        [
            ("P9", "        if now == before:\n", "        if True:\n",
             (LOAD + "test_rows_committed_without_a_receipt_are_unknown_and_hold_the_guard",)),
            ("P9", "self._unchanged(loads, before) if found is None else", "self._unchanged(loads, before) if True else",
             (LOAD + "test_lost_commit_answer_is_decided_by_the_receipt_committed",)),
        ],
    ),
    (
        "attempts/cells/load.py",
        [
            ("P16", "        if content != streamed:", "        if False:",
             (LOAD + "test_staging_table_that_differs_from_the_stream_is_refused",)),
            ("P16", "        if difference is not None:", "        if False:",
             (LOAD + "test_aggregates_alone_would_refuse_too",)),
            ("P9", "        if not plan.loads.still_carries(self._name, found, receipt.rows):", "        if False:",
             (LOAD + "test_retry_reuses_the_load_only_while_the_target_holds_exactly_it",)),
        ],
    ),
    (
        "engines/dbt/verdict.py",
        [
            ("P9", "    gone = sorted({*seen.missing, *seen.lost})", "    gone = sorted(seen.lost)", (DBT_VERDICT,)),
            ("P9", "    broken_off = DbtTargetUnexpected if seen.lost else DbtInterrupted", "    broken_off = DbtInterrupted", (DBT_VERDICT,)),
            ("P9", "    if run.exit_code != 0 or silent or foreign:", "    if silent:", (DBT_VERDICT,)),
            ("P9", "    if seen.leftovers:\n        return DbtTargetUnexpected(", "    if False:\n        return DbtTargetUnexpected(", (DBT_VERDICT,)),
        ],
    ),
    (
        "engines/dbt/relations.py",
        [
            ("P13", '(node["database"], node["schema"]) != (database, schema)', '(node["database"], node["schema"]) != (database, node["schema"])', (DBT_RELATIONS,)),
            ("P13", "        if other is not relation:", "        if False:", (DBT_RELATIONS,)),
            ("P13", "    problems += [f\"macro {macro} changes the names of helper relations\" for macro in naming]\n", "", (DBT_RELATIONS,)),
        ],
    ),
    (
        "engines/dbt/process.py",
        [
            ("P3", "        return {**further, **ours, **own}", "        return {**os.environ, **further, **ours, **own}", (DBT_RUNNER,)),
            ("P3", "        self._redact.hide(password)\n", "", (DBT_RUNNER + "::test_a_password_that_dbt_would_print_is_replaced",)),
        ],
    ),
    (
        "engines/dbt/child.py",
        [("P5", "    die_with(parent)\n", "",
          (DBT_RUNNER + "::test_dbt_dies_with_a_killed_task_even_if_somebody_keeps_its_input_open",))],
    ),
    (
        "engines/dbt/tidy.py",
        [("P15", "        if name.endswith(_BACKUP) and target is not None and target not in relations:", "        if False:",
          (DBT + "test_a_killed_task_takes_dbt_along_and_the_next_try_puts_the_schema_in_order",))],
    ),
    (
        "engines/dbt/workspace.py",
        [("P3", "        self._usable = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)", "        self._usable = True", (DBT_RUNNER,))],
    ),
    (
        "operators/base.py",
        [("P13", "            if error.retryable or self._stop.is_set():", "            if error.retryable:",
          ("tests/unit/test_operator_errors.py",))],
    ),
    (
        "contracts/authority.py",
        [
            ('P11', '            raise GrantRefused("the signature does not fit the bytes of the grant", reason="signature") from error', '            pass', (AUTHORITY + "[nothing_is_registered_outside_its_conditions]",)),
            ('P11', '        if signer is None or grant.phase not in signer.phases:', '        if signer is None:', (AUTHORITY + "[nothing_is_registered_outside_its_conditions]",)),
            ('P13', '        if above or len(grant.workloads) > policy.max_workloads:', '        if False:', (AUTHORITY + "[ceilings_are_kept_and_nothing_is_half_stored]",)),
            ('P11', '        if grant.trust_sha256 != policy.digest():', '        if False:', (AUTHORITY + "[history_stays_readable_and_authorises_nothing]",)),
            ('P11', '        if grant.revocation_epoch < policy.revocation_epoch:', '        if False:', (AUTHORITY + "[history_stays_readable_and_authorises_nothing]",)),
            ('P11', '        return "usable" if now < moment(grant.not_after) else "expired"', '        return "usable"', (AUTHORITY + "[history_stays_readable_and_authorises_nothing]",)),
        ],
    ),
    (
        "ledger/authority.py",
        [
            ('P11', '            if (None if current is None else current.digest()) != policy.previous_sha256:', '            if False:', (AUTHORITY + "[a_policy_that_came_and_went_and_came_again_is_another]",)),
            ('P2', '                if known[0].signed != signed:', '                if False:', (AUTHORITY + "[an_execution_grant_is_bound_once_and_may_be_repeated]",)),
            ('P1', '    return None if used < signed.grant.ceilings.max_attempts else "attempts_used_up"', '    return None', (AUTHORITY + "[concurrent_executions_never_pass_a_ceiling]",)),
            ('P11', '    if workload.digest() not in memberships_in(connection, signed.grant):', '    if False:', (AUTHORITY + "[altered_memberships_are_found_and_admit_nothing]",)),
            ('P13', '        if len(known) + len(new) > policy.max_workloads:', '        if False:', (AUTHORITY + "[concurrent_executions_never_pass_a_ceiling]",)),
            ('P17', '            if isinstance(limit, int) and limit > allowed:', '            if False:', (AUTHORITY_CLI + "test_a_grant_above_what_its_workload_declares_or_the_policy_allows_is_refused",)),
        ],
    ),
    (
        "ledger/authority_log.py",
        [
            ("P11", "    tx.verify()\n    found = policy_of(tx.connection, environment)\n    tx.verify()\n", "    found = policy_of(tx.connection, environment)\n", (AUTHORITY + "[trust_decides_only_in_the_transaction_that_holds_the_lock]",)),
            ('P11', 'or _members(document) != _columns(row)', '', (AUTHORITY + "[altered_memberships_are_found_and_admit_nothing]",)),
        ],
    ),
    (
        "ledger/transaction.py",
        [
            ('P11', '        if not identity.endswith("/Exclusive"):', '        if False:', (AUTHORITY + "[trust_decides_only_in_the_transaction_that_holds_the_lock]",)),
            ('P9', '        elif lost is not None:', '        elif False:', (AUTHORITY + "[a_read_that_could_not_be_finished_returns_nothing]",)),
        ],
    ),
    (
        "ledger/attempts.py",
        [
            ('P13', '            admission = admit_under_grant(tx, identity, environment, self._clock())', '            admission = None', (AUTHORITY_CLI + "test_without_a_grant_nothing_is_reserved_and_with_one_it_runs",)),
        ],
    ),
    (
        "ledger/dialects/postgres/authority.sql",
        [
            ('P10', "    IF NEW.epoch < COALESCE(last_epoch, 0) THEN PERFORM dpone.refuse('authority_revocation_epoch'); END IF;", '', (AUTHORITY + "[the_database_takes_no_invalid_row]",)),
            ('P10', "      PERFORM dpone.refuse('authority_one_policy');", '      NULL;', (AUTHORITY + "[the_database_takes_no_invalid_row]",)),
            ('P10', "    PERFORM dpone.refuse('authority_document');", '    NULL;', (AUTHORITY + "[a_grant_cannot_be_changed_or_written_past_the_store]",)),
            ('P11', "  IF NEW.revision IS DISTINCT FROM last_revision THEN PERFORM dpone.refuse('authority_trust_moved'); END IF;", '', (AUTHORITY + "[a_grant_cannot_be_changed_or_written_past_the_store]",)),
            ('P13', "      PERFORM dpone.refuse('authority_membership_ceiling');", '      NULL;', (AUTHORITY + "[ceilings_are_kept_and_nothing_is_half_stored]",)),
        ],
    ),
]  # fmt: skip
