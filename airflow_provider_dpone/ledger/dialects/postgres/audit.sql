-- The audit of all originals in one statement; every row it returns is a disagreement: what, and which.
-- Kinds: 8 proof, 9 outcome, 3 generation, 4 intent, 5 publication. States of attempts: 2 SUCCEEDED 3 FAILED.
WITH
original AS MATERIALIZED (
  SELECT a.*, pg_catalog.convert_from(a.document, 'UTF8')::jsonb AS doc FROM dpone.attempt AS a
),
request AS MATERIALIZED (
  SELECT a.*, pg_catalog.convert_from(a.document, 'UTF8')::jsonb AS doc FROM dpone.activation AS a
),
proof AS MATERIALIZED (
  SELECT e.evidence_sha256, e.subject, pg_catalog.convert_from(e.document, 'UTF8')::jsonb AS doc
  FROM dpone.evidence AS e WHERE e.kind = 8
),
journal AS MATERIALIZED (
  SELECT p.attempt_sha256, pg_catalog.count(*) AS principals,
         pg_catalog.bool_and(p.state = 4) AS closed,
         pg_catalog.array_agg(p.connector || ' ' || p.service_id || ' ' || p.name ORDER BY p.connector COLLATE "C", p.service_id COLLATE "C", p.name COLLATE "C") AS names
  FROM dpone.principal AS p GROUP BY p.attempt_sha256
)
SELECT 'evidence bytes do not match their digest', pg_catalog.encode(e.evidence_sha256, 'hex')
FROM dpone.evidence AS e WHERE pg_catalog.sha256(e.document) <> e.evidence_sha256
UNION ALL
SELECT 'activation bytes do not match their digest', pg_catalog.encode(r.activation_sha256, 'hex')
FROM request AS r WHERE pg_catalog.sha256(r.document) <> r.activation_sha256
UNION ALL
SELECT 'activation row differs from its document', pg_catalog.encode(r.activation_sha256, 'hex')
FROM request AS r
WHERE (r.doc ->> 'occurrence_id') <> r.occurrence_id::text OR (r.doc ->> 'environment') <> r.environment
   OR (r.doc ->> 'release_id') <> 'sha256:' || pg_catalog.encode(r.release_sha256, 'hex')
UNION ALL
SELECT 'guards of an activation differ from its document', pg_catalog.encode(r.activation_sha256, 'hex')
FROM request AS r
WHERE (SELECT pg_catalog.array_agg('sha256:' || pg_catalog.encode(g.guard_id, 'hex') ORDER BY g.guard_id)
       FROM dpone.activation_guard AS g WHERE g.activation_sha256 = r.activation_sha256)
  IS DISTINCT FROM
      (SELECT pg_catalog.array_agg(m ->> 'guard_id' ORDER BY pg_catalog.decode(pg_catalog.substr(m ->> 'guard_id', 8), 'hex'))
       FROM pg_catalog.jsonb_array_elements(r.doc -> 'resources') AS m)
UNION ALL
SELECT 'attempt bytes do not match their digest', pg_catalog.encode(o.attempt_sha256, 'hex')
FROM original AS o WHERE pg_catalog.sha256(o.document) <> o.attempt_sha256
UNION ALL
SELECT 'attempt row differs from its document', pg_catalog.encode(o.attempt_sha256, 'hex')
FROM original AS o
WHERE (o.doc ->> 'activation_sha256') <> 'sha256:' || pg_catalog.encode(o.activation_sha256, 'hex')
   OR (o.doc ->> 'workload_id', o.doc #>> '{coordinates,dag_id}', o.doc #>> '{coordinates,run_id}',
       o.doc #>> '{coordinates,task_id}', (o.doc #>> '{coordinates,map_index}')::integer,
       (o.doc #>> '{coordinates,try_number}')::bigint, (o.doc #>> '{coordinates,task_instance_id}')::uuid)
      IS DISTINCT FROM
      (o.workload_id, o.dag_id, o.run_id, o.task_id, o.map_index, o.try_number, o.task_instance_id)
UNION ALL
SELECT 'guards of an attempt differ from its document', pg_catalog.encode(o.attempt_sha256, 'hex')
FROM original AS o
WHERE (SELECT pg_catalog.array_agg('sha256:' || pg_catalog.encode(g.guard_id, 'hex') || ' ' || g.epoch ORDER BY g.guard_id)
       FROM dpone.attempt_guard AS g WHERE g.attempt_sha256 = o.attempt_sha256)
  IS DISTINCT FROM
      (SELECT pg_catalog.array_agg((m ->> 'guard_id') || ' ' || (m ->> 'epoch')
                                   ORDER BY pg_catalog.decode(pg_catalog.substr(m ->> 'guard_id', 8), 'hex'))
       FROM pg_catalog.jsonb_array_elements(o.doc -> 'guard_epochs') AS m)
UNION ALL
SELECT 'an ended attempt has an open guard or gate', pg_catalog.encode(o.attempt_sha256, 'hex')
FROM original AS o LEFT JOIN journal AS j USING (attempt_sha256)
WHERE o.state IN (2, 3)
  AND (NOT COALESCE(j.closed, true)
       OR EXISTS (SELECT 1 FROM dpone.attempt_guard AS g WHERE g.attempt_sha256 = o.attempt_sha256 AND g.is_open))
UNION ALL
SELECT 'an ended attempt lacks a proof of its triplet', pg_catalog.encode(o.attempt_sha256, 'hex')
FROM original AS o
LEFT JOIN proof AS c ON c.evidence_sha256 = o.closed_sha256 AND c.doc ->> 'kind' = 'closed_gates'
LEFT JOIN proof AS q ON q.evidence_sha256 = o.quiescence_sha256 AND q.doc ->> 'kind' = 'quiescence'
LEFT JOIN proof AS u ON u.evidence_sha256 = o.outcome_sha256 AND u.doc ->> 'kind' = 'outcome'
WHERE o.state IN (2, 3)
  AND (c.doc IS NULL OR q.doc IS NULL OR u.doc IS NULL OR (u.doc ->> 'outcome_state')::integer IS DISTINCT FROM o.state)
UNION ALL
SELECT 'a proof binds something else than its attempt', pg_catalog.encode(o.attempt_sha256, 'hex')
FROM original AS o
CROSS JOIN LATERAL (VALUES (o.closed_sha256), (o.quiescence_sha256), (o.outcome_sha256)) AS named(sha256)
JOIN proof AS p ON p.evidence_sha256 = named.sha256
LEFT JOIN journal AS j USING (attempt_sha256)
WHERE o.state IN (2, 3)
  AND (p.subject <> o.attempt_sha256
       OR p.doc ->> 'attempt_sha256' <> 'sha256:' || pg_catalog.encode(o.attempt_sha256, 'hex')
       OR p.doc ->> 'activation_sha256' <> o.doc ->> 'activation_sha256'
       OR p.doc ->> 'family' <> o.doc ->> 'family'
       OR (SELECT pg_catalog.array_agg((m ->> 'connector') || ' ' || (m ->> 'service_id') || ' ' || (m ->> 'name')
                                       ORDER BY m ->> 'connector' COLLATE "C", m ->> 'service_id' COLLATE "C", m ->> 'name' COLLATE "C")
           FROM pg_catalog.jsonb_array_elements(p.doc -> 'authorities') AS m)
          IS DISTINCT FROM j.names)
