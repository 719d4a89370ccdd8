-- Fingerprint of everything that makes the ledger what it is: columns, constraints, indexes, triggers and whether they
-- are enabled, function bodies and settings, owners and grants. One round trip, the same text on every installation.
SELECT pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.string_agg(line, E'\n' ORDER BY line COLLATE "C"), 'UTF8'))
FROM (
  SELECT pg_catalog.concat_ws('|', 'column', c.relname, a.attnum, a.attname,
           pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_catalog.pg_get_expr(d.adbin, d.adrelid)) AS line
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
  WHERE c.relnamespace = 'dpone'::regnamespace AND c.relkind IN ('r', 'v')
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'relation', c.relname, c.relkind, c.relpersistence, c.relrowsecurity)
  FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'dpone'::regnamespace
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'constraint', r.conrelid::regclass, r.conname, r.convalidated,
           pg_catalog.pg_get_constraintdef(r.oid))
  FROM pg_catalog.pg_constraint AS r WHERE r.connamespace = 'dpone'::regnamespace
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'index', i.indexrelid::regclass, i.indisvalid, pg_catalog.pg_get_indexdef(i.indexrelid))
  FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid
  WHERE c.relnamespace = 'dpone'::regnamespace
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'trigger', t.tgrelid::regclass, t.tgenabled, pg_catalog.pg_get_triggerdef(t.oid))
  FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
  WHERE c.relnamespace = 'dpone'::regnamespace AND NOT t.tgisinternal
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'function', p.oid::regprocedure, p.prosecdef, p.proconfig::text, p.prosrc)
  FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'dpone'::regnamespace
) AS layout
