-- The audit of everything that is no attempt's, after the one of all attempts; every row is a disagreement: what, and which.
-- Kinds: 1 enrolment 2 release 13 deployment 14 observation; 4, 6 to 11, 15 to 18, 21, 26 to 29 are about an attempt.
-- States of activations: 1 PREPARED 2 ACTIVE 3 RETIRING 4 RETIRED.
SELECT N'evidence bytes do not match their digest', SUBSTRING([dpone].[digest_text](e.evidence_sha256), 8, 64)
FROM [dpone].[evidence] AS e LEFT JOIN [dpone].[attempt] AS a ON a.attempt_sha256 = e.subject
WHERE a.attempt_sha256 IS NULL AND HASHBYTES('SHA2_256', e.document) <> e.evidence_sha256
UNION ALL
SELECT N'evidence of an attempt that is not there', SUBSTRING([dpone].[digest_text](e.subject), 8, 64)
FROM [dpone].[evidence] AS e LEFT JOIN [dpone].[attempt] AS a ON a.attempt_sha256 = e.subject
WHERE a.attempt_sha256 IS NULL AND (e.kind IN (3, 4, 12, 21) OR e.kind BETWEEN 6 AND 11 OR e.kind BETWEEN 15 AND 18
  OR e.kind BETWEEN 26 AND 29)
UNION ALL
SELECT N'a record of a publication that is not there', SUBSTRING([dpone].[digest_text](e.subject), 8, 64)
FROM [dpone].[evidence] AS e LEFT JOIN [dpone].[publication] AS u ON u.intent_sha256 = e.subject
WHERE e.kind = 5 AND u.intent_sha256 IS NULL
UNION ALL
SELECT N'activation bytes do not match their digest', SUBSTRING([dpone].[digest_text](r.activation_sha256), 8, 64)
FROM [dpone].[activation] AS r WHERE HASHBYTES('SHA2_256', r.document) <> r.activation_sha256
UNION ALL
SELECT N'activation bytes are no document', SUBSTRING([dpone].[digest_text](r.activation_sha256), 8, 64)
FROM [dpone].[activation] AS r WHERE [dpone].[document](r.document) IS NULL
UNION ALL
SELECT N'activation row differs from its document', SUBSTRING([dpone].[digest_text](r.activation_sha256), 8, 64)
FROM (SELECT a.*, [dpone].[document](a.document) AS doc FROM [dpone].[activation] AS a) AS r
WHERE r.doc IS NOT NULL AND 0 = CASE WHEN
  JSON_VALUE(r.doc, '$.occurrence_id') = LOWER(CONVERT(varchar(36), r.occurrence_id))
  AND JSON_VALUE(r.doc, '$.environment') = r.environment COLLATE Latin1_General_100_BIN2
  AND JSON_VALUE(r.doc, '$.release_id') = [dpone].[digest_text](r.release_sha256)
  AND EXISTS (
    SELECT 1 FROM [dpone].[ledger_meta] AS m
    WHERE m.family = JSON_VALUE(r.doc, '$.family') COLLATE Latin1_General_100_BIN2) THEN 1 ELSE 0 END
UNION ALL
SELECT N'an original of an activation is missing', SUBSTRING([dpone].[digest_text](r.activation_sha256), 8, 64)
FROM (SELECT a.activation_sha256, [dpone].[document](a.document) AS doc FROM [dpone].[activation] AS a) AS r
CROSS APPLY (
  SELECT JSON_VALUE(r.doc, '$.release_id') AS named, 2 AS kind
  UNION ALL SELECT JSON_VALUE(r.doc, '$.deployment_id'), 13
  UNION ALL SELECT JSON_VALUE(r.doc, '$.observation_sha256'), 14
  UNION ALL SELECT j.named, 1 FROM OPENJSON(r.doc, '$.resources') WITH (named nvarchar(128) '$.enrolment_sha256') AS j
) AS needed
WHERE r.doc IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM [dpone].[evidence] AS e
  WHERE e.evidence_sha256 = [dpone].[digest_bytes](needed.named) AND e.kind = needed.kind)
UNION ALL
SELECT N'guards of an activation differ from its document', SUBSTRING([dpone].[digest_text](r.activation_sha256), 8, 64)
FROM (SELECT a.activation_sha256, [dpone].[document](a.document) AS doc FROM [dpone].[activation] AS a) AS r
WHERE r.doc IS NOT NULL AND (
  (SELECT COUNT(*) FROM OPENJSON(r.doc, '$.resources'))
    <> (SELECT COUNT(*) FROM [dpone].[activation_guard] AS h WHERE h.activation_sha256 = r.activation_sha256)
  OR EXISTS (
    SELECT 1 FROM [dpone].[activation_guard] AS h
    WHERE h.activation_sha256 = r.activation_sha256 AND NOT EXISTS (
      SELECT 1 FROM OPENJSON(r.doc, '$.resources') WITH (guard_id nvarchar(128) '$.guard_id') AS j
      WHERE j.guard_id = [dpone].[digest_text](h.guard_id))))
