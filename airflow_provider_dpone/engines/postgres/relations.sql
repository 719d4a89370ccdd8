-- relations: name and kind of every relation of a schema; a sequence that belongs to a column goes with its table
SELECT c.relname::text, c.relkind::text
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
   AND NOT (c.relkind = 'S' AND EXISTS (
     SELECT FROM pg_catalog.pg_depend AS d
      WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')))
 ORDER BY c.relname
