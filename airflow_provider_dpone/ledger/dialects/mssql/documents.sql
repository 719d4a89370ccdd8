-- How the database reads documents, and which proofs its rows bind. JSON is read from the bytes as the database's own code
-- page shows them; text that need not be ASCII is compared as the same code page shows its UTF-8.

CREATE FUNCTION [dpone].[digest_text] (@digest varbinary(32)) RETURNS varchar(71) AS
BEGIN
  RETURN 'sha256:' + LOWER(CONVERT(varchar(64), @digest, 2));
END;
GO
-- The 32 bytes of a digest's text; NULL when it is none.
CREATE FUNCTION [dpone].[digest_bytes] (@digest varchar(71)) RETURNS varbinary(32) AS
BEGIN
  RETURN CASE WHEN @digest LIKE 'sha256:%' AND LEN(@digest) = 71 THEN
    TRY_CONVERT(varbinary(32), SUBSTRING(@digest, 8, 64), 2) END;
END;
GO
-- A document as JSON; NULL when the bytes are none, so that one altered byte hides nothing else.
CREATE FUNCTION [dpone].[document] (@raw varbinary(max)) RETURNS varchar(max) AS
BEGIN
  RETURN CASE WHEN ISJSON(CONVERT(varchar(max), @raw)) = 1 THEN CONVERT(varchar(max), @raw) END;
END;
GO
CREATE FUNCTION [dpone].[utf8] (@text nvarchar(max)) RETURNS varchar(max) AS
BEGIN
  RETURN CONVERT(varchar(max), CONVERT(varbinary(max), CONVERT(varchar(max), @text COLLATE Latin1_General_100_BIN2_UTF8)));
END;
GO
-- The bytes of what utf8 shows, hashed.
CREATE FUNCTION [dpone].[sha256] (@shown varchar(max)) RETURNS varbinary(32) AS
BEGIN
  RETURN HASHBYTES('SHA2_256', CONVERT(varbinary(max), @shown));
END;
GO
-- One row when a proof names every principal of an attempt as the journal has it, and that of closed gates every statement.
CREATE FUNCTION [dpone].[bound_journal] (@doc varchar(max), @ended varbinary(32), @wanted varchar(16)) RETURNS TABLE AS
RETURN
  SELECT 1 AS bound
  WHERE (SELECT COUNT(*) FROM [dpone].[principal] AS p WHERE p.attempt_sha256 = @ended)
      = (SELECT COUNT(*) FROM OPENJSON(@doc, '$.authorities'))
    AND NOT EXISTS (
      SELECT 1 FROM [dpone].[principal] AS p
      WHERE p.attempt_sha256 = @ended AND NOT EXISTS (
        SELECT 1 FROM OPENJSON(@doc, '$.authorities') WITH (
          connector nvarchar(64) '$.connector', service_id nvarchar(2000) '$.service_id', name nvarchar(2000) '$.name',
          purpose nvarchar(64) '$.purpose', principal_uuid nvarchar(64) '$.principal_uuid') AS j
        WHERE j.connector = p.connector COLLATE Latin1_General_100_BIN2
          AND j.service_id = [dpone].[utf8](p.service_id) COLLATE Latin1_General_100_BIN2
          AND j.name = [dpone].[utf8](p.name) COLLATE Latin1_General_100_BIN2
          AND j.purpose = p.purpose COLLATE Latin1_General_100_BIN2
          AND ISNULL(j.principal_uuid, 'null') = ISNULL(LOWER(CONVERT(varchar(36), p.principal_uuid)), 'null')))
    AND (@wanted <> 'closed_gates'
      OR (SELECT COUNT(*) FROM [dpone].[dispatch] AS d WHERE d.attempt_sha256 = @ended)
        = (SELECT COUNT(*) FROM OPENJSON(@doc, '$.dispatches'))
      AND NOT EXISTS (
        SELECT 1 FROM [dpone].[dispatch] AS d
        WHERE d.attempt_sha256 = @ended AND NOT EXISTS (
          SELECT 1 FROM OPENJSON(@doc, '$.dispatches') WITH (
            dispatch_id nvarchar(64) '$.dispatch_id', name nvarchar(2000) '$.name', kind nvarchar(256) '$.kind',
            statement nvarchar(max) '$.statement', state int '$.state', note nvarchar(2000) '$.note') AS j
          WHERE j.dispatch_id = LOWER(CONVERT(varchar(36), d.dispatch_id))
            AND j.name = [dpone].[utf8](d.principal_name) COLLATE Latin1_General_100_BIN2
            AND j.kind = [dpone].[utf8](d.kind) COLLATE Latin1_General_100_BIN2
            AND j.statement = [dpone].[utf8](d.statement) COLLATE Latin1_General_100_BIN2
            AND j.state = d.state
            AND ISNULL(j.note, '') = ISNULL([dpone].[utf8](d.note), '') COLLATE Latin1_General_100_BIN2)));
