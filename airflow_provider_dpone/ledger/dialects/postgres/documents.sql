-- How the database reads documents, and rebuilds proofs from the rows they must agree with.

-- A document as JSON; NULL when the bytes are none, so that one altered byte hides nothing else.
CREATE FUNCTION dpone.document(raw bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN pg_catalog.convert_from(raw, 'UTF8')::pg_catalog.jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  RETURN NULL;
END $$;

CREATE FUNCTION dpone.digest_text(digest bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT 'sha256:' || pg_catalog.encode(digest, 'hex')
$$;

-- The 32 bytes of a digest's text; NULL when it is none.
CREATE FUNCTION dpone.digest_bytes(digest text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE WHEN digest ~ '^sha256:[0-9a-f]{64}$' THEN pg_catalog.decode(pg_catalog.substr(digest, 8), 'hex') END
$$;

-- The proof of one kind as the rows demand it. Kinds of evidence: 6 closure 7 quiescence 29 established outside.
CREATE FUNCTION dpone.expected_proof(ended bytea, wanted text, rests jsonb, state smallint) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT (
  SELECT pg_catalog.jsonb_build_object(
    'schema_name', 'dpone.attempt_proof.v1', 'kind', wanted, 'attempt_sha256', dpone.digest_text(a.attempt_sha256),
    'activation_sha256', dpone.digest_text(a.activation_sha256),
    'family', dpone.document(a.document) -> 'family',
    'guard_epochs_sha256', (
      SELECT dpone.digest_text(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.string_agg(
        dpone.digest_text(g.guard_id) || ' ' || g.epoch, E'\n' ORDER BY g.guard_id), 'UTF8')))
      FROM dpone.attempt_guard AS g WHERE g.attempt_sha256 = a.attempt_sha256),
    'authorities', (
      SELECT COALESCE(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
        'connector', p.connector, 'service_id', p.service_id, 'name', p.name, 'purpose', p.purpose,
        'principal_uuid', p.principal_uuid)
        ORDER BY p.connector COLLATE "C", p.service_id COLLATE "C", p.name COLLATE "C"), '[]')
      FROM dpone.principal AS p WHERE p.attempt_sha256 = a.attempt_sha256),
    'dispatches', CASE WHEN wanted = 'closed_gates' THEN (
      SELECT COALESCE(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
        'dispatch_id', d.dispatch_id, 'name', d.principal_name, 'kind', d.kind, 'statement', d.statement,
        'state', d.state, 'note', d.note) ORDER BY d.dispatch_id), '[]')
      FROM dpone.dispatch AS d WHERE d.attempt_sha256 = a.attempt_sha256) ELSE 'null' END,
    'evidence_sha256', CASE wanted WHEN 'outcome' THEN rests ELSE (
      SELECT COALESCE(pg_catalog.to_jsonb(pg_catalog.array_agg(DISTINCT dpone.digest_text(
        CASE wanted WHEN 'closed_gates' THEN p.closure_sha256 ELSE p.quiescence_sha256 END) COLLATE "C")), '[]')
      FROM dpone.principal AS p WHERE p.attempt_sha256 = a.attempt_sha256) END,
    'outcome_state', CASE WHEN wanted = 'outcome' THEN pg_catalog.to_jsonb(expected_proof.state) ELSE 'null' END)
  FROM dpone.attempt AS a WHERE a.attempt_sha256 = ended
)
$$;

-- Whether a named proof is the one the rows demand.
CREATE FUNCTION dpone.proof_binds(named bytea, ended bytea, wanted text, state smallint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
  SELECT 1 FROM dpone.evidence AS e
  WHERE e.evidence_sha256 = named AND e.subject = ended AND e.kind = 8
    AND dpone.document(e.document) = dpone.expected_proof(
      ended, wanted, dpone.document(e.document) -> 'evidence_sha256', state)
)
$$;

