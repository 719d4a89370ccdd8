-- Every transaction begins with this: waits are bounded, the session and the database are looked at, and the ledger is
-- identified. A copy of the database has another number; a physical copy of the whole server has not.
SELECT pg_catalog.set_config('lock_timeout', '/*wait*/15s', true), pg_catalog.set_config('statement_timeout', '60s', true),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '60s', true),
  pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
  pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('transaction_isolation'),
  pg_catalog.current_setting('fsync'), /*reading*/NULL,
  (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c)::text || '/' || (
    SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()),
  (SELECT pg_catalog.array_agg(n.nspname || '.' || c.relname)
   FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
   WHERE c.relname IN (/*legacy*/'authority') AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
     AND n.nspname NOT IN ('pg_catalog', 'information_schema')),
  m.schema_version, m.service_id, m.family, m.incarnation, m.layout_sha256
FROM (SELECT 1) AS one LEFT JOIN dpone.ledger_meta AS m ON true
