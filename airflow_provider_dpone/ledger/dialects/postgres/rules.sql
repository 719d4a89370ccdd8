-- Rules of the ledger, enforced by the database whatever a client does. A refusal carries SQLSTATE DP001 and the name
-- of the rule as its message. States are codes: activation 1 PREPARED 2 ACTIVE 3 RETIRING 4 RETIRED; attempt 1 RUNNING
-- 2 SUCCEEDED 3 FAILED 4 COMMIT_UNKNOWN; gate 1 JOURNALED 2 READY 3 CLOSING 4 CLOSED; dispatch 1 CLAIMED 2 ANSWERED
-- 3 SETTLED; publication 1 PREPARED 2 EXCHANGE_INTENT 3 PUBLISHED 4 NOT_PUBLISHED 5 COMMIT_UNKNOWN.

CREATE FUNCTION dpone.refuse(rule text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'DP001', MESSAGE = rule;
END $$;

-- Every write happens under the one transaction-owned ledger lock.
CREATE FUNCTION dpone.require_lock() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.pid = pg_catalog.pg_backend_pid() AND l.granted
      AND l.mode = 'ExclusiveLock' AND l.classid = 1685090149 AND l.objid = 1 AND l.objsubid = 2
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
  ) THEN
    PERFORM dpone.refuse('ledger_lock');
  END IF;
END $$;

-- The attempt may still act: RUNNING, not fenced, every guard open under its exact epoch and owner.
CREATE FUNCTION dpone.require_acting(acting bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM dpone.attempt AS a WHERE a.attempt_sha256 = acting AND a.state = 1) THEN
    PERFORM dpone.refuse('attempt_not_running');
  END IF;
  IF EXISTS (SELECT 1 FROM dpone.attempt AS a WHERE a.attempt_sha256 = acting AND a.fenced) THEN
    PERFORM dpone.refuse('attempt_fenced');
  END IF;
  IF NOT EXISTS (SELECT 1 FROM dpone.attempt_guard AS g WHERE g.attempt_sha256 = acting)
     OR EXISTS (
       SELECT 1 FROM dpone.attempt_guard AS g JOIN dpone.guard AS d ON d.guard_id = g.guard_id
       WHERE g.attempt_sha256 = acting
         AND (NOT g.is_open OR d.epoch <> g.epoch OR d.owner_sha256 IS DISTINCT FROM g.activation_sha256)) THEN
    PERFORM dpone.refuse('guards_not_open');
  END IF;
END $$;

-- Kinds: 1 enrolment 10 adjudication 29 established outside 30 adoption: only the owner of the ledger (an administrator)
-- signs one off. Kinds 22 to 25 belong to the authority log: who may write that records these, who runs attempts records
-- the others. What an attempt itself finds (3 generation 4 intent 12 aggregates 15 load 16 baseline 17, 18 of dbt
-- 26 admission) is taken only while it may act; what settling writes always is.
CREATE FUNCTION dpone.evidence_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP <> 'INSERT' THEN
    PERFORM dpone.refuse('evidence_append_only');
  END IF;
  IF NEW.kind IN (1, 10, 29, 30) AND NOT pg_catalog.pg_has_role(
      current_user, (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = TG_RELID), 'USAGE') THEN
    PERFORM dpone.refuse('evidence_administrator');
  END IF;
  IF NOT pg_catalog.has_table_privilege(
      current_user, CASE WHEN NEW.kind BETWEEN 22 AND 25 THEN 'dpone.authority_log' ELSE 'dpone.attempt' END, 'INSERT') THEN
    PERFORM dpone.refuse('evidence_authority');
  END IF;
  IF NEW.kind IN (3, 4, 12, 15, 16, 17, 18, 26) AND EXISTS (
    SELECT 1 FROM dpone.attempt AS a WHERE a.attempt_sha256 = NEW.subject AND (a.fenced OR a.state <> 1)) THEN
    PERFORM dpone.refuse('evidence_not_acting');
  END IF;
  RETURN NEW;
END $$;

