-- The audit of everything that is no attempt's; every row it returns is a disagreement: what, and which.
-- Kinds: 1 enrolment 2 release 13 deployment 14 observation; 4, 6 to 11, 15 to 18, 21, 26 to 29 are about an attempt.
-- States of activations: 1 PREPARED 2 ACTIVE 3 RETIRING 4 RETIRED.
WITH
request AS MATERIALIZED (
  SELECT a.*, dpone.document(a.document) AS doc, pg_catalog.encode(a.activation_sha256, 'hex') AS which
  FROM dpone.activation AS a
),
owned AS MATERIALIZED (
  SELECT g.*, pg_catalog.encode(g.guard_id, 'hex') AS which, e.kind AS enrolment_kind, dpone.document(e.document) AS doc,
         e.subject AS enrolment_subject
  FROM dpone.guard AS g LEFT JOIN dpone.evidence AS e ON e.evidence_sha256 = g.enrolment_sha256
)
SELECT 'evidence bytes do not match their digest', pg_catalog.encode(e.evidence_sha256, 'hex')
FROM dpone.evidence AS e LEFT JOIN dpone.attempt AS a ON a.attempt_sha256 = e.subject
WHERE a.attempt_sha256 IS NULL AND pg_catalog.sha256(e.document) <> e.evidence_sha256
UNION ALL
SELECT 'evidence of an attempt that is not there', pg_catalog.encode(e.subject, 'hex')
FROM dpone.evidence AS e LEFT JOIN dpone.attempt AS a ON a.attempt_sha256 = e.subject
WHERE a.attempt_sha256 IS NULL AND (e.kind IN (3, 4, 12, 21) OR e.kind BETWEEN 6 AND 11 OR e.kind BETWEEN 15 AND 18
  OR e.kind BETWEEN 26 AND 29)
UNION ALL
SELECT 'a record of a publication that is not there', pg_catalog.encode(e.subject, 'hex')
FROM dpone.evidence AS e LEFT JOIN dpone.publication AS u ON u.intent_sha256 = e.subject
WHERE e.kind = 5 AND u.intent_sha256 IS NULL
UNION ALL
SELECT 'activation bytes do not match their digest', r.which
FROM request AS r WHERE pg_catalog.sha256(r.document) <> r.activation_sha256
UNION ALL
SELECT 'activation bytes are no document', r.which FROM request AS r WHERE r.doc IS NULL
UNION ALL
SELECT 'activation row differs from its document', r.which
FROM request AS r
WHERE r.doc IS NOT NULL
  AND (r.doc ->> 'occurrence_id', r.doc ->> 'environment', r.doc ->> 'release_id', r.doc ->> 'family') IS DISTINCT FROM
      (r.occurrence_id::text, r.environment, dpone.digest_text(r.release_sha256), (SELECT m.family FROM dpone.ledger_meta AS m))
UNION ALL
SELECT 'an original of an activation is missing', r.which
FROM request AS r
CROSS JOIN LATERAL (
  SELECT r.doc ->> 'release_id' AS named, 2 AS kind
  UNION ALL SELECT r.doc ->> 'deployment_id', 13
  UNION ALL SELECT r.doc ->> 'observation_sha256', 14
  UNION ALL SELECT m ->> 'enrolment_sha256', 1 FROM pg_catalog.jsonb_path_query(r.doc, 'lax $.resources[*]') AS m
) AS needed
WHERE r.doc IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM dpone.evidence AS e WHERE e.evidence_sha256 = dpone.digest_bytes(needed.named) AND e.kind = needed.kind)
UNION ALL
SELECT 'guards of an activation differ from its document', r.which
FROM request AS r
WHERE r.doc IS NOT NULL
  AND (SELECT pg_catalog.array_agg(dpone.digest_text(g.guard_id) COLLATE "C" ORDER BY g.guard_id)
       FROM dpone.activation_guard AS g WHERE g.activation_sha256 = r.activation_sha256)
  IS DISTINCT FROM
      (SELECT pg_catalog.array_agg((m ->> 'guard_id') COLLATE "C" ORDER BY m ->> 'guard_id' COLLATE "C")
       FROM pg_catalog.jsonb_path_query(r.doc, 'lax $.resources[*]') AS m)
UNION ALL
SELECT 'an activation in force does not own its guard, or one that is retired does', r.which
FROM request AS r
JOIN dpone.activation_guard AS h USING (activation_sha256)
JOIN dpone.guard AS g ON g.guard_id = h.guard_id
WHERE (r.state = 4) = (g.owner_sha256 IS NOT DISTINCT FROM r.activation_sha256)
   OR r.state <> 4 AND g.epoch <> h.epoch
UNION ALL
SELECT 'a guard is owned by no activation in force', g.which
FROM owned AS g
WHERE g.owner_sha256 IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM dpone.activation AS a WHERE a.activation_sha256 = g.owner_sha256 AND a.state IN (1, 2, 3))
UNION ALL
SELECT 'a guard is another than its identity or its enrolment says', g.which
FROM owned AS g
WHERE g.guard_id <> pg_catalog.sha256(pg_catalog.convert_to(
    pg_catalog.concat_ws(E'\n', 'dpone.guard.v1', g.connector, g.service_id, g.subject), 'UTF8'))
   OR g.enrolment_kind IS DISTINCT FROM 1 OR g.enrolment_subject IS DISTINCT FROM g.guard_id
   OR (g.doc #>> '{marker,connector}', g.doc #>> '{marker,service_id}') IS DISTINCT FROM (g.connector, g.service_id)
   OR g.epoch <> COALESCE((SELECT pg_catalog.max(h.epoch) FROM dpone.activation_guard AS h WHERE h.guard_id = g.guard_id), 0)
UNION ALL
-- the table under the name: the last of the publications, or the enrolled one as long as nothing replaced it (a table may
-- be enrolled again after it was replaced, and then nobody can tell)
SELECT 'the table of a guard is neither the enrolled nor the published one', g.which
FROM owned AS g
WHERE g.target_uuid::text IS DISTINCT FROM g.doc ->> 'target_uuid' AND NOT EXISTS (
    SELECT 1 FROM dpone.publication AS u
    WHERE u.guard_id = g.guard_id AND u.state = 3 AND u.generation_uuid = g.target_uuid)
  OR EXISTS (
    SELECT 1 FROM dpone.publication AS u
    WHERE u.guard_id = g.guard_id AND u.state = 3 AND u.old_target_uuid = g.target_uuid)
  AND (g.target_uuid::text IS DISTINCT FROM g.doc ->> 'target_uuid' OR 1 = (
    SELECT pg_catalog.count(*) FROM dpone.evidence AS e WHERE e.subject = g.guard_id AND e.kind = 1))
UNION ALL
SELECT 'attempts of a guard are missing', g.which
FROM owned AS g
WHERE g.admitted <> (SELECT pg_catalog.count(*) FROM dpone.attempt_guard AS h WHERE h.guard_id = g.guard_id)
   OR g.admitted <> COALESCE((SELECT pg_catalog.max(h.ordinal) FROM dpone.attempt_guard AS h WHERE h.guard_id = g.guard_id), 0)
UNION ALL
SELECT 'an attempt holds no guard', pg_catalog.encode(a.attempt_sha256, 'hex')
FROM dpone.attempt AS a
WHERE NOT EXISTS (SELECT 1 FROM dpone.attempt_guard AS h WHERE h.attempt_sha256 = a.attempt_sha256)