-- Whether a receipt says of its attempt what only the work itself leaves behind: a publication that is PUBLISHED, a claimed
-- commit of the recorded load, a dbt build and what was read back. Kinds: 15 load 21 read-back.
CREATE FUNCTION dpone.receipt_stands(receipt jsonb, ended bytea) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT (
  SELECT receipt ->> 'attempt_sha256' = dpone.digest_text(ended) AND CASE dpone.document(a.document) ->> 'cell'
    WHEN 'postgres_mssql_full_refresh' THEN receipt ->> 'schema_name' = 'dpone.load_receipt.v1'
      AND EXISTS (
        SELECT 1 FROM dpone.evidence AS e
        WHERE e.evidence_sha256 = dpone.digest_bytes(receipt ->> 'load_sha256') AND e.kind = 15 AND e.subject = ended)
      AND EXISTS (
        SELECT 1 FROM dpone.dispatch AS d
        WHERE d.attempt_sha256 = ended AND d.kind = 'commit' AND d.statement = 'COMMIT of ' || (receipt ->> 'load_sha256'))
    WHEN 'dbt_native' THEN receipt ->> 'schema_name' = 'dpone.dbt_receipt.v1'
      AND EXISTS (
        SELECT 1 FROM dpone.evidence AS e
        WHERE e.evidence_sha256 = dpone.digest_bytes(receipt ->> 'read_back_sha256') AND e.kind = 21 AND e.subject = ended)
      AND EXISTS (SELECT 1 FROM dpone.dispatch AS d WHERE d.attempt_sha256 = ended AND d.kind = 'dbt_build')
    WHEN 'mssql_clickhouse_full_refresh' THEN CASE receipt ->> 'schema_name'
      WHEN 'dpone.snapshot_receipt.v1' THEN EXISTS (
        SELECT 1 FROM dpone.publication AS u
        WHERE u.attempt_sha256 = ended AND u.state = 3
          AND u.record_sha256 = dpone.digest_bytes(receipt ->> 'publication_sha256')
          AND u.intent_sha256 = dpone.digest_bytes(receipt ->> 'intent_sha256'))
      WHEN 'dpone.retention_receipt.v1' THEN
        NOT EXISTS (SELECT 1 FROM dpone.publication AS u WHERE u.attempt_sha256 = ended)
      ELSE false END
    ELSE false END
  FROM dpone.attempt AS a WHERE a.attempt_sha256 = ended
)
$$;

-- Why an outcome proof decides nothing, or NULL. It rests on one outcome of the state and on nothing but outcome, receipt
-- and decision of its attempt; SUCCEEDED needs a receipt that stands or, after COMMIT_UNKNOWN, a decision; an attempt whose
-- gates were established outside ends as COMMIT_UNKNOWN and is then decided.
-- Kinds: 9 outcome 10 adjudication 11 receipt 29 established. States: 1 RUNNING 2 SUCCEEDED 4 COMMIT_UNKNOWN.
CREATE FUNCTION dpone.outcome_refusal(named bytea, ended bytea, before smallint, state smallint) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  outcomes bigint;
  strange bigint;
  decided boolean;
  received boolean;
  established boolean;
BEGIN
  SELECT pg_catalog.count(*) FILTER (WHERE r.kind = 9 AND r.agrees),
         pg_catalog.count(*) FILTER (WHERE NOT COALESCE(r.agrees, false)),
         COALESCE(pg_catalog.bool_or(r.kind = 10 AND r.agrees), false),
         COALESCE(pg_catalog.bool_or(r.kind = 11 AND r.agrees), false)
  INTO outcomes, strange, decided, received
  FROM (
    SELECT e.kind, e.subject = ended AND CASE e.kind
        WHEN 11 THEN dpone.receipt_stands(dpone.document(e.document), ended)
        WHEN 9 THEN dpone.document(e.document) @> named_state
        WHEN 10 THEN dpone.document(e.document) @> named_state
        ELSE false END AS agrees
    FROM dpone.evidence AS proof
    CROSS JOIN LATERAL pg_catalog.jsonb_path_query(dpone.document(proof.document), 'lax $.evidence_sha256[*]') AS m
    LEFT JOIN dpone.evidence AS e ON e.evidence_sha256 = dpone.digest_bytes(m #>> '{}')
    CROSS JOIN LATERAL pg_catalog.jsonb_build_object(
      'attempt_sha256', dpone.digest_text(ended), 'state', outcome_refusal.state) AS named_state
    WHERE proof.evidence_sha256 = named
  ) AS r;
  established := EXISTS (
    SELECT 1 FROM dpone.principal AS p JOIN dpone.evidence AS e ON e.evidence_sha256 = p.closure_sha256
    WHERE p.attempt_sha256 = ended AND e.kind = 29);
  IF outcomes <> 1 OR strange <> 0 THEN RETURN 'outcome_evidence'; END IF;
  IF outcome_refusal.state = 2 AND NOT received AND NOT (before = 4 AND decided) THEN RETURN 'outcome_receipt'; END IF;
  IF established AND outcome_refusal.state IN (2, 3) AND NOT (before = 4 AND decided) THEN RETURN 'outcome_decision'; END IF;
  RETURN NULL;
END $$
