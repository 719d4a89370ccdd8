"""Mutations of the rules, audits and identity of the ledger."""

# ruff: noqa: E501 - what is replaced reads better in one line

from __future__ import annotations

from tools.mutations import Rows

TAMPERING = "tests/integration/test_ledger_tampering.py::"
SEEN = TAMPERING + "test_doctor_the_next_activation_and_the_next_admission_see_it"
IDENTITY = "tests/integration/test_ledger_identity.py::"
DEPLOYERS = "tests/integration/test_deployers.py::"
HANDOVER = "tests/integration/test_handover.py::"
LAYOUT = IDENTITY + "test_owners_grants_memberships_and_rules_are_part_of_the_layout"
GONE = IDENTITY + "test_an_attempt_whose_server_is_gone_is_ended_by_a_recorded_word_and_then_decided"

BY_FILE: Rows = [
    (
        "ledger/dialects/postgres/rules.sql",
        [
            (
                "P10",
                "     OR NOT dpone.proof_binds(NEW.outcome_sha256, OLD.attempt_sha256, 'outcome', NEW.state) THEN",
                " THEN",
                (
                    IDENTITY + "test_a_protected_failure_is_never_promoted",
                    IDENTITY + "test_a_proof_over_a_journal_that_grew_since_is_no_proof",
                ),
            ),
            (
                "P9",
                "  refusal := dpone.outcome_refusal(NEW.outcome_sha256, OLD.attempt_sha256, OLD.state, NEW.state);\n",
                "",
                (IDENTITY + "test_success_needs_the_receipt_of_the_work",),
            ),
            (
                "P5",
                "(a.fenced OR a.state <> 1)) THEN\n    PERFORM dpone.refuse('evidence_not_acting')",
                "false) THEN\n    PERFORM dpone.refuse('evidence_not_acting')",
                (IDENTITY + "test_findings_of_an_attempt_that_may_not_act_are_refused",),
            ),
            (
                "P5",
                "(a.fenced OR a.state <> 1)) THEN",
                "a.fenced) THEN",
                (IDENTITY + "test_findings_of_an_attempt_that_may_not_act_are_refused[unknown]",),
            ),
            (
                "P11",
                "SELECT 1 FROM dpone.ledger_meta AS m WHERE m.family = dpone.document(raw) ->> 'family'",
                "SELECT 1 FROM dpone.ledger_meta AS m",
                (IDENTITY + "test_an_identity_of_another_family_is_admitted_by_nobody",),
            ),
            (
                "P11",
                "    PERFORM dpone.refuse('ledger_meta_adoption');",
                "    NULL;",
                (IDENTITY + "test_a_copy_of_the_database_is_no_ledger_until_it_is_adopted_on_record",),
            ),
            ("P10", "  IF NEW.kind IN (1, 10, 29, 30) AND", "  IF NEW.kind IN (1, 10) AND", (GONE,)),
            (
                "P6",
                "          AND (doc ->> 'connector', doc ->> 'service_id', doc ->> 'name') = (OLD.connector, OLD.service_id, OLD.name)) <> 2",
                "          ) <> 2",
                (IDENTITY + "test_a_proof_over_a_journal_that_grew_since_is_no_proof",),
            ),
            (
                "P10",
                "NEW.fenced AND NOT OLD.fenced AND (OLD.state IN (2, 3) OR NOT EXISTS (",
                "NEW.fenced AND NOT OLD.fenced AND (OLD.state IN (2, 3) AND NOT EXISTS (",
                ("tests/integration/test_ledger.py::test_the_database_refuses_every_step_that_is_not_next",),
            ),
        ],
    ),
    (
        "ledger/dialects/postgres/documents.sql",
        [
            (
                "P9",
                "  IF outcome_refusal.state = 2 AND NOT received AND NOT (before = 4 AND decided) THEN RETURN 'outcome_receipt'; END IF;\n",
                "",
                (
                    IDENTITY + "test_success_needs_the_receipt_of_the_work",
                    IDENTITY + "test_an_unknown_attempt_succeeds_only_by_observation_or_decision",
                ),
            ),
            (
                "P9",
                "  IF established AND outcome_refusal.state IN (2, 3) AND NOT (before = 4 AND decided) THEN RETURN 'outcome_decision'; END IF;\n",
                "",
                (GONE,),
            ),
            ("P9", "OR strange <> 0 THEN", "THEN", (IDENTITY + "test_success_needs_the_receipt_of_the_work",)),
            (
                "P10",
                "EXCEPTION WHEN data_exception OR program_limit_exceeded THEN",
                "EXCEPTION WHEN division_by_zero THEN",
                (TAMPERING + "test_altered_bytes_are_named_and_the_rest_is_still_looked_at",),
            ),
        ],
    ),
    (
        "ledger/dialects/postgres/audit_attempts.sql",
        [
            ("P10", "FROM rests AS r WHERE NOT r.stands\n", "FROM rests AS r WHERE false\n", (SEEN,)),
            ("P10", "WHERE t.doc ->> 'kind' = t.wanted AND t.doc IS DISTINCT FROM t.demanded", "WHERE false", (SEEN,)),
            (
                "P10",
                "  OR o.scheduler_key IS DISTINCT FROM",
                "  OR false AND o.scheduler_key IS DISTINCT FROM",
                (SEEN + "[scheduler key changed]",),
            ),
            ("P10", "WHERE o.fenced <> EXISTS", "WHERE false AND o.fenced <> EXISTS", (SEEN + "[fence lifted]",)),
            (
                "P10",
                "   OR o.acknowledged <> EXISTS",
                "   OR false AND o.acknowledged <> EXISTS",
                (SEEN + "[acknowledgement lifted]",),
            ),
            ("P10", "WHERE k.kind = 4 AND NOT EXISTS", "WHERE false AND NOT EXISTS", (SEEN + "[publication deleted]",)),
            ("P10", "  WHERE k.kind = 3 AND k.subject", "  WHERE k.kind <> 99 AND k.subject", (SEEN,)),
        ],
    ),
    (
        "ledger/dialects/postgres/audit.sql",
        [
            (
                "P10",
                "WHERE g.admitted <> (SELECT",
                "WHERE false AND g.admitted <> (SELECT",
                (SEEN + "[attempt and all of it deleted]",),
            ),
            (
                "P10",
                "WHERE g.guard_id <> pg_catalog.sha256(",
                "WHERE false AND g.guard_id <> pg_catalog.sha256(",
                (SEEN + "[guard's subject changed]",),
            ),
            (
                "P10",
                "  AND (g.target_uuid::text IS DISTINCT FROM g.doc ->> 'target_uuid' OR 1 = (",
                "  AND (g.target_uuid::text IS DISTINCT FROM g.doc ->> 'target_uuid' OR 0 = (",
                (SEEN + "[guard's target put back]",),
            ),
            ("P10", "  UNION ALL SELECT r.doc ->> 'deployment_id', 13\n", "", (SEEN + "[deployment deleted]",)),
            (
                "P10",
                "WHERE (r.state = 4) = (g.owner_sha256 IS NOT DISTINCT FROM r.activation_sha256)",
                "WHERE false",
                (SEEN + "[guard freed]",),
            ),
        ],
    ),
    (
        "ledger/dialects/postgres/layout.sql",
        [
            ("P11", "           a.attacl::text) AS line", "           NULL) AS line", (LAYOUT,)),
            ("P11", "           c.relowner::regrole, c.relacl::text)", "           NULL, c.relacl::text)", (LAYOUT,)),
            ("P11", "           c.relowner::regrole, c.relacl::text)", "           c.relowner::regrole)", (LAYOUT,)),
            ("P11", "n.nspowner::regrole, n.nspacl::text)", "n.nspowner::regrole)", (LAYOUT,)),
            ("P11", "p.proowner::regrole, p.proacl::text, p.prosrc", "p.prosrc", (LAYOUT,)),
            ("P11", "m.roleid::regrole, m.member::regrole)", "NULL)", (LAYOUT,)),
            ("P11", "r.ev_class::regclass, r.ev_enabled, pg_catalog.pg_get_ruledef(r.oid))", "NULL)", (LAYOUT,)),
            ("P11", "i.inhparent::regclass, i.inhrelid::regclass)", "NULL) LIMIT 0", (LAYOUT,)),
        ],
    ),
    (
        "ledger/attempts.py",
        [
            (
                "P10",
                "            tx.audit(Audited(guards=",
                "            str(Audited(guards=",
                (SEEN + "[OUTCOME deleted]",),
            ),
            (
                "P11",
                '        require_family(identity.family, tx.family, "an attempt")\n        row',
                "        row",
                (IDENTITY + "test_an_identity_of_another_family_is_admitted_by_nobody",),
            ),
        ],
    ),
    (
        "ledger/activations.py",
        [
            (
                "P12",
                "            tx.audit(Audited(activation=digest_bytes(activation_sha256)))\n",
                "",
                (TAMPERING + "test_retirement_frees_nothing_of_a_tampered_attempt",),
            ),
            (
                "P1",
                "        if set(states) != set(replaced) or",
                "        if",
                (DEPLOYERS + "test_two_deployers_in_every_order_of_their_transactions",),
            ),
            (
                "P1",
                "            if state not in (ActivationState.PREPARED, ActivationState.ACTIVE):",
                "            if False:",
                (DEPLOYERS + "test_two_deployers_in_every_order_of_their_transactions",),
            ),
            (
                "P12",
                "        refuse_unresolved([str(hexed(sha256)) for sha256 in unresolved])\n",
                "",
                (HANDOVER + "test_a_predecessor_is_drained_first_and_epochs_grow",),
            ),
        ],
    ),
    (
        "ledger/schema.py",
        [
            (
                "P1",
                '    "uq_activation_current",\n    activation.c.environment,\n    unique=True,',
                '    "uq_activation_current",\n    activation.c.environment,\n    unique=False,',
                (DEPLOYERS + "test_an_environment_has_one_active_release",),
            ),
        ],
    ),
    (
        "ledger/transaction.py",
        [
            (
                "P11",
                '        if session.here != pins.incarnation and "incarnation" not in self._tolerated:',
                "        if False:",
                (IDENTITY + "test_a_copy_of_the_database_is_no_ledger_until_it_is_adopted_on_record",),
            ),
            (
                "P11",
                "        if self._expected is None and pins.family == Family.PRODUCTION:",
                "        if False:",
                (IDENTITY + "test_a_production_ledger_is_used_only_pinned",),
            ),
            (
                "P11",
                "        if session.legacy:",
                "        if False:",
                (IDENTITY + "test_a_table_of_the_earlier_system_refuses_every_transaction",),
            ),
            (
                "P11",
                "        if self.dialect.reading_id(connection) != identity:",
                "        if False:",
                (IDENTITY + "test_a_read_that_was_given_another_transaction_counts_for_nothing",),
            ),
        ],
    ),
    (
        "operators/reconcile.py",
        [("P9", "    store.fence(stored.sha256)\n    try:", "    try:", (GONE,))],
    ),
]
