-- What makes this transaction this one, and how it holds the ledger lock: another transaction gives another answer.
SELECT pg_catalog.pg_current_xact_id()::text || '/' || CASE
  WHEN pg_catalog.bool_or(l.mode = 'ExclusiveLock') THEN 'Exclusive' WHEN pg_catalog.count(*) > 0 THEN 'Shared' ELSE 'NoLock' END
FROM pg_catalog.pg_locks AS l
WHERE l.locktype = 'advisory' AND l.pid = pg_catalog.pg_backend_pid() AND l.granted
  AND l.classid = 1685090149 AND l.objid = 1 AND l.objsubid = 2
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
