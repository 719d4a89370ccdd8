-- Rules of the ledger, enforced by the database whatever a client does. A refusal is error 51000 with the name of the
-- rule as its message. States are codes: activation 1 PREPARED 2 ACTIVE 3 RETIRING 4 RETIRED; attempt 1 RUNNING
-- 2 SUCCEEDED 3 FAILED 4 COMMIT_UNKNOWN; gate 1 JOURNALED 2 READY 3 CLOSING 4 CLOSED; dispatch 1 CLAIMED 2 ANSWERED
-- 3 SETTLED; publication 1 PREPARED 2 EXCHANGE_INTENT 3 PUBLISHED 4 NOT_PUBLISHED 5 COMMIT_UNKNOWN.
-- A changed key shows as a deleted row, so keys never change, and with them no document: a CHECK ties both by hash.

-- Why the attempt may not act, or NULL: it must be RUNNING, not fenced, every guard open under its exact epoch and owner.
CREATE FUNCTION [dpone].[acting_refusal] (@acting binary(32)) RETURNS nvarchar(64) AS
BEGIN
  IF NOT EXISTS (SELECT 1 FROM [dpone].[attempt] AS a WHERE a.attempt_sha256 = @acting AND a.state = 1)
    RETURN N'attempt_not_running';
  IF EXISTS (SELECT 1 FROM [dpone].[attempt] AS a WHERE a.attempt_sha256 = @acting AND a.fenced = 1)
    RETURN N'attempt_fenced';
  IF NOT EXISTS (SELECT 1 FROM [dpone].[attempt_guard] AS g WHERE g.attempt_sha256 = @acting)
     OR EXISTS (
       SELECT 1 FROM [dpone].[attempt_guard] AS g JOIN [dpone].[guard] AS d ON d.guard_id = g.guard_id
       WHERE g.attempt_sha256 = @acting AND (
         g.is_open = 0 OR d.epoch <> g.epoch OR d.owner_sha256 IS NULL OR d.owner_sha256 <> g.activation_sha256))
    RETURN N'guards_not_open';
  RETURN NULL;
END;
GO
CREATE TRIGGER [dpone].[ledger_meta_rule] ON [dpone].[ledger_meta] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d LEFT JOIN inserted AS i ON i.one = d.one
    WHERE i.one IS NULL OR i.schema_version <> d.schema_version OR i.service_id <> d.service_id OR i.family <> d.family
      OR i.layout_sha256 <> d.layout_sha256) THROW 51000, N'ledger_meta_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.one = d.one
    WHERE NOT EXISTS (
      SELECT 1 FROM [dpone].[evidence] AS e
      WHERE e.kind = 30 AND e.subject = [dpone].[sha256]([dpone].[utf8](i.incarnation))
        AND JSON_VALUE([dpone].[document](e.document), '$.service_id') = LOWER(CONVERT(varchar(36), d.service_id))
        AND JSON_VALUE([dpone].[document](e.document), '$.before')
          = [dpone].[utf8](d.incarnation) COLLATE Latin1_General_100_BIN2
        AND JSON_VALUE([dpone].[document](e.document), '$.after')
          = [dpone].[utf8](i.incarnation) COLLATE Latin1_General_100_BIN2))
    THROW 51000, N'ledger_meta_adoption', 1;
