-- relations_outside: views (through their rule) and constraints outside a schema that depend on a relation in it
WITH inside AS (
  SELECT c.oid, c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
   WHERE n.nspname = %(schema)s
), dependent AS (
  SELECT i.relname, COALESCE(w.ev_class, k.conrelid) AS relation
    FROM inside AS i
    JOIN pg_catalog.pg_depend AS d ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = i.oid
    LEFT JOIN pg_catalog.pg_rewrite AS w
      ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND w.oid = d.objid
    LEFT JOIN pg_catalog.pg_constraint AS k
      ON d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND k.oid = d.objid
)
SELECT DISTINCT n.nspname || '.' || c.relname || ' on ' || t.relname
  FROM dependent AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.relation
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname <> %(schema)s
 ORDER BY 1
