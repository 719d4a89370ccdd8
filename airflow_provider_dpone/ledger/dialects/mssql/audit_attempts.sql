-- The audit of attempts; every row it returns is a disagreement: what, and which. A condition is put in where it says scope:
-- all attempts, those of one activation, or the latest on some guards.
-- Kinds: 3 generation 4 intent 5 publication 6 closure 7 quiescence 8 proof 9 outcome 10 adjudication 11 receipt 27 fence
-- 28 acknowledgement 29 established. States of attempts: 1 RUNNING 2 SUCCEEDED 3 FAILED 4 COMMIT_UNKNOWN.
WITH
original AS (
  SELECT a.*, [dpone].[document](a.document) AS doc, SUBSTRING([dpone].[digest_text](a.attempt_sha256), 8, 64) AS which_one
  FROM [dpone].[attempt] AS a WHERE /*scope*/ 1 = 1
),
kept AS (
  SELECT e.evidence_sha256, e.subject, e.kind, e.document AS raw, [dpone].[digest_text](e.evidence_sha256) AS named,
    CASE WHEN e.kind BETWEEN 6 AND 11 OR e.kind = 29 THEN [dpone].[document](e.document) END AS doc
  FROM original AS o JOIN [dpone].[evidence] AS e ON e.subject = o.attempt_sha256
),
triplet AS (
  SELECT o.attempt_sha256, o.which_one, o.state, n.wanted, n.sha256, k.doc
  FROM original AS o
  CROSS APPLY (
    SELECT 'closed_gates' AS wanted, o.closed_sha256 AS sha256 UNION ALL SELECT 'quiescence', o.quiescence_sha256
    UNION ALL SELECT 'outcome', o.outcome_sha256) AS n
  LEFT JOIN kept AS k ON k.evidence_sha256 = n.sha256 AND k.subject = o.attempt_sha256 AND k.kind = 8
  WHERE o.state IN (2, 3) OR o.state = 4 AND n.wanted = 'outcome'
),
published AS (
  SELECT u.*, e.kind AS intent_kind, e.subject AS intent_subject, [dpone].[document](e.document) AS intent,
    r.kind AS record_kind, r.subject AS record_subject, [dpone].[document](r.document) AS record,
    SUBSTRING([dpone].[digest_text](u.intent_sha256), 8, 64) AS which_one
  FROM original AS o JOIN [dpone].[publication] AS u ON u.attempt_sha256 = o.attempt_sha256
  LEFT JOIN [dpone].[evidence] AS e ON e.evidence_sha256 = u.intent_sha256
  LEFT JOIN [dpone].[evidence] AS r ON r.evidence_sha256 = u.record_sha256
)
SELECT N'evidence bytes do not match their digest' AS what, CONVERT(nvarchar(260), SUBSTRING(k.named, 8, 64)) AS which_one
FROM kept AS k WHERE HASHBYTES('SHA2_256', k.raw) <> k.evidence_sha256
UNION ALL
SELECT N'evidence bytes are no document', SUBSTRING(k.named, 8, 64)
FROM kept AS k WHERE k.doc IS NULL AND (k.kind BETWEEN 6 AND 11 OR k.kind = 29)
UNION ALL
SELECT N'attempt bytes do not match their digest', o.which_one
FROM original AS o WHERE HASHBYTES('SHA2_256', o.document) <> o.attempt_sha256
UNION ALL
SELECT N'attempt bytes are no document', o.which_one FROM original AS o WHERE o.doc IS NULL
UNION ALL
-- the scheduler's key is over the coordinates as they stand in the document, between their neighbours
SELECT N'attempt row differs from its document', o.which_one
FROM original AS o
WHERE o.doc IS NOT NULL AND NOT (
  JSON_VALUE(o.doc, '$.activation_sha256') = [dpone].[digest_text](o.activation_sha256)
  AND JSON_VALUE(o.doc, '$.workload_id') = [dpone].[utf8](o.workload_id) COLLATE Latin1_General_100_BIN2
  AND JSON_VALUE(o.doc, '$.coordinates.dag_id') = [dpone].[utf8](o.dag_id) COLLATE Latin1_General_100_BIN2
  AND JSON_VALUE(o.doc, '$.coordinates.run_id') = [dpone].[utf8](o.run_id) COLLATE Latin1_General_100_BIN2
  AND JSON_VALUE(o.doc, '$.coordinates.task_id') = [dpone].[utf8](o.task_id) COLLATE Latin1_General_100_BIN2
  AND JSON_VALUE(o.doc, '$.coordinates.map_index') = CONVERT(varchar(20), o.map_index)
  AND JSON_VALUE(o.doc, '$.coordinates.try_number') = CONVERT(varchar(20), o.try_number)
  AND JSON_VALUE(o.doc, '$.coordinates.task_instance_id') = LOWER(CONVERT(varchar(36), o.task_instance_id))
  AND o.scheduler_key = [dpone].[sha256]([dpone].[digest_text](o.activation_sha256) + CHAR(10) + [dpone].[digest_text](
    [dpone].[sha256](SUBSTRING(o.doc, CHARINDEX(',"coordinates":', o.doc) + 15,
      CHARINDEX(',"family":', o.doc) - CHARINDEX(',"coordinates":', o.doc) - 15)))))