GO
-- The proof of a kind, when it is exactly the one that the rows of its attempt demand: no row otherwise.
-- Kinds of evidence: 8 proof. What an outcome rests on is looked at apart.
CREATE FUNCTION [dpone].[binding_proof] (
  @named varbinary(32), @ended varbinary(32), @wanted varchar(16), @state smallint) RETURNS TABLE AS
RETURN
  SELECT k.evidence_sha256
  FROM (
    SELECT e.evidence_sha256, e.subject, [dpone].[document](e.document) AS doc FROM [dpone].[evidence] AS e
    WHERE e.evidence_sha256 = @named AND e.subject = @ended AND e.kind = 8) AS k
  JOIN (
    SELECT a.attempt_sha256, a.activation_sha256, [dpone].[document](a.document) AS doc FROM [dpone].[attempt] AS a
    WHERE a.attempt_sha256 = @ended) AS o ON o.attempt_sha256 = k.subject
  WHERE JSON_VALUE(k.doc, '$.schema_name') = 'dpone.attempt_proof.v1'
    AND JSON_VALUE(k.doc, '$.kind') = @wanted
    AND JSON_VALUE(k.doc, '$.attempt_sha256') = [dpone].[digest_text](o.attempt_sha256)
    AND JSON_VALUE(k.doc, '$.activation_sha256') = [dpone].[digest_text](o.activation_sha256)
    AND JSON_VALUE(k.doc, '$.family') = JSON_VALUE(o.doc, '$.family')
    AND ISNULL(JSON_VALUE(k.doc, '$.outcome_state'), 'null')
      = CASE @wanted WHEN 'outcome' THEN CONVERT(varchar(8), @state) ELSE 'null' END
    AND JSON_VALUE(k.doc, '$.guard_epochs_sha256') = [dpone].[digest_text]([dpone].[sha256]((
      SELECT STRING_AGG(CONVERT(varchar(max), [dpone].[digest_text](g.guard_id) + ' ' + CONVERT(varchar(20), g.epoch)), CHAR(10))
        WITHIN GROUP (ORDER BY g.guard_id)
      FROM [dpone].[attempt_guard] AS g WHERE g.attempt_sha256 = @ended)))
    AND EXISTS (SELECT 1 FROM [dpone].[bound_journal](k.doc, @ended, @wanted))
    AND (@wanted = 'outcome'
      OR (SELECT COUNT(DISTINCT CASE @wanted WHEN 'closed_gates' THEN p.closure_sha256 ELSE p.quiescence_sha256 END)
          FROM [dpone].[principal] AS p WHERE p.attempt_sha256 = @ended)
        = (SELECT COUNT(*) FROM OPENJSON(k.doc, '$.evidence_sha256'))
      AND NOT EXISTS (
        SELECT 1 FROM [dpone].[principal] AS p
        WHERE p.attempt_sha256 = @ended AND NOT EXISTS (
          SELECT 1 FROM OPENJSON(k.doc, '$.evidence_sha256') AS j
          WHERE j.value = [dpone].[digest_text](
            CASE @wanted WHEN 'closed_gates' THEN p.closure_sha256 ELSE p.quiescence_sha256 END))));
