-- The audit of attempts; every row it returns is a disagreement: what, and which. A condition is put in where it says scope:
-- all attempts, those of one activation, or the latest on some guards.
-- Kinds: 4 intent 5 publication 6 closure 7 quiescence 8 proof 9 outcome 10 adjudication 11 receipt 27 fence
-- 28 acknowledgement 29 established. States of attempts: 1 RUNNING 2 SUCCEEDED 3 FAILED 4 COMMIT_UNKNOWN.
WITH
original AS MATERIALIZED (
  SELECT a.*, dpone.document(a.document) AS doc, dpone.digest_text(a.attempt_sha256) AS mine,
         pg_catalog.encode(a.attempt_sha256, 'hex') AS which
  FROM dpone.attempt AS a WHERE /*scope*/
),
kept AS MATERIALIZED (
  SELECT e.evidence_sha256, e.subject, e.kind, dpone.digest_text(e.evidence_sha256) AS named,
         pg_catalog.sha256(e.document) = e.evidence_sha256 AS whole,
         CASE WHEN e.kind BETWEEN 6 AND 11 OR e.kind = 29 THEN dpone.document(e.document) END AS doc
  FROM original AS o JOIN dpone.evidence AS e ON e.subject = o.attempt_sha256
),
journal AS MATERIALIZED (
  SELECT p.attempt_sha256, pg_catalog.bool_and(p.state = 4) AS closed,
    pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
      'connector', p.connector, 'service_id', p.service_id, 'name', p.name, 'purpose', p.purpose,
      'principal_uuid', p.principal_uuid)
      ORDER BY p.connector COLLATE "C", p.service_id COLLATE "C", p.name COLLATE "C") AS authorities,
    pg_catalog.to_jsonb(pg_catalog.array_agg(DISTINCT dpone.digest_text(p.closure_sha256) COLLATE "C")) AS closures,
    pg_catalog.to_jsonb(pg_catalog.array_agg(DISTINCT dpone.digest_text(p.quiescence_sha256) COLLATE "C")) AS quiets
  FROM original AS o JOIN dpone.principal AS p USING (attempt_sha256) GROUP BY p.attempt_sha256
),
sent AS MATERIALIZED (
  SELECT d.attempt_sha256, pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
      'dispatch_id', d.dispatch_id, 'name', d.principal_name, 'kind', d.kind, 'statement', d.statement,
      'state', d.state, 'note', d.note) ORDER BY d.dispatch_id) AS dispatches
  FROM original AS o JOIN dpone.dispatch AS d USING (attempt_sha256) GROUP BY d.attempt_sha256
),
held AS MATERIALIZED (
  SELECT g.attempt_sha256, pg_catalog.count(*) FILTER (WHERE g.is_open) AS open, pg_catalog.count(*) AS guards,
    pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('guard_id', dpone.digest_text(g.guard_id), 'epoch', g.epoch)
      ORDER BY g.guard_id) AS epochs,
    pg_catalog.bool_and(g.activation_sha256 = o.activation_sha256) AS under,
    dpone.digest_text(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.string_agg(
      dpone.digest_text(g.guard_id) || ' ' || g.epoch, E'\n' ORDER BY g.guard_id), 'UTF8'))) AS digest
  FROM original AS o JOIN dpone.attempt_guard AS g USING (attempt_sha256) GROUP BY g.attempt_sha256
),
published AS MATERIALIZED (
  SELECT u.*, e.kind AS intent_kind, dpone.document(e.document) AS intent, r.kind AS record_kind,
         dpone.document(r.document) AS record, r.subject AS record_subject, e.subject AS intent_subject
  FROM original AS o JOIN dpone.publication AS u USING (attempt_sha256)
  LEFT JOIN dpone.evidence AS e ON e.evidence_sha256 = u.intent_sha256
  LEFT JOIN dpone.evidence AS r ON r.evidence_sha256 = u.record_sha256
),
triplet AS MATERIALIZED (
  SELECT o.attempt_sha256, o.which, o.state, named.wanted, k.doc, k.evidence_sha256,
    pg_catalog.jsonb_build_object(
      'schema_name', 'dpone.attempt_proof.v1', 'kind', named.wanted, 'attempt_sha256', o.mine,
      'activation_sha256', dpone.digest_text(o.activation_sha256), 'family', o.doc -> 'family',
      'guard_epochs_sha256', h.digest, 'authorities', COALESCE(j.authorities, '[]'),
      'dispatches', CASE named.wanted WHEN 'closed_gates' THEN COALESCE(s.dispatches, '[]') ELSE 'null' END,
      'evidence_sha256', CASE named.wanted WHEN 'outcome' THEN k.doc -> 'evidence_sha256'
        WHEN 'closed_gates' THEN COALESCE(j.closures, '[]') ELSE COALESCE(j.quiets, '[]') END,
      'outcome_state', CASE named.wanted WHEN 'outcome' THEN pg_catalog.to_jsonb(o.state) ELSE 'null' END) AS demanded
  FROM original AS o
  CROSS JOIN LATERAL (VALUES
    ('closed_gates', o.closed_sha256), ('quiescence', o.quiescence_sha256), ('outcome', o.outcome_sha256)
  ) AS named(wanted, sha256)
  LEFT JOIN kept AS k ON k.evidence_sha256 = named.sha256 AND k.subject = o.attempt_sha256 AND k.kind = 8
  LEFT JOIN journal AS j USING (attempt_sha256)
  LEFT JOIN sent AS s USING (attempt_sha256)
  LEFT JOIN held AS h USING (attempt_sha256)
  WHERE o.state IN (2, 3) OR o.state = 4 AND named.wanted = 'outcome'
),
rests AS MATERIALIZED (
  SELECT t.attempt_sha256, t.which, t.state, t.wanted, k.kind, k.doc, k.kind IS NOT NULL AND CASE t.wanted
      WHEN 'closed_gates' THEN k.kind IN (6, 29) WHEN 'quiescence' THEN k.kind IN (7, 29)
      ELSE k.kind IN (9, 10) AND (k.doc ->> 'attempt_sha256', k.doc ->> 'state')
          IS NOT DISTINCT FROM ('sha256:' || t.which, t.state::text)
        OR k.kind = 11 AND COALESCE(dpone.receipt_stands(k.doc, t.attempt_sha256), false) END AS stands
  FROM triplet AS t
  CROSS JOIN LATERAL pg_catalog.jsonb_path_query(t.doc, 'lax $.evidence_sha256[*]') AS m
  LEFT JOIN kept AS k ON k.evidence_sha256 = dpone.digest_bytes(m #>> '{}') AND k.subject = t.attempt_sha256
)
SELECT 'evidence bytes do not match their digest', pg_catalog.encode(k.evidence_sha256, 'hex') FROM kept AS k WHERE NOT k.whole
UNION ALL
SELECT 'evidence bytes are no document', pg_catalog.encode(k.evidence_sha256, 'hex')
FROM kept AS k WHERE k.doc IS NULL AND (k.kind BETWEEN 6 AND 11 OR k.kind = 29)
UNION ALL
SELECT 'attempt bytes do not match their digest', o.which
FROM original AS o WHERE pg_catalog.sha256(o.document) <> o.attempt_sha256
UNION ALL
SELECT 'attempt bytes are no document', o.which FROM original AS o WHERE o.doc IS NULL
UNION ALL
-- the scheduler's key is over the coordinates as they stand in the document, between their neighbours
SELECT 'attempt row differs from its document', o.which
FROM original AS o
WHERE CASE WHEN o.doc IS NULL THEN false ELSE
  (o.doc ->> 'activation_sha256', o.doc ->> 'workload_id', o.doc #>> '{coordinates,dag_id}', o.doc #>> '{coordinates,run_id}',
   o.doc #>> '{coordinates,task_id}', o.doc #>> '{coordinates,map_index}', o.doc #>> '{coordinates,try_number}',
   o.doc #>> '{coordinates,task_instance_id}')
  IS DISTINCT FROM
  (dpone.digest_text(o.activation_sha256), o.workload_id, o.dag_id, o.run_id, o.task_id, o.map_index::text,
   o.try_number::text, o.task_instance_id::text)
  OR o.scheduler_key IS DISTINCT FROM pg_catalog.sha256(pg_catalog.convert_to(
    dpone.digest_text(o.activation_sha256) || E'\n' || dpone.digest_text(pg_catalog.sha256(pg_catalog.convert_to(
      pg_catalog.split_part(pg_catalog.split_part(pg_catalog.convert_from(o.document, 'UTF8'), ',"coordinates":', 2),
        ',"family":', 1), 'UTF8'))), 'UTF8')) END
UNION ALL
SELECT 'guards of an attempt differ from its document', o.which
FROM original AS o LEFT JOIN held AS h USING (attempt_sha256)
WHERE o.doc IS NOT NULL AND (h.epochs IS DISTINCT FROM o.doc -> 'guard_epochs' OR NOT h.under)
UNION ALL
SELECT 'an ended attempt has an open guard or gate', o.which
FROM original AS o LEFT JOIN journal AS j USING (attempt_sha256) LEFT JOIN held AS h USING (attempt_sha256)
WHERE o.state IN (2, 3) AND (NOT COALESCE(j.closed, true) OR COALESCE(h.open, 0) <> 0)
UNION ALL
SELECT 'an open attempt has a released guard', o.which
FROM original AS o LEFT JOIN held AS h USING (attempt_sha256)
WHERE o.state IN (1, 4) AND COALESCE(h.open, 0) <> COALESCE(h.guards, 1)
UNION ALL
SELECT 'an open attempt carries a proof of its end', o.which
FROM original AS o
WHERE o.state = 1 AND o.outcome_sha256 IS NOT NULL
   OR o.state IN (1, 4) AND (o.closed_sha256 IS NOT NULL OR o.quiescence_sha256 IS NOT NULL OR EXISTS (
     SELECT 1 FROM kept AS k WHERE k.subject = o.attempt_sha256 AND k.kind = 8 AND k.doc ->> 'kind' = 'closed_gates'))
UNION ALL
SELECT 'an ended attempt lacks a proof of its triplet', t.which
FROM triplet AS t WHERE t.doc IS NULL OR t.doc ->> 'kind' IS DISTINCT FROM t.wanted
UNION ALL
SELECT 'a proof binds something else than its attempt', t.which
FROM triplet AS t WHERE t.doc ->> 'kind' = t.wanted AND t.doc IS DISTINCT FROM t.demanded
UNION ALL
SELECT 'an original that a proof rests on is missing or another', r.which FROM rests AS r WHERE NOT r.stands
UNION ALL
SELECT 'an outcome rests on nothing that decides it', t.which
FROM triplet AS t
WHERE t.wanted = 'outcome' AND (
  1 <> (SELECT pg_catalog.count(*) FROM rests AS r
        WHERE r.attempt_sha256 = t.attempt_sha256 AND r.wanted = 'outcome' AND r.kind = 9 AND r.stands)
  OR t.state = 2 AND NOT EXISTS (
    SELECT 1 FROM rests AS r
    WHERE r.attempt_sha256 = t.attempt_sha256 AND r.wanted = 'outcome' AND r.kind IN (10, 11) AND r.stands))
UNION ALL
SELECT 'a closed gate lacks its evidence', p.name
FROM original AS o JOIN dpone.principal AS p USING (attempt_sha256)
LEFT JOIN kept AS c ON c.evidence_sha256 = p.closure_sha256 AND c.subject = o.attempt_sha256
LEFT JOIN kept AS q ON q.evidence_sha256 = p.quiescence_sha256 AND q.subject = o.attempt_sha256
WHERE (p.state = 4 OR p.closure_sha256 IS NOT NULL) AND NOT COALESCE(p.state = 4 AND (
  c.kind = 6 AND q.kind = 7
    AND (c.doc ->> 'connector', c.doc ->> 'service_id', c.doc ->> 'name') = (p.connector, p.service_id, p.name)
    AND (q.doc ->> 'connector', q.doc ->> 'service_id', q.doc ->> 'name') = (p.connector, p.service_id, p.name)
  OR c.kind = 29 AND c.evidence_sha256 = q.evidence_sha256 AND c.doc -> 'principals' ? p.name), false)
UNION ALL
SELECT 'a flag of an attempt has no original, or an original no flag', o.which
FROM original AS o
WHERE o.fenced <> EXISTS (SELECT 1 FROM kept AS k WHERE k.subject = o.attempt_sha256 AND k.kind = 27)
   OR o.acknowledged <> EXISTS (SELECT 1 FROM kept AS k WHERE k.subject = o.attempt_sha256 AND k.kind = 28)
UNION ALL
SELECT 'a publication differs from its record or its intent', pg_catalog.encode(u.intent_sha256, 'hex')
FROM published AS u
WHERE u.record_kind IS DISTINCT FROM 5 OR u.record_subject IS DISTINCT FROM u.intent_sha256
   OR u.intent_kind IS DISTINCT FROM 4 OR u.intent_subject IS DISTINCT FROM u.attempt_sha256
   OR (u.record ->> 'revision', u.record ->> 'state', u.record ->> 'intent_sha256')
      IS DISTINCT FROM (u.revision::text, u.state::text, dpone.digest_text(u.intent_sha256))
   OR (u.intent ->> 'attempt_sha256', u.intent #>> '{target,guard_id}', u.intent #>> '{target,generation_table}',
       u.intent ->> 'old_target_uuid', u.intent ->> 'generation_uuid')
      IS DISTINCT FROM (dpone.digest_text(u.attempt_sha256), dpone.digest_text(u.guard_id), u.generation_table,
       u.old_target_uuid::text, u.generation_uuid::text)
UNION ALL
SELECT 'an intent has no publication', pg_catalog.encode(k.evidence_sha256, 'hex')
FROM kept AS k
WHERE k.kind = 4 AND NOT EXISTS (SELECT 1 FROM published AS u WHERE u.intent_sha256 = k.evidence_sha256)
UNION ALL
SELECT 'a sealed generation is missing', pg_catalog.encode(u.intent_sha256, 'hex')
FROM published AS u
WHERE NOT EXISTS (
  SELECT 1 FROM kept AS k
  WHERE k.kind = 3 AND k.subject = u.attempt_sha256 AND k.named = u.intent ->> 'generation_sha256')
UNION ALL
SELECT 'an outcome names a publication record that is not there', o.which
FROM original AS o JOIN kept AS k ON k.subject = o.attempt_sha256 AND k.kind = 9 AND k.doc ->> 'publication_sha256' IS NOT NULL
WHERE NOT EXISTS (
  SELECT 1 FROM published AS u JOIN dpone.evidence AS e ON e.subject = u.intent_sha256 AND e.kind = 5
  WHERE u.attempt_sha256 = o.attempt_sha256 AND dpone.digest_text(e.evidence_sha256) = k.doc ->> 'publication_sha256')
