-- Fingerprint of everything that makes the ledger what it is: columns, constraints, indexes, rules, triggers and whether they
-- are enabled, functions with all their settings, heirs, owners, grants on the schema, its tables, their columns and functions,
-- and who else is the owner. One round trip, the same text on every installation.
SELECT pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.string_agg(line, E'\n' ORDER BY line COLLATE "C"), 'UTF8'))
FROM (
  SELECT pg_catalog.concat_ws('|', 'column', c.relname, a.attnum, a.attname,
           pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_catalog.pg_get_expr(d.adbin, d.adrelid),
           a.attacl::text) AS line
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
  WHERE c.relnamespace = 'dpone'::regnamespace AND c.relkind IN ('r', 'v')
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'relation', c.relname, c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
           c.relowner::regrole, c.relacl::text)
  FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'dpone'::regnamespace
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'schema', n.nspowner::regrole, n.nspacl::text)
  FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'dpone'
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
  SELECT pg_catalog.concat_ws('|', 'rule', r.ev_class::regclass, r.ev_enabled, pg_catalog.pg_get_ruledef(r.oid))
  FROM pg_catalog.pg_rewrite AS r JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class
  WHERE c.relnamespace = 'dpone'::regnamespace
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'heir', i.inhparent::regclass, i.inhrelid::regclass)
  FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhparent
  WHERE c.relnamespace = 'dpone'::regnamespace
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'policy', p.polrelid::regclass, p.polname)
  FROM pg_catalog.pg_policy AS p JOIN pg_catalog.pg_class AS c ON c.oid = p.polrelid
  WHERE c.relnamespace = 'dpone'::regnamespace
  UNION ALL
  SELECT pg_catalog.concat_ws('|', 'function', p.oid::regprocedure, p.prorettype::regtype, p.prolang, p.provolatile,
           p.proisstrict, p.prosecdef, p.proconfig::text, p.proowner::regrole, p.proacl::text, p.prosrc, p.prosqlbody IS NULL)
  FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'dpone'::regnamespace
  UNION ALL
  -- who can act as an owner of any of it, directly or through others
  SELECT pg_catalog.concat_ws('|', 'member', m.roleid::regrole, m.member::regrole) FROM (
    WITH RECURSIVE acts_as (roleid, member) AS (
      SELECT m.roleid, m.member FROM pg_catalog.pg_auth_members AS m WHERE m.roleid IN (
        SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'dpone'::regnamespace
        UNION SELECT n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'dpone'
        UNION SELECT p.proowner FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'dpone'::regnamespace)
      UNION
      SELECT m.roleid, m.member FROM acts_as AS a JOIN pg_catalog.pg_auth_members AS m ON m.roleid = a.member
    )
    SELECT a.roleid, a.member FROM acts_as AS a) AS m
) AS layout