END;
GO
-- Kinds: 1 enrolment 10 adjudication 29 established outside 30 adoption: only an owner of the database (an administrator)
-- records one. Kinds 22 to 25 belong to the authority log: who may write that records these, who runs attempts records
-- the others. What an attempt itself finds (3 generation 4 intent 12 aggregates 15 load 16 baseline 17, 18 of dbt
-- 26 admission) is taken only while it may act; what settling writes always is.
CREATE TRIGGER [dpone].[evidence_rule] ON [dpone].[evidence] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (SELECT 1 FROM deleted) THROW 51000, N'evidence_append_only', 1;
  IF EXISTS (SELECT 1 FROM inserted AS i WHERE i.kind IN (1, 10, 29, 30)) AND USER_NAME() <> N'dbo'
     AND ISNULL(IS_ROLEMEMBER(N'db_owner'), 0) <> 1
    THROW 51000, N'evidence_administrator', 1;
  IF EXISTS (SELECT 1 FROM inserted AS i WHERE i.kind BETWEEN 22 AND 25)
     AND ISNULL(HAS_PERMS_BY_NAME(N'[dpone].[authority_log]', N'OBJECT', N'INSERT'), 0) <> 1
     OR EXISTS (SELECT 1 FROM inserted AS i WHERE i.kind NOT BETWEEN 22 AND 25)
     AND ISNULL(HAS_PERMS_BY_NAME(N'[dpone].[attempt]', N'OBJECT', N'INSERT'), 0) <> 1
    THROW 51000, N'evidence_authority', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i JOIN [dpone].[attempt] AS a ON a.attempt_sha256 = i.subject
    WHERE i.kind IN (3, 4, 12, 15, 16, 17, 18, 26) AND (a.fenced = 1 OR a.state <> 1))
    THROW 51000, N'evidence_not_acting', 1;
END;
GO
CREATE TRIGGER [dpone].[activation_rule] ON [dpone].[activation] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d LEFT JOIN inserted AS i ON i.activation_sha256 = d.activation_sha256
    WHERE i.activation_sha256 IS NULL) THROW 51000, N'activation_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.activation_sha256 = i.activation_sha256
    WHERE d.activation_sha256 IS NULL AND i.state <> 1) THROW 51000, N'activation_born_prepared', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i JOIN [dpone].[ledger_meta] AS m ON m.one = 1
    WHERE ISNULL(JSON_VALUE([dpone].[document](i.document), '$.family'), '') <> m.family COLLATE Latin1_General_100_BIN2)
    THROW 51000, N'family', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.activation_sha256 = d.activation_sha256
    WHERE i.occurrence_id <> d.occurrence_id OR i.environment <> d.environment OR i.release_sha256 <> d.release_sha256
      OR i.recorded_at <> d.recorded_at) THROW 51000, N'activation_immutable', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.activation_sha256 = d.activation_sha256
    WHERE i.state <> d.state + 1 AND NOT (d.state = 1 AND i.state = 4)) THROW 51000, N'activation_transition', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i JOIN [dpone].[attempt] AS a ON a.activation_sha256 = i.activation_sha256
    WHERE i.state = 4 AND (a.state IN (1, 4) OR EXISTS (
      SELECT 1 FROM [dpone].[principal] AS p WHERE p.attempt_sha256 = a.attempt_sha256 AND p.state <> 4)))
    THROW 51000, N'activation_unresolved', 1;