UNION ALL
SELECT N'guards of an attempt differ from its document', o.which_one
FROM original AS o
WHERE o.doc IS NOT NULL AND (
  (SELECT COUNT(*) FROM OPENJSON(o.doc, '$.guard_epochs'))
    <> (SELECT COUNT(*) FROM [dpone].[attempt_guard] AS g WHERE g.attempt_sha256 = o.attempt_sha256)
  OR EXISTS (
    SELECT 1 FROM [dpone].[attempt_guard] AS g
    WHERE g.attempt_sha256 = o.attempt_sha256 AND (g.activation_sha256 <> o.activation_sha256 OR NOT EXISTS (
      SELECT 1 FROM OPENJSON(o.doc, '$.guard_epochs') WITH (guard_id nvarchar(128) '$.guard_id', epoch bigint '$.epoch') AS j
      WHERE j.guard_id = [dpone].[digest_text](g.guard_id) AND j.epoch = g.epoch))))
UNION ALL
SELECT N'an ended attempt has an open guard or gate', o.which_one
FROM original AS o
WHERE o.state IN (2, 3) AND (
  EXISTS (SELECT 1 FROM [dpone].[principal] AS p WHERE p.attempt_sha256 = o.attempt_sha256 AND p.state <> 4)
  OR EXISTS (SELECT 1 FROM [dpone].[attempt_guard] AS g WHERE g.attempt_sha256 = o.attempt_sha256 AND g.is_open = 1))
UNION ALL
SELECT N'an open attempt has a released guard', o.which_one
FROM original AS o
WHERE o.state IN (1, 4) AND EXISTS (
  SELECT 1 FROM [dpone].[attempt_guard] AS g WHERE g.attempt_sha256 = o.attempt_sha256 AND g.is_open = 0)
UNION ALL
SELECT N'an open attempt carries a proof of its end', o.which_one
FROM original AS o
WHERE o.state = 1 AND o.outcome_sha256 IS NOT NULL
  OR o.state IN (1, 4) AND (o.closed_sha256 IS NOT NULL OR o.quiescence_sha256 IS NOT NULL OR EXISTS (
    SELECT 1 FROM kept AS k
    WHERE k.subject = o.attempt_sha256 AND k.kind = 8 AND JSON_VALUE(k.doc, '$.kind') = 'closed_gates'))
UNION ALL
SELECT N'an ended attempt lacks a proof of its triplet', t.which_one
FROM triplet AS t WHERE ISNULL(JSON_VALUE(t.doc, '$.kind'), '') <> t.wanted
UNION ALL
SELECT N'a proof binds something else than its attempt', t.which_one
FROM triplet AS t
WHERE JSON_VALUE(t.doc, '$.kind') = t.wanted
  AND NOT EXISTS (SELECT 1 FROM [dpone].[binding_proof](t.sha256, t.attempt_sha256, t.wanted, t.state))
UNION ALL
SELECT N'an original that a proof rests on is missing or another', t.which_one
FROM triplet AS t CROSS APPLY OPENJSON(t.doc, '$.evidence_sha256') AS m
LEFT JOIN kept AS k ON k.named = m.value COLLATE Latin1_General_100_BIN2 AND k.subject = t.attempt_sha256
  AND (t.wanted = 'closed_gates' AND k.kind IN (6, 29) OR t.wanted = 'quiescence' AND k.kind IN (7, 29)
    OR t.wanted = 'outcome' AND k.kind IN (9, 10, 11))
WHERE k.kind IS NULL
UNION ALL
SELECT N'an original that a proof rests on is missing or another', t.which_one
FROM triplet AS t
WHERE t.wanted = 'outcome' AND EXISTS (
  SELECT 1 FROM [dpone].[grounds](t.sha256, t.attempt_sha256, t.state) AS g WHERE g.stands = 0)
UNION ALL
SELECT N'an outcome rests on nothing that decides it', t.which_one
FROM triplet AS t
WHERE t.wanted = 'outcome' AND (
  1 <> (SELECT COUNT(*) FROM [dpone].[grounds](t.sha256, t.attempt_sha256, t.state) AS g WHERE g.kind = 9 AND g.stands = 1)
  OR t.state = 2 AND NOT EXISTS (
    SELECT 1 FROM [dpone].[grounds](t.sha256, t.attempt_sha256, t.state) AS g WHERE g.kind IN (10, 11) AND g.stands = 1))
