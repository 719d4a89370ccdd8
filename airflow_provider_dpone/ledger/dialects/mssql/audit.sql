-- The audit of all originals in one statement; every row it returns is a disagreement: what, and which. Only members
-- that are ASCII by their form are taken out of documents here: digests, UUIDs, numbers and states.
-- Kinds: 5 publication, 6 closure, 8 proof, 9 outcome. States of attempts: 2 SUCCEEDED 3 FAILED.
SELECT N'evidence bytes do not match their digest' AS what, CONVERT(nvarchar(130), e.evidence_sha256, 2) AS which_one
FROM [dpone].[evidence] AS e WHERE HASHBYTES('SHA2_256', e.document) <> e.evidence_sha256
UNION ALL
SELECT N'activation bytes do not match their digest', CONVERT(nvarchar(130), a.activation_sha256, 2)
FROM [dpone].[activation] AS a WHERE HASHBYTES('SHA2_256', a.document) <> a.activation_sha256
UNION ALL
SELECT N'activation row differs from its document', CONVERT(nvarchar(130), a.activation_sha256, 2)
FROM [dpone].[activation] AS a
WHERE JSON_VALUE(CONVERT(varchar(max), a.document), '$.occurrence_id') <> LOWER(CONVERT(varchar(36), a.occurrence_id))
UNION ALL
SELECT N'attempt bytes do not match their digest', CONVERT(nvarchar(130), a.attempt_sha256, 2)
FROM [dpone].[attempt] AS a WHERE HASHBYTES('SHA2_256', a.document) <> a.attempt_sha256
UNION ALL
SELECT N'attempt row differs from its document', CONVERT(nvarchar(130), a.attempt_sha256, 2)
FROM [dpone].[attempt] AS a
WHERE JSON_VALUE(CONVERT(varchar(max), a.document), '$.coordinates.task_instance_id')
    <> LOWER(CONVERT(varchar(36), a.task_instance_id))
  OR JSON_VALUE(CONVERT(varchar(max), a.document), '$.coordinates.map_index') <> CONVERT(varchar(20), a.map_index)
  OR JSON_VALUE(CONVERT(varchar(max), a.document), '$.coordinates.try_number') <> CONVERT(varchar(20), a.try_number)
UNION ALL
SELECT N'an ended attempt has an open guard or gate', CONVERT(nvarchar(130), a.attempt_sha256, 2)
FROM [dpone].[attempt] AS a
WHERE a.state IN (2, 3) AND (
  EXISTS (SELECT 1 FROM [dpone].[principal] AS p WHERE p.attempt_sha256 = a.attempt_sha256 AND p.state <> 4)
  OR EXISTS (SELECT 1 FROM [dpone].[attempt_guard] AS g WHERE g.attempt_sha256 = a.attempt_sha256 AND g.is_open = 1))
UNION ALL
SELECT N'an ended attempt lacks a proof of its triplet', CONVERT(nvarchar(130), a.attempt_sha256, 2)
FROM [dpone].[attempt] AS a
WHERE a.state IN (2, 3) AND (
  NOT EXISTS (
    SELECT 1 FROM [dpone].[evidence] AS e
    WHERE e.evidence_sha256 = a.closed_sha256 AND e.kind = 8 AND e.subject = a.attempt_sha256
      AND JSON_VALUE(CONVERT(varchar(max), e.document), '$.kind') = 'closed_gates')
  OR NOT EXISTS (
    SELECT 1 FROM [dpone].[evidence] AS e
    WHERE e.evidence_sha256 = a.quiescence_sha256 AND e.kind = 8 AND e.subject = a.attempt_sha256
      AND JSON_VALUE(CONVERT(varchar(max), e.document), '$.kind') = 'quiescence')
  OR NOT EXISTS (
    SELECT 1 FROM [dpone].[evidence] AS e
    WHERE e.evidence_sha256 = a.outcome_sha256 AND e.kind = 8 AND e.subject = a.attempt_sha256
      AND JSON_VALUE(CONVERT(varchar(max), e.document), '$.kind') = 'outcome'
      AND JSON_VALUE(CONVERT(varchar(max), e.document), '$.outcome_state') = CONVERT(varchar(4), a.state)))
UNION ALL
SELECT N'evidence of an attempt that is not there', CONVERT(nvarchar(130), e.subject, 2)
FROM [dpone].[evidence] AS e
WHERE e.kind IN (8, 9) AND NOT EXISTS (SELECT 1 FROM [dpone].[attempt] AS a WHERE a.attempt_sha256 = e.subject)
UNION ALL
SELECT N'a closed gate lacks its evidence', p.name
FROM [dpone].[principal] AS p
WHERE p.state = 4 AND NOT EXISTS (
  SELECT 1 FROM [dpone].[evidence] AS e WHERE e.evidence_sha256 = p.closure_sha256 AND e.kind = 6)
UNION ALL
SELECT N'a publication differs from its record', CONVERT(nvarchar(130), u.intent_sha256, 2)
FROM [dpone].[publication] AS u
LEFT JOIN [dpone].[evidence] AS e ON e.evidence_sha256 = u.record_sha256 AND e.kind = 5
WHERE e.document IS NULL
  OR JSON_VALUE(CONVERT(varchar(max), e.document), '$.revision') <> CONVERT(varchar(20), u.revision)
  OR JSON_VALUE(CONVERT(varchar(max), e.document), '$.state') <> CONVERT(varchar(4), u.state)
UNION ALL
SELECT N'a guard is owned by no activation in force', CONVERT(nvarchar(130), g.guard_id, 2)
FROM [dpone].[guard] AS g
WHERE g.owner_sha256 IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM [dpone].[activation] AS a WHERE a.activation_sha256 = g.owner_sha256 AND a.state IN (1, 2, 3));