END;
GO
CREATE TRIGGER [dpone].[guard_rule] ON [dpone].[guard] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d LEFT JOIN inserted AS i ON i.guard_id = d.guard_id
    WHERE i.guard_id IS NULL) THROW 51000, N'guard_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.guard_id = i.guard_id
    WHERE d.guard_id IS NULL AND (i.epoch <> 0 OR i.admitted <> 0 OR i.owner_sha256 IS NOT NULL)) THROW 51000, N'guard_born_free', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.guard_id = d.guard_id
    WHERE i.connector <> d.connector OR i.service_id <> d.service_id OR i.subject <> d.subject)
    THROW 51000, N'guard_immutable', 1;
  -- the next admission is counted once the last one that was counted is there
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.guard_id = d.guard_id
    JOIN [dpone].[attempt_guard] AS g ON g.guard_id = d.guard_id AND g.is_open = 1
    WHERE i.admitted <> d.admitted) THROW 51000, N'uq_attempt_guard_open', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.guard_id = d.guard_id
    WHERE i.admitted <> d.admitted AND (i.admitted <> d.admitted + 1 OR d.admitted > 0 AND NOT EXISTS (
      SELECT 1 FROM [dpone].[attempt_guard] AS g WHERE g.guard_id = d.guard_id AND g.ordinal = d.admitted)))
    THROW 51000, N'guard_admitted', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.guard_id = d.guard_id
    WHERE i.enrolment_sha256 <> d.enrolment_sha256 AND EXISTS (
      SELECT 1 FROM [dpone].[attempt_guard] AS g WHERE g.guard_id = d.guard_id AND g.is_open = 1))
    THROW 51000, N'guard_held', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.guard_id = d.guard_id
    WHERE EXISTS (SELECT i.target_uuid EXCEPT SELECT d.target_uuid) AND i.enrolment_sha256 = d.enrolment_sha256 AND NOT EXISTS (
      SELECT 1 FROM [dpone].[publication] AS p
      WHERE p.guard_id = d.guard_id AND p.state = 3 AND p.generation_uuid = i.target_uuid
        AND p.old_target_uuid = d.target_uuid)) THROW 51000, N'guard_target', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.guard_id = d.guard_id
    WHERE EXISTS (SELECT i.owner_sha256 INTERSECT SELECT d.owner_sha256) AND i.epoch <> d.epoch)
    THROW 51000, N'guard_epoch', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.guard_id = d.guard_id
    WHERE d.owner_sha256 IS NULL AND i.owner_sha256 IS NOT NULL AND (i.epoch <> d.epoch + 1 OR NOT EXISTS (
      SELECT 1 FROM [dpone].[activation] AS a WHERE a.activation_sha256 = i.owner_sha256 AND a.state = 1)))
    THROW 51000, N'guard_take', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.guard_id = d.guard_id
    WHERE d.owner_sha256 IS NOT NULL AND (i.owner_sha256 IS NULL OR i.owner_sha256 <> d.owner_sha256) AND (
      i.owner_sha256 IS NOT NULL OR i.epoch <> d.epoch
      OR EXISTS (SELECT 1 FROM [dpone].[attempt_guard] AS g WHERE g.guard_id = d.guard_id AND g.is_open = 1)
      OR NOT EXISTS (
        SELECT 1 FROM [dpone].[activation] AS a WHERE a.activation_sha256 = d.owner_sha256 AND a.state = 4)))
    THROW 51000, N'guard_release', 1;
END;
GO
CREATE TRIGGER [dpone].[activation_guard_rule] ON [dpone].[activation_guard] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (SELECT 1 FROM deleted) THROW 51000, N'activation_guard_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE NOT EXISTS (
      SELECT 1 FROM [dpone].[guard] AS g JOIN [dpone].[activation] AS a ON a.activation_sha256 = g.owner_sha256
      WHERE g.guard_id = i.guard_id AND g.epoch = i.epoch AND g.owner_sha256 = i.activation_sha256 AND a.state = 1))
    THROW 51000, N'activation_guard_epoch', 1;