UNION ALL
SELECT N'a closed gate lacks its evidence', [dpone].[utf8](p.name)
FROM original AS o JOIN [dpone].[principal] AS p ON p.attempt_sha256 = o.attempt_sha256
LEFT JOIN kept AS c ON c.evidence_sha256 = p.closure_sha256 AND c.subject = o.attempt_sha256
LEFT JOIN kept AS q ON q.evidence_sha256 = p.quiescence_sha256 AND q.subject = o.attempt_sha256
WHERE (p.state = 4 OR p.closure_sha256 IS NOT NULL) AND 0 = CASE WHEN p.state = 4 AND (
    c.kind = 6 AND q.kind = 7
      AND JSON_VALUE(c.doc, '$.connector') = p.connector COLLATE Latin1_General_100_BIN2
      AND JSON_VALUE(q.doc, '$.connector') = p.connector COLLATE Latin1_General_100_BIN2
      AND JSON_VALUE(c.doc, '$.service_id') = [dpone].[utf8](p.service_id) COLLATE Latin1_General_100_BIN2
      AND JSON_VALUE(q.doc, '$.service_id') = [dpone].[utf8](p.service_id) COLLATE Latin1_General_100_BIN2
      AND JSON_VALUE(c.doc, '$.name') = [dpone].[utf8](p.name) COLLATE Latin1_General_100_BIN2
      AND JSON_VALUE(q.doc, '$.name') = [dpone].[utf8](p.name) COLLATE Latin1_General_100_BIN2
    OR c.kind = 29 AND c.evidence_sha256 = q.evidence_sha256 AND EXISTS (
      SELECT 1 FROM OPENJSON(c.doc, '$.principals') AS m
      WHERE m.value = [dpone].[utf8](p.name) COLLATE Latin1_General_100_BIN2)) THEN 1 ELSE 0 END
UNION ALL
SELECT N'a flag of an attempt has no original, or an original no flag', o.which_one
FROM original AS o
WHERE CONVERT(int, o.fenced)
    <> CASE WHEN EXISTS (SELECT 1 FROM kept AS k WHERE k.subject = o.attempt_sha256 AND k.kind = 27) THEN 1 ELSE 0 END
  OR CONVERT(int, o.acknowledged)
    <> CASE WHEN EXISTS (SELECT 1 FROM kept AS k WHERE k.subject = o.attempt_sha256 AND k.kind = 28) THEN 1 ELSE 0 END
UNION ALL
SELECT N'a publication differs from its record or its intent', u.which_one
FROM published AS u
WHERE 0 = CASE WHEN u.record_kind = 5 AND u.record_subject = u.intent_sha256
  AND u.intent_kind = 4 AND u.intent_subject = u.attempt_sha256
  AND JSON_VALUE(u.record, '$.revision') = CONVERT(varchar(20), u.revision)
  AND JSON_VALUE(u.record, '$.state') = CONVERT(varchar(8), u.state)
  AND JSON_VALUE(u.record, '$.intent_sha256') = [dpone].[digest_text](u.intent_sha256)
  AND JSON_VALUE(u.intent, '$.attempt_sha256') = [dpone].[digest_text](u.attempt_sha256)
  AND JSON_VALUE(u.intent, '$.target.guard_id') = [dpone].[digest_text](u.guard_id)
  AND JSON_VALUE(u.intent, '$.target.generation_table')
    = [dpone].[utf8](u.generation_table) COLLATE Latin1_General_100_BIN2
  AND JSON_VALUE(u.intent, '$.old_target_uuid') = LOWER(CONVERT(varchar(36), u.old_target_uuid))
  AND JSON_VALUE(u.intent, '$.generation_uuid') = LOWER(CONVERT(varchar(36), u.generation_uuid)) THEN 1 ELSE 0 END
UNION ALL
SELECT N'an intent has no publication', SUBSTRING(k.named, 8, 64)
FROM kept AS k
WHERE k.kind = 4 AND NOT EXISTS (SELECT 1 FROM published AS u WHERE u.intent_sha256 = k.evidence_sha256)
UNION ALL
SELECT N'a sealed generation is missing', u.which_one
FROM published AS u
WHERE NOT EXISTS (
  SELECT 1 FROM kept AS k
  WHERE k.kind = 3 AND k.subject = u.attempt_sha256
    AND k.named = JSON_VALUE(u.intent, '$.generation_sha256') COLLATE Latin1_General_100_BIN2)
UNION ALL
SELECT N'an outcome names a publication record that is not there', o.which_one
FROM original AS o JOIN kept AS k ON k.subject = o.attempt_sha256 AND k.kind = 9
WHERE ISNULL(JSON_VALUE(k.doc, '$.publication_sha256'), 'null') <> 'null' AND NOT EXISTS (
  SELECT 1 FROM published AS u JOIN [dpone].[evidence] AS e ON e.subject = u.intent_sha256 AND e.kind = 5
  WHERE u.attempt_sha256 = o.attempt_sha256
    AND [dpone].[digest_text](e.evidence_sha256) = JSON_VALUE(k.doc, '$.publication_sha256') COLLATE Latin1_General_100_BIN2)