-- One row for good; an administrator moves it to the database that is the ledger from now on, by a recorded adoption.
CREATE FUNCTION dpone.ledger_meta_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP = 'INSERT' THEN
    RETURN NEW;
  END IF;
  IF TG_OP = 'DELETE' OR (NEW.one, NEW.schema_version, NEW.service_id, NEW.family, NEW.layout_sha256)
     IS DISTINCT FROM (OLD.one, OLD.schema_version, OLD.service_id, OLD.family, OLD.layout_sha256) THEN
    PERFORM dpone.refuse('ledger_meta_append_only');
  END IF;
  IF NOT EXISTS (
    SELECT 1 FROM dpone.evidence AS e
    WHERE e.kind = 30 AND e.subject = pg_catalog.sha256(pg_catalog.convert_to(NEW.incarnation, 'UTF8'))
      AND dpone.document(e.document) @> pg_catalog.jsonb_build_object(
        'service_id', OLD.service_id, 'before', OLD.incarnation, 'after', NEW.incarnation)) THEN
    PERFORM dpone.refuse('ledger_meta_adoption');
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION dpone.of_this_family(raw bytea) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM dpone.ledger_meta AS m WHERE m.family = dpone.document(raw) ->> 'family')
$$;

CREATE FUNCTION dpone.activation_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP = 'DELETE' THEN
    PERFORM dpone.refuse('activation_append_only');
  ELSIF TG_OP = 'INSERT' THEN
    IF NEW.state <> 1 THEN PERFORM dpone.refuse('activation_born_prepared'); END IF;
    IF NOT dpone.of_this_family(NEW.document) THEN PERFORM dpone.refuse('family'); END IF;
    RETURN NEW;
  END IF;
  IF (NEW.activation_sha256, NEW.occurrence_id, NEW.environment, NEW.document, NEW.release_sha256, NEW.recorded_at)
     IS DISTINCT FROM
     (OLD.activation_sha256, OLD.occurrence_id, OLD.environment, OLD.document, OLD.release_sha256, OLD.recorded_at) THEN
    PERFORM dpone.refuse('activation_immutable');
  END IF;
  IF NEW.state <> OLD.state + 1 AND NOT (OLD.state = 1 AND NEW.state = 4) THEN
    PERFORM dpone.refuse('activation_transition');
  END IF;
  IF NEW.state = 4 AND (
    EXISTS (SELECT 1 FROM dpone.attempt AS a WHERE a.activation_sha256 = OLD.activation_sha256 AND a.state IN (1, 4))
    OR EXISTS (
      SELECT 1 FROM dpone.attempt AS a JOIN dpone.principal AS p ON p.attempt_sha256 = a.attempt_sha256
      WHERE a.activation_sha256 = OLD.activation_sha256 AND p.state <> 4)) THEN
    PERFORM dpone.refuse('activation_unresolved');
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION dpone.guard_rule() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  held boolean;
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP = 'DELETE' THEN
    PERFORM dpone.refuse('guard_append_only');
  ELSIF TG_OP = 'INSERT' THEN
    IF NEW.epoch <> 0 OR NEW.admitted <> 0 OR NEW.owner_sha256 IS NOT NULL THEN
      PERFORM dpone.refuse('guard_born_free');
    END IF;
    RETURN NEW;
  END IF;
  IF (NEW.guard_id, NEW.connector, NEW.service_id, NEW.subject) IS DISTINCT FROM
     (OLD.guard_id, OLD.connector, OLD.service_id, OLD.subject) THEN
    PERFORM dpone.refuse('guard_immutable');
  END IF;
  held := EXISTS (SELECT 1 FROM dpone.attempt_guard AS g WHERE g.guard_id = OLD.guard_id AND g.is_open);
  -- the next admission is counted once the last one that was counted is there
  IF NEW.admitted <> OLD.admitted AND (NEW.admitted <> OLD.admitted + 1 OR held OR OLD.admitted > 0 AND NOT EXISTS (
    SELECT 1 FROM dpone.attempt_guard AS g WHERE g.guard_id = OLD.guard_id AND g.ordinal = OLD.admitted)) THEN
    PERFORM dpone.refuse(CASE WHEN held THEN 'uq_attempt_guard_open' ELSE 'guard_admitted' END);
  END IF;
  IF NEW.enrolment_sha256 IS DISTINCT FROM OLD.enrolment_sha256 AND held THEN
    PERFORM dpone.refuse('guard_held');
  END IF;
  IF NEW.target_uuid IS DISTINCT FROM OLD.target_uuid AND NEW.enrolment_sha256 = OLD.enrolment_sha256
     AND NOT EXISTS (
       SELECT 1 FROM dpone.publication AS p
       WHERE p.guard_id = OLD.guard_id AND p.state = 3 AND p.generation_uuid = NEW.target_uuid
         AND p.old_target_uuid = OLD.target_uuid) THEN
    PERFORM dpone.refuse('guard_target');
  END IF;
  IF NEW.owner_sha256 IS NOT DISTINCT FROM OLD.owner_sha256 THEN
    IF NEW.epoch <> OLD.epoch THEN PERFORM dpone.refuse('guard_epoch'); END IF;
  ELSIF OLD.owner_sha256 IS NULL THEN
    IF NEW.epoch <> OLD.epoch + 1
       OR NOT EXISTS (SELECT 1 FROM dpone.activation AS a WHERE a.activation_sha256 = NEW.owner_sha256 AND a.state = 1) THEN
      PERFORM dpone.refuse('guard_take');
    END IF;
  ELSE
    IF NEW.owner_sha256 IS NOT NULL OR NEW.epoch <> OLD.epoch OR held
       OR NOT EXISTS (SELECT 1 FROM dpone.activation AS a WHERE a.activation_sha256 = OLD.owner_sha256 AND a.state = 4) THEN
      PERFORM dpone.refuse('guard_release');
    END IF;
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION dpone.activation_guard_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP <> 'INSERT' THEN
    PERFORM dpone.refuse('activation_guard_append_only');
  END IF;
  IF NOT EXISTS (
    SELECT 1 FROM dpone.guard AS g JOIN dpone.activation AS a ON a.activation_sha256 = g.owner_sha256
    WHERE g.guard_id = NEW.guard_id AND g.epoch = NEW.epoch AND g.owner_sha256 = NEW.activation_sha256 AND a.state = 1) THEN
    PERFORM dpone.refuse('activation_guard_epoch');
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION dpone.attempt_rule() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  refusal text;
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP = 'DELETE' THEN
    PERFORM dpone.refuse('attempt_append_only');
  ELSIF TG_OP = 'INSERT' THEN
    IF NEW.state <> 1 OR NEW.fenced OR NEW.acknowledged OR NEW.closed_sha256 IS NOT NULL
       OR NEW.quiescence_sha256 IS NOT NULL OR NEW.outcome_sha256 IS NOT NULL THEN
      PERFORM dpone.refuse('attempt_born_running');
    END IF;
    IF NOT EXISTS (
      SELECT 1 FROM dpone.activation AS a WHERE a.activation_sha256 = NEW.activation_sha256 AND a.state = 2) THEN
      PERFORM dpone.refuse('activation_not_active');
    END IF;
    IF NOT dpone.of_this_family(NEW.document) THEN PERFORM dpone.refuse('family'); END IF;
    RETURN NEW;
  END IF;
  IF (NEW.attempt_sha256, NEW.activation_sha256, NEW.scheduler_key, NEW.document, NEW.workload_id, NEW.dag_id,
      NEW.run_id, NEW.task_id, NEW.map_index, NEW.try_number, NEW.task_instance_id, NEW.admitted_at)
     IS DISTINCT FROM
     (OLD.attempt_sha256, OLD.activation_sha256, OLD.scheduler_key, OLD.document, OLD.workload_id, OLD.dag_id,
      OLD.run_id, OLD.task_id, OLD.map_index, OLD.try_number, OLD.task_instance_id, OLD.admitted_at)
     OR (OLD.fenced AND NOT NEW.fenced) OR (OLD.acknowledged AND NOT NEW.acknowledged) THEN
    PERFORM dpone.refuse('attempt_immutable');
  END IF;
  -- each flag has its original: kind 27 a fence, 28 an acknowledgement
  IF NEW.fenced AND NOT OLD.fenced AND (OLD.state IN (2, 3) OR NOT EXISTS (
       SELECT 1 FROM dpone.evidence AS e WHERE e.subject = OLD.attempt_sha256 AND e.kind = 27))
     OR NEW.acknowledged AND NOT OLD.acknowledged AND (OLD.state <> 2 OR NOT EXISTS (
       SELECT 1 FROM dpone.evidence AS e WHERE e.subject = OLD.attempt_sha256 AND e.kind = 28)) THEN
    PERFORM dpone.refuse('attempt_mark');
  END IF;
  IF NEW.state = OLD.state THEN
    IF (NEW.closed_sha256, NEW.quiescence_sha256, NEW.outcome_sha256)
       IS DISTINCT FROM (OLD.closed_sha256, OLD.quiescence_sha256, OLD.outcome_sha256) THEN
      PERFORM dpone.refuse('attempt_proofs');
    END IF;
    RETURN NEW;
  END IF;
  IF NOT ((OLD.state = 1 AND NEW.state IN (2, 3, 4)) OR (OLD.state = 4 AND NEW.state IN (2, 3))) THEN
    PERFORM dpone.refuse('attempt_transition');
  END IF;
  IF NEW.state = 4 AND (NEW.closed_sha256 IS NOT NULL OR NEW.quiescence_sha256 IS NOT NULL)
     OR NOT dpone.proof_binds(NEW.outcome_sha256, OLD.attempt_sha256, 'outcome', NEW.state) THEN
    PERFORM dpone.refuse('attempt_proofs');
  END IF;
  refusal := dpone.outcome_refusal(NEW.outcome_sha256, OLD.attempt_sha256, OLD.state, NEW.state);
  IF refusal IS NOT NULL THEN
    PERFORM dpone.refuse(refusal);
  END IF;
  IF NEW.state IN (2, 3) THEN
    IF EXISTS (SELECT 1 FROM dpone.principal AS p WHERE p.attempt_sha256 = OLD.attempt_sha256 AND p.state <> 4)
       OR EXISTS (SELECT 1 FROM dpone.dispatch AS d WHERE d.attempt_sha256 = OLD.attempt_sha256 AND d.state = 1) THEN
      PERFORM dpone.refuse('attempt_open_gates');
    END IF;
    IF NOT dpone.proof_binds(NEW.closed_sha256, OLD.attempt_sha256, 'closed_gates', NULL)
       OR NOT dpone.proof_binds(NEW.quiescence_sha256, OLD.attempt_sha256, 'quiescence', NULL) THEN
      PERFORM dpone.refuse('attempt_proofs');
    END IF;
    IF EXISTS (
      SELECT 1 FROM dpone.publication AS p WHERE p.attempt_sha256 = OLD.attempt_sha256
        AND p.state <> CASE NEW.state WHEN 2 THEN 3 ELSE 4 END
        AND NOT (OLD.state = 4 AND p.state NOT IN (3, 4) AND EXISTS (
          SELECT 1 FROM dpone.evidence AS e WHERE e.subject = OLD.attempt_sha256 AND e.kind = 10))) THEN
      PERFORM dpone.refuse('attempt_publication');
    END IF;
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION dpone.attempt_guard_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP = 'DELETE' THEN
    PERFORM dpone.refuse('attempt_guard_append_only');
  ELSIF TG_OP = 'INSERT' THEN
    IF NOT NEW.is_open OR NOT EXISTS (
      SELECT 1 FROM dpone.guard AS g
      WHERE g.guard_id = NEW.guard_id AND g.epoch = NEW.epoch AND g.owner_sha256 = NEW.activation_sha256
        AND g.admitted = NEW.ordinal)
       OR NOT EXISTS (SELECT 1 FROM dpone.attempt AS a WHERE a.attempt_sha256 = NEW.attempt_sha256 AND a.state = 1) THEN
      PERFORM dpone.refuse('attempt_guard_epoch');
    END IF;
    RETURN NEW;
  END IF;
  IF (NEW.attempt_sha256, NEW.activation_sha256, NEW.guard_id, NEW.epoch, NEW.ordinal)
     IS DISTINCT FROM (OLD.attempt_sha256, OLD.activation_sha256, OLD.guard_id, OLD.epoch, OLD.ordinal)
     OR NOT OLD.is_open OR NEW.is_open
     OR NOT EXISTS (
       SELECT 1 FROM dpone.attempt AS a WHERE a.attempt_sha256 = OLD.attempt_sha256 AND a.state IN (2, 3)) THEN
    PERFORM dpone.refuse('attempt_guard_release');
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION dpone.principal_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP = 'DELETE' THEN
    PERFORM dpone.refuse('principal_append_only');
  ELSIF TG_OP = 'INSERT' THEN
    IF NEW.state <> 1 OR NEW.principal_uuid IS NOT NULL OR NEW.closure_sha256 IS NOT NULL
       OR NEW.quiescence_sha256 IS NOT NULL THEN
      PERFORM dpone.refuse('principal_born_journaled');
    END IF;
    PERFORM dpone.require_acting(NEW.attempt_sha256);
    RETURN NEW;
  END IF;
  IF (NEW.connector, NEW.service_id, NEW.name, NEW.attempt_sha256, NEW.purpose, NEW.journaled_at)
     IS DISTINCT FROM (OLD.connector, OLD.service_id, OLD.name, OLD.attempt_sha256, OLD.purpose, OLD.journaled_at)
     OR (NEW.principal_uuid IS DISTINCT FROM OLD.principal_uuid AND NOT (OLD.state = 1 AND NEW.state = 2))
     OR ((NEW.closure_sha256, NEW.quiescence_sha256) IS DISTINCT FROM (OLD.closure_sha256, OLD.quiescence_sha256)
         AND NOT (OLD.state = 3 AND NEW.state = 4)) THEN
    PERFORM dpone.refuse('principal_immutable');
  END IF;
  IF OLD.state = 1 AND NEW.state = 2 THEN
    IF NEW.principal_uuid IS NULL THEN PERFORM dpone.refuse('principal_uuid'); END IF;
    PERFORM dpone.require_acting(OLD.attempt_sha256);
  ELSIF OLD.state IN (1, 2) AND NEW.state = 3 THEN
    NULL;
  ELSIF OLD.state = 3 AND NEW.state = 4 THEN
    IF (SELECT count(*) FROM dpone.evidence AS e CROSS JOIN LATERAL dpone.document(e.document) AS doc
        WHERE e.subject = OLD.attempt_sha256
          AND (e.evidence_sha256 = NEW.closure_sha256 AND e.kind = 6 OR e.evidence_sha256 = NEW.quiescence_sha256 AND e.kind = 7)
          AND (doc ->> 'connector', doc ->> 'service_id', doc ->> 'name') = (OLD.connector, OLD.service_id, OLD.name)) <> 2
       AND NOT EXISTS (
         SELECT 1 FROM dpone.evidence AS e
         WHERE e.evidence_sha256 = NEW.closure_sha256 AND e.evidence_sha256 = NEW.quiescence_sha256 AND e.kind = 29
           AND e.subject = OLD.attempt_sha256 AND dpone.document(e.document) -> 'principals' ? OLD.name) THEN
      PERFORM dpone.refuse('principal_evidence');
    END IF;
    IF EXISTS (
      SELECT 1 FROM dpone.dispatch AS d
      WHERE d.connector = OLD.connector AND d.service_id = OLD.service_id AND d.principal_name = OLD.name
        AND d.state = 1) THEN
      PERFORM dpone.refuse('principal_open_dispatch');
    END IF;
  ELSE
    PERFORM dpone.refuse('principal_transition');
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION dpone.dispatch_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP = 'DELETE' THEN
    PERFORM dpone.refuse('dispatch_append_only');
  ELSIF TG_OP = 'INSERT' THEN
    IF NEW.state <> 1 OR NEW.note IS NOT NULL THEN PERFORM dpone.refuse('dispatch_born_claimed'); END IF;
    PERFORM dpone.require_acting(NEW.attempt_sha256);
    IF NOT EXISTS (
      SELECT 1 FROM dpone.principal AS p
      WHERE p.connector = NEW.connector AND p.service_id = NEW.service_id AND p.name = NEW.principal_name
        AND p.attempt_sha256 = NEW.attempt_sha256 AND p.state = 2) THEN
      PERFORM dpone.refuse('dispatch_gate_not_ready');
    END IF;
    RETURN NEW;
  END IF;
  IF (NEW.dispatch_id, NEW.attempt_sha256, NEW.connector, NEW.service_id, NEW.principal_name, NEW.kind, NEW.statement,
      NEW.claimed_at)
     IS DISTINCT FROM
     (OLD.dispatch_id, OLD.attempt_sha256, OLD.connector, OLD.service_id, OLD.principal_name, OLD.kind, OLD.statement,
      OLD.claimed_at)
     OR OLD.state <> 1 OR NEW.state NOT IN (2, 3) OR NEW.note IS NULL THEN
    PERFORM dpone.refuse('dispatch_transition');
  END IF;
  IF NEW.state = 3 AND NOT EXISTS (
    SELECT 1 FROM dpone.principal AS p
    WHERE p.connector = OLD.connector AND p.service_id = OLD.service_id AND p.name = OLD.principal_name AND p.state = 3) THEN
    PERFORM dpone.refuse('dispatch_settled_by_closing_only');
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION dpone.publication_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP = 'DELETE' THEN
    PERFORM dpone.refuse('publication_append_only');
  END IF;
  IF NOT EXISTS (
    SELECT 1 FROM dpone.evidence AS e
    WHERE e.evidence_sha256 = NEW.record_sha256 AND e.kind = 5 AND e.subject = NEW.intent_sha256) THEN
    PERFORM dpone.refuse('publication_record');
  END IF;
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 1 OR NEW.revision <> 1 THEN PERFORM dpone.refuse('publication_born_prepared'); END IF;
    PERFORM dpone.require_acting(NEW.attempt_sha256);
    IF NOT EXISTS (
      SELECT 1 FROM dpone.attempt_guard AS g WHERE g.attempt_sha256 = NEW.attempt_sha256 AND g.guard_id = NEW.guard_id) THEN
      PERFORM dpone.refuse('publication_guard');
    END IF;
    RETURN NEW;
  END IF;
  IF (NEW.intent_sha256, NEW.attempt_sha256, NEW.guard_id, NEW.generation_table, NEW.old_target_uuid,
      NEW.generation_uuid, NEW.prepared_at)
     IS DISTINCT FROM
     (OLD.intent_sha256, OLD.attempt_sha256, OLD.guard_id, OLD.generation_table, OLD.old_target_uuid,
      OLD.generation_uuid, OLD.prepared_at) THEN
    PERFORM dpone.refuse('publication_immutable');
  END IF;
  IF NEW.revision <> OLD.revision + 1
     OR NOT ((OLD.state = 1 AND NEW.state IN (2, 4)) OR (OLD.state IN (2, 5) AND NEW.state IN (3, 4, 5))) THEN
    PERFORM dpone.refuse('publication_transition');
  END IF;
  IF NEW.state = 2 THEN
    PERFORM dpone.require_acting(OLD.attempt_sha256);
    IF NOT EXISTS (
      SELECT 1 FROM dpone.principal AS p
      WHERE p.attempt_sha256 = OLD.attempt_sha256 AND p.purpose = 'publisher' AND p.state = 2) THEN
      PERFORM dpone.refuse('publication_gate_not_ready');
    END IF;
  ELSIF EXISTS (
    SELECT 1 FROM dpone.principal AS p
    WHERE p.attempt_sha256 = OLD.attempt_sha256 AND p.purpose = 'publisher' AND p.state <> 4) AND NEW.state IN (3, 4) THEN
    PERFORM dpone.refuse('publication_gate_not_closed');
  END IF;
  RETURN NEW;
END $$;