END;
GO
CREATE TRIGGER [dpone].[attempt_rule] ON [dpone].[attempt] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  DECLARE @refusal nvarchar(64);
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d LEFT JOIN inserted AS i ON i.attempt_sha256 = d.attempt_sha256
    WHERE i.attempt_sha256 IS NULL) THROW 51000, N'attempt_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.attempt_sha256 = i.attempt_sha256
    WHERE d.attempt_sha256 IS NULL AND (i.state <> 1 OR i.fenced = 1 OR i.acknowledged = 1 OR i.closed_sha256 IS NOT NULL
      OR i.quiescence_sha256 IS NOT NULL OR i.outcome_sha256 IS NOT NULL)) THROW 51000, N'attempt_born_running', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.attempt_sha256 = i.attempt_sha256
    WHERE d.attempt_sha256 IS NULL AND NOT EXISTS (
      SELECT 1 FROM [dpone].[activation] AS a WHERE a.activation_sha256 = i.activation_sha256 AND a.state = 2))
    THROW 51000, N'activation_not_active', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.attempt_sha256 = i.attempt_sha256
    JOIN [dpone].[ledger_meta] AS m ON m.one = 1
    WHERE d.attempt_sha256 IS NULL
      AND ISNULL(JSON_VALUE([dpone].[document](i.document), '$.family'), '') <> m.family COLLATE Latin1_General_100_BIN2)
    THROW 51000, N'family', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.attempt_sha256 = d.attempt_sha256
    WHERE i.activation_sha256 <> d.activation_sha256 OR i.scheduler_key <> d.scheduler_key
      OR i.workload_id <> d.workload_id OR i.dag_id <> d.dag_id OR i.run_id <> d.run_id OR i.task_id <> d.task_id
      OR i.map_index <> d.map_index OR i.try_number <> d.try_number OR i.task_instance_id <> d.task_instance_id
      OR i.admitted_at <> d.admitted_at OR i.fenced < d.fenced OR i.acknowledged < d.acknowledged)
    THROW 51000, N'attempt_immutable', 1;
  -- each flag has its original: kind 27 a fence, 28 an acknowledgement
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.attempt_sha256 = d.attempt_sha256
    WHERE i.fenced = 1 AND d.fenced = 0 AND (d.state IN (2, 3) OR NOT EXISTS (
        SELECT 1 FROM [dpone].[evidence] AS e WHERE e.subject = d.attempt_sha256 AND e.kind = 27))
      OR i.acknowledged = 1 AND d.acknowledged = 0 AND (d.state <> 2 OR NOT EXISTS (
        SELECT 1 FROM [dpone].[evidence] AS e WHERE e.subject = d.attempt_sha256 AND e.kind = 28)))
    THROW 51000, N'attempt_mark', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.attempt_sha256 = d.attempt_sha256
    WHERE i.state = d.state AND EXISTS (
      SELECT i.closed_sha256, i.quiescence_sha256, i.outcome_sha256
      EXCEPT SELECT d.closed_sha256, d.quiescence_sha256, d.outcome_sha256)) THROW 51000, N'attempt_proofs', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.attempt_sha256 = d.attempt_sha256
    WHERE i.state <> d.state AND NOT (
      (d.state = 1 AND i.state IN (2, 3, 4)) OR (d.state = 4 AND i.state IN (2, 3))))
    THROW 51000, N'attempt_transition', 1;
  SELECT @refusal = MAX([dpone].[ending_refusal](
    d.attempt_sha256, d.state, i.state, i.outcome_sha256, i.closed_sha256, i.quiescence_sha256))
  FROM deleted AS d JOIN inserted AS i ON i.attempt_sha256 = d.attempt_sha256 WHERE i.state <> d.state;
  IF @refusal IS NOT NULL THROW 51000, @refusal, 1;
END;
GO
CREATE TRIGGER [dpone].[attempt_guard_rule] ON [dpone].[attempt_guard] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d
    LEFT JOIN inserted AS i ON i.attempt_sha256 = d.attempt_sha256 AND i.guard_id = d.guard_id
    WHERE i.attempt_sha256 IS NULL) THROW 51000, N'attempt_guard_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    LEFT JOIN deleted AS d ON d.attempt_sha256 = i.attempt_sha256 AND d.guard_id = i.guard_id
    WHERE d.attempt_sha256 IS NULL AND (
      i.is_open = 0
      OR NOT EXISTS (
        SELECT 1 FROM [dpone].[guard] AS g
        WHERE g.guard_id = i.guard_id AND g.epoch = i.epoch AND g.owner_sha256 = i.activation_sha256
          AND g.admitted = i.ordinal)
      OR NOT EXISTS (
        SELECT 1 FROM [dpone].[attempt] AS a WHERE a.attempt_sha256 = i.attempt_sha256 AND a.state = 1)))
    THROW 51000, N'attempt_guard_epoch', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d
    JOIN inserted AS i ON i.attempt_sha256 = d.attempt_sha256 AND i.guard_id = d.guard_id
    WHERE i.activation_sha256 <> d.activation_sha256 OR i.epoch <> d.epoch OR i.ordinal <> d.ordinal OR d.is_open = 0
      OR i.is_open = 1
      OR NOT EXISTS (
        SELECT 1 FROM [dpone].[attempt] AS a WHERE a.attempt_sha256 = d.attempt_sha256 AND a.state IN (2, 3)))
    THROW 51000, N'attempt_guard_release', 1;