UNION ALL
SELECT N'an activation in force does not own its guard, or one that is retired does',
  SUBSTRING([dpone].[digest_text](r.activation_sha256), 8, 64)
FROM [dpone].[activation] AS r
JOIN [dpone].[activation_guard] AS h ON h.activation_sha256 = r.activation_sha256
JOIN [dpone].[guard] AS g ON g.guard_id = h.guard_id
WHERE r.state = 4 AND g.owner_sha256 = r.activation_sha256
  OR r.state <> 4 AND (g.owner_sha256 IS NULL OR g.owner_sha256 <> r.activation_sha256 OR g.epoch <> h.epoch)
UNION ALL
SELECT N'a guard is owned by no activation in force', SUBSTRING([dpone].[digest_text](g.guard_id), 8, 64)
FROM [dpone].[guard] AS g
WHERE g.owner_sha256 IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM [dpone].[activation] AS a WHERE a.activation_sha256 = g.owner_sha256 AND a.state IN (1, 2, 3))
UNION ALL
SELECT N'a guard is another than its identity or its enrolment says', SUBSTRING([dpone].[digest_text](g.guard_id), 8, 64)
FROM (
  SELECT g.*, e.kind AS enrolment_kind, e.subject AS enrolment_subject, [dpone].[document](e.document) AS doc
  FROM [dpone].[guard] AS g LEFT JOIN [dpone].[evidence] AS e ON e.evidence_sha256 = g.enrolment_sha256) AS g
WHERE 0 = CASE WHEN g.guard_id = [dpone].[sha256]([dpone].[utf8](
    N'dpone.guard.v1' + NCHAR(10) + g.connector + NCHAR(10) + g.service_id + NCHAR(10) + g.subject))
  AND g.enrolment_kind = 1 AND g.enrolment_subject = g.guard_id
  AND JSON_VALUE(g.doc, '$.marker.connector') = g.connector COLLATE Latin1_General_100_BIN2
  AND JSON_VALUE(g.doc, '$.marker.service_id') = [dpone].[utf8](g.service_id) COLLATE Latin1_General_100_BIN2
  AND g.epoch = ISNULL((SELECT MAX(h.epoch) FROM [dpone].[activation_guard] AS h WHERE h.guard_id = g.guard_id), 0)
  THEN 1 ELSE 0 END
UNION ALL
-- the table under the name: the last of the publications, or the enrolled one as long as nothing replaced it (a table may
-- be enrolled again after it was replaced, and then nobody can tell)
SELECT N'the table of a guard is neither the enrolled nor the published one', SUBSTRING([dpone].[digest_text](g.guard_id), 8, 64)
FROM (
  SELECT g.guard_id, g.target_uuid, CASE WHEN ISNULL(LOWER(CONVERT(varchar(36), g.target_uuid)), 'null')
      = ISNULL(JSON_VALUE([dpone].[document](e.document), '$.target_uuid'), 'null') THEN 1 ELSE 0 END AS enrolled
  FROM [dpone].[guard] AS g LEFT JOIN [dpone].[evidence] AS e ON e.evidence_sha256 = g.enrolment_sha256) AS g
WHERE g.enrolled = 0 AND NOT EXISTS (
    SELECT 1 FROM [dpone].[publication] AS u
    WHERE u.guard_id = g.guard_id AND u.state = 3 AND u.generation_uuid = g.target_uuid)
  OR EXISTS (
    SELECT 1 FROM [dpone].[publication] AS u
    WHERE u.guard_id = g.guard_id AND u.state = 3 AND u.old_target_uuid = g.target_uuid)
  AND (g.enrolled = 0 OR 1 = (
    SELECT COUNT(*) FROM [dpone].[evidence] AS e WHERE e.subject = g.guard_id AND e.kind = 1))
UNION ALL
SELECT N'attempts of a guard are missing', SUBSTRING([dpone].[digest_text](g.guard_id), 8, 64)
FROM [dpone].[guard] AS g
WHERE g.admitted <> (SELECT COUNT(*) FROM [dpone].[attempt_guard] AS h WHERE h.guard_id = g.guard_id)
  OR g.admitted <> ISNULL((SELECT MAX(h.ordinal) FROM [dpone].[attempt_guard] AS h WHERE h.guard_id = g.guard_id), 0)
UNION ALL
SELECT N'an attempt holds no guard', SUBSTRING([dpone].[digest_text](a.attempt_sha256), 8, 64)
FROM [dpone].[attempt] AS a
WHERE NOT EXISTS (SELECT 1 FROM [dpone].[attempt_guard] AS h WHERE h.attempt_sha256 = a.attempt_sha256)