GO
-- The receipt of an attempt, when it says what only the work itself leaves behind: a publication that is PUBLISHED, a claimed
-- commit of the recorded load, a dbt build and what was read back. Kinds: 11 receipt 15 load 21 read-back.
CREATE FUNCTION [dpone].[standing_receipt] (@named varbinary(32), @ended varbinary(32)) RETURNS TABLE AS
RETURN
  SELECT r.evidence_sha256
  FROM (
    SELECT e.evidence_sha256, [dpone].[document](e.document) AS doc FROM [dpone].[evidence] AS e
    WHERE e.evidence_sha256 = @named AND e.subject = @ended AND e.kind = 11) AS r
  JOIN (
    SELECT [dpone].[document](a.document) AS doc FROM [dpone].[attempt] AS a WHERE a.attempt_sha256 = @ended) AS o ON 1 = 1
  WHERE JSON_VALUE(r.doc, '$.attempt_sha256') = [dpone].[digest_text](@ended) AND (
    JSON_VALUE(o.doc, '$.cell') = 'postgres_mssql_full_refresh'
      AND JSON_VALUE(r.doc, '$.schema_name') = 'dpone.load_receipt.v1'
      AND EXISTS (
        SELECT 1 FROM [dpone].[evidence] AS e
        WHERE e.evidence_sha256 = [dpone].[digest_bytes](JSON_VALUE(r.doc, '$.load_sha256')) AND e.kind = 15
          AND e.subject = @ended)
      AND EXISTS (
        SELECT 1 FROM [dpone].[dispatch] AS d
        WHERE d.attempt_sha256 = @ended AND d.kind = N'commit'
          AND d.statement = N'COMMIT of ' + JSON_VALUE(r.doc, '$.load_sha256') COLLATE Latin1_General_100_BIN2)
    OR JSON_VALUE(o.doc, '$.cell') = 'dbt_native' AND JSON_VALUE(r.doc, '$.schema_name') = 'dpone.dbt_receipt.v1'
      AND EXISTS (
        SELECT 1 FROM [dpone].[evidence] AS e
        WHERE e.evidence_sha256 = [dpone].[digest_bytes](JSON_VALUE(r.doc, '$.read_back_sha256')) AND e.kind = 21
          AND e.subject = @ended)
      AND EXISTS (SELECT 1 FROM [dpone].[dispatch] AS d WHERE d.attempt_sha256 = @ended AND d.kind = N'dbt_build')
    OR JSON_VALUE(o.doc, '$.cell') = 'mssql_clickhouse_full_refresh'
      AND (JSON_VALUE(r.doc, '$.schema_name') = 'dpone.snapshot_receipt.v1' AND EXISTS (
          SELECT 1 FROM [dpone].[publication] AS u
          WHERE u.attempt_sha256 = @ended AND u.state = 3
            AND u.record_sha256 = [dpone].[digest_bytes](JSON_VALUE(r.doc, '$.publication_sha256'))
            AND u.intent_sha256 = [dpone].[digest_bytes](JSON_VALUE(r.doc, '$.intent_sha256')))
        OR JSON_VALUE(r.doc, '$.schema_name') = 'dpone.retention_receipt.v1' AND NOT EXISTS (
          SELECT 1 FROM [dpone].[publication] AS u WHERE u.attempt_sha256 = @ended)));
GO
-- What an outcome proof names, and whether each stands: 9 an outcome of the state, 10 a decision for it, 11 a receipt.
CREATE FUNCTION [dpone].[grounds] (@named varbinary(32), @ended varbinary(32), @state smallint) RETURNS TABLE AS
RETURN
  SELECT g.kind, CASE WHEN g.kind IN (9, 10)
      AND JSON_VALUE(g.doc, '$.attempt_sha256') = [dpone].[digest_text](@ended)
      AND JSON_VALUE(g.doc, '$.state') = CONVERT(varchar(8), @state)
    OR EXISTS (SELECT 1 FROM [dpone].[standing_receipt](g.evidence_sha256, @ended)) THEN 1 ELSE 0 END AS stands
  FROM (
    SELECT [dpone].[document](e.document) AS doc FROM [dpone].[evidence] AS e WHERE e.evidence_sha256 = @named) AS k
  CROSS APPLY OPENJSON(k.doc, '$.evidence_sha256') AS m
  LEFT JOIN (
    SELECT e.evidence_sha256, e.kind, [dpone].[document](e.document) AS doc FROM [dpone].[evidence] AS e
    WHERE e.subject = @ended AND e.kind IN (9, 10, 11)) AS g ON g.evidence_sha256 = [dpone].[digest_bytes](m.value);