END;
GO
CREATE TRIGGER [dpone].[principal_rule] ON [dpone].[principal] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  DECLARE @refusal nvarchar(64);
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d
    LEFT JOIN inserted AS i ON i.connector = d.connector AND i.service_id = d.service_id AND i.name = d.name
    WHERE i.name IS NULL) THROW 51000, N'principal_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    LEFT JOIN deleted AS d ON d.connector = i.connector AND d.service_id = i.service_id AND d.name = i.name
    WHERE d.name IS NULL AND (i.state <> 1 OR i.principal_uuid IS NOT NULL OR i.closure_sha256 IS NOT NULL
      OR i.quiescence_sha256 IS NOT NULL)) THROW 51000, N'principal_born_journaled', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d
    JOIN inserted AS i ON i.connector = d.connector AND i.service_id = d.service_id AND i.name = d.name
    WHERE i.attempt_sha256 <> d.attempt_sha256 OR i.purpose <> d.purpose OR i.journaled_at <> d.journaled_at
      OR EXISTS (SELECT i.principal_uuid EXCEPT SELECT d.principal_uuid) AND NOT (d.state = 1 AND i.state = 2)
      OR EXISTS (SELECT i.closure_sha256, i.quiescence_sha256 EXCEPT SELECT d.closure_sha256, d.quiescence_sha256)
        AND NOT (d.state = 3 AND i.state = 4)) THROW 51000, N'principal_immutable', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d
    JOIN inserted AS i ON i.connector = d.connector AND i.service_id = d.service_id AND i.name = d.name
    WHERE NOT (d.state = 1 AND i.state = 2 OR d.state IN (1, 2) AND i.state = 3 OR d.state = 3 AND i.state = 4))
    THROW 51000, N'principal_transition', 1;
  IF EXISTS (SELECT 1 FROM inserted AS i WHERE i.state = 2 AND i.principal_uuid IS NULL)
    THROW 51000, N'principal_uuid', 1;
  -- a gate is born, or becomes READY, only for an attempt that may act
  SELECT @refusal = MAX([dpone].[acting_refusal](i.attempt_sha256)) FROM inserted AS i WHERE i.state IN (1, 2);
  IF @refusal IS NOT NULL THROW 51000, @refusal, 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE i.state = 4 AND 2 <> (
      SELECT COUNT(*) FROM [dpone].[evidence] AS e
      WHERE e.subject = i.attempt_sha256 AND (
        e.evidence_sha256 = i.closure_sha256 AND e.kind = 6 OR e.evidence_sha256 = i.quiescence_sha256 AND e.kind = 7)
        AND JSON_VALUE([dpone].[document](e.document), '$.connector') = i.connector COLLATE Latin1_General_100_BIN2
        AND JSON_VALUE([dpone].[document](e.document), '$.service_id')
          = [dpone].[utf8](i.service_id) COLLATE Latin1_General_100_BIN2
        AND JSON_VALUE([dpone].[document](e.document), '$.name') = [dpone].[utf8](i.name) COLLATE Latin1_General_100_BIN2)
      AND NOT EXISTS (
        SELECT 1 FROM [dpone].[evidence] AS e
        CROSS APPLY OPENJSON([dpone].[document](e.document), '$.principals') AS m
        WHERE e.evidence_sha256 = i.closure_sha256 AND e.evidence_sha256 = i.quiescence_sha256 AND e.kind = 29
          AND e.subject = i.attempt_sha256 AND m.value = [dpone].[utf8](i.name) COLLATE Latin1_General_100_BIN2))
    THROW 51000, N'principal_evidence', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i JOIN [dpone].[dispatch] AS s
      ON s.connector = i.connector AND s.service_id = i.service_id AND s.principal_name = i.name AND s.state = 1
    WHERE i.state = 4) THROW 51000, N'principal_open_dispatch', 1;