GO
-- Why an outcome proof decides nothing, or NULL. It rests on one outcome of the state and on nothing but outcome, receipt
-- and decision of its attempt; SUCCEEDED needs a receipt that stands or, after COMMIT_UNKNOWN, a decision; an attempt whose
-- gates were established outside (29) ends as COMMIT_UNKNOWN and is then decided. States: 2 SUCCEEDED 4 COMMIT_UNKNOWN.
CREATE FUNCTION [dpone].[outcome_refusal] (
  @named varbinary(32), @ended varbinary(32), @before smallint, @state smallint) RETURNS nvarchar(64) AS
BEGIN
  DECLARE @decided bit;
  SET @decided = CASE WHEN @before = 4 AND EXISTS (
    SELECT 1 FROM [dpone].[grounds](@named, @ended, @state) AS g WHERE g.kind = 10 AND g.stands = 1) THEN 1 ELSE 0 END;
  IF 1 <> (SELECT COUNT(*) FROM [dpone].[grounds](@named, @ended, @state) AS g WHERE g.kind = 9 AND g.stands = 1)
     OR EXISTS (SELECT 1 FROM [dpone].[grounds](@named, @ended, @state) AS g WHERE g.stands = 0)
    RETURN N'outcome_evidence';
  IF @state = 2 AND @decided = 0 AND NOT EXISTS (
    SELECT 1 FROM [dpone].[grounds](@named, @ended, @state) AS g WHERE g.kind = 11 AND g.stands = 1)
    RETURN N'outcome_receipt';
  IF @state IN (2, 3) AND @decided = 0 AND EXISTS (
    SELECT 1 FROM [dpone].[principal] AS p JOIN [dpone].[evidence] AS e ON e.evidence_sha256 = p.closure_sha256
    WHERE p.attempt_sha256 = @ended AND e.kind = 29)
    RETURN N'outcome_decision';
  RETURN NULL;
END;
GO
-- Why an attempt may not end like this, or NULL: its proofs, its outcome, its gates, its publication. States of attempts:
-- 2 SUCCEEDED 3 FAILED 4 COMMIT_UNKNOWN; of gates 4 CLOSED; of dispatches 1 CLAIMED; of publications 3 PUBLISHED
-- 4 NOT_PUBLISHED. Kind 10 is a decision.
CREATE FUNCTION [dpone].[ending_refusal] (
  @ended varbinary(32), @before smallint, @state smallint, @outcome varbinary(32), @closed varbinary(32), @quiet varbinary(32))
RETURNS nvarchar(64) AS
BEGIN
  DECLARE @refusal nvarchar(64);
  IF @state = 4 AND (@closed IS NOT NULL OR @quiet IS NOT NULL)
     OR NOT EXISTS (SELECT 1 FROM [dpone].[binding_proof](@outcome, @ended, 'outcome', @state)) RETURN N'attempt_proofs';
  SET @refusal = [dpone].[outcome_refusal](@outcome, @ended, @before, @state);
  IF @refusal IS NOT NULL RETURN @refusal;
  IF @state = 4 RETURN NULL;
  IF EXISTS (SELECT 1 FROM [dpone].[principal] AS p WHERE p.attempt_sha256 = @ended AND p.state <> 4)
     OR EXISTS (SELECT 1 FROM [dpone].[dispatch] AS s WHERE s.attempt_sha256 = @ended AND s.state = 1)
    RETURN N'attempt_open_gates';
  IF NOT EXISTS (SELECT 1 FROM [dpone].[binding_proof](@closed, @ended, 'closed_gates', NULL))
     OR NOT EXISTS (SELECT 1 FROM [dpone].[binding_proof](@quiet, @ended, 'quiescence', NULL)) RETURN N'attempt_proofs';
  IF EXISTS (
    SELECT 1 FROM [dpone].[publication] AS p
    WHERE p.attempt_sha256 = @ended AND p.state <> CASE @state WHEN 2 THEN 3 ELSE 4 END
      AND NOT (@before = 4 AND p.state NOT IN (3, 4) AND EXISTS (
        SELECT 1 FROM [dpone].[evidence] AS e WHERE e.subject = @ended AND e.kind = 10))) RETURN N'attempt_publication';
  RETURN NULL;
END;