END;
GO
CREATE TRIGGER [dpone].[dispatch_rule] ON [dpone].[dispatch] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  DECLARE @refusal nvarchar(64);
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d LEFT JOIN inserted AS i ON i.dispatch_id = d.dispatch_id
    WHERE i.dispatch_id IS NULL) THROW 51000, N'dispatch_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.dispatch_id = i.dispatch_id
    WHERE d.dispatch_id IS NULL AND (i.state <> 1 OR i.note IS NOT NULL)) THROW 51000, N'dispatch_born_claimed', 1;
  SELECT @refusal = MAX([dpone].[acting_refusal](i.attempt_sha256))
  FROM inserted AS i LEFT JOIN deleted AS d ON d.dispatch_id = i.dispatch_id WHERE d.dispatch_id IS NULL;
  IF @refusal IS NOT NULL THROW 51000, @refusal, 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.dispatch_id = i.dispatch_id
    WHERE d.dispatch_id IS NULL AND NOT EXISTS (
      SELECT 1 FROM [dpone].[principal] AS p
      WHERE p.connector = i.connector AND p.service_id = i.service_id AND p.name = i.principal_name
        AND p.attempt_sha256 = i.attempt_sha256 AND p.state = 2)) THROW 51000, N'dispatch_gate_not_ready', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.dispatch_id = d.dispatch_id
    WHERE i.attempt_sha256 <> d.attempt_sha256 OR i.connector <> d.connector OR i.service_id <> d.service_id
      OR i.principal_name <> d.principal_name OR i.kind <> d.kind OR i.statement <> d.statement
      OR i.claimed_at <> d.claimed_at OR d.state <> 1 OR i.state NOT IN (2, 3) OR i.note IS NULL)
    THROW 51000, N'dispatch_transition', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.dispatch_id = d.dispatch_id
    WHERE i.state = 3 AND NOT EXISTS (
      SELECT 1 FROM [dpone].[principal] AS p
      WHERE p.connector = d.connector AND p.service_id = d.service_id AND p.name = d.principal_name AND p.state = 3))
    THROW 51000, N'dispatch_settled_by_closing_only', 1;
END;
GO
CREATE TRIGGER [dpone].[publication_rule] ON [dpone].[publication] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  DECLARE @refusal nvarchar(64);
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d LEFT JOIN inserted AS i ON i.intent_sha256 = d.intent_sha256
    WHERE i.intent_sha256 IS NULL) THROW 51000, N'publication_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE NOT EXISTS (
      SELECT 1 FROM [dpone].[evidence] AS e
      WHERE e.evidence_sha256 = i.record_sha256 AND e.kind = 5 AND e.subject = i.intent_sha256))
    THROW 51000, N'publication_record', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.intent_sha256 = i.intent_sha256
    WHERE d.intent_sha256 IS NULL AND (i.state <> 1 OR i.revision <> 1))
    THROW 51000, N'publication_born_prepared', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.intent_sha256 = d.intent_sha256
    WHERE i.attempt_sha256 <> d.attempt_sha256 OR i.guard_id <> d.guard_id
      OR i.generation_table <> d.generation_table OR i.old_target_uuid <> d.old_target_uuid
      OR i.generation_uuid <> d.generation_uuid OR i.prepared_at <> d.prepared_at)
    THROW 51000, N'publication_immutable', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.intent_sha256 = d.intent_sha256
    WHERE i.revision <> d.revision + 1 OR NOT (
      d.state = 1 AND i.state IN (2, 4) OR d.state IN (2, 5) AND i.state IN (3, 4, 5)))
    THROW 51000, N'publication_transition', 1;
  -- prepared or claimed only for an attempt that may act
  SELECT @refusal = MAX([dpone].[acting_refusal](i.attempt_sha256)) FROM inserted AS i WHERE i.state IN (1, 2);
  IF @refusal IS NOT NULL THROW 51000, @refusal, 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE i.state = 1 AND NOT EXISTS (
      SELECT 1 FROM [dpone].[attempt_guard] AS g
      WHERE g.attempt_sha256 = i.attempt_sha256 AND g.guard_id = i.guard_id)) THROW 51000, N'publication_guard', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE i.state = 2 AND NOT EXISTS (
      SELECT 1 FROM [dpone].[principal] AS p
      WHERE p.attempt_sha256 = i.attempt_sha256 AND p.purpose = N'publisher' AND p.state = 2))
    THROW 51000, N'publication_gate_not_ready', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i JOIN [dpone].[principal] AS p ON p.attempt_sha256 = i.attempt_sha256
    WHERE i.state IN (3, 4) AND p.purpose = N'publisher' AND p.state <> 4)
    THROW 51000, N'publication_gate_not_closed', 1;
END;
