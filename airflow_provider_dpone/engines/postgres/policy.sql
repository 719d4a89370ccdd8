-- policy: every reason why one-time logins would not be confined to the managed schema, or why somebody else can write
-- it. One row per finding: reason, what was found.
WITH managed AS (
  SELECT n.oid, n.nspname, n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = %(schema)s
), owner AS (
  SELECT r.* FROM pg_catalog.pg_roles AS r WHERE r.rolname = %(owner)s
), here AS (
  SELECT d.* FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()
), relations AS (
  SELECT c.oid, c.relname, c.relowner, c.relkind FROM pg_catalog.pg_class AS c JOIN managed AS m ON m.oid = c.relnamespace
   WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
), able AS (
  -- roles that can write, by right, by ownership or through PUBLIC
  SELECT r.oid, 'CREATE in the schema' AS how FROM pg_catalog.pg_roles AS r, managed AS m
   WHERE pg_catalog.has_schema_privilege(r.oid, m.oid, 'CREATE')
  UNION
  SELECT r.oid, 'write ' || t.relname FROM pg_catalog.pg_roles AS r, relations AS t
   WHERE pg_catalog.has_table_privilege(r.oid, t.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER, REFERENCES, MAINTAIN')
      OR pg_catalog.has_any_column_privilege(r.oid, t.oid, 'INSERT, UPDATE, REFERENCES')
)
SELECT 'schema_missing' AS reason, %(schema)s AS found WHERE NOT EXISTS (SELECT FROM managed)
UNION ALL
SELECT 'schema_owner', r.rolname FROM managed AS m JOIN pg_catalog.pg_roles AS r ON r.oid = m.nspowner
 WHERE r.rolname <> %(owner)s
UNION ALL
SELECT 'owner_role', pg_catalog.concat_ws(', ', CASE WHEN o.rolcanlogin THEN 'can log in' END,
         CASE WHEN o.rolsuper THEN 'superuser' END, CASE WHEN o.rolcreaterole THEN 'CREATEROLE' END,
         CASE WHEN o.rolcreatedb THEN 'CREATEDB' END, CASE WHEN o.rolbypassrls THEN 'BYPASSRLS' END,
         CASE WHEN o.rolreplication THEN 'REPLICATION' END)
  FROM owner AS o
 WHERE o.rolcanlogin OR o.rolsuper OR o.rolcreaterole OR o.rolcreatedb OR o.rolbypassrls OR o.rolreplication
UNION ALL
SELECT 'owner_member_of', g.rolname
  FROM owner AS o JOIN pg_catalog.pg_auth_members AS m ON m.member = o.oid
  JOIN pg_catalog.pg_roles AS g ON g.oid = m.roleid
 WHERE NOT (g.rolname ~ '^dpone_w_[0-9a-f]{32}$' AND NOT g.rolcanlogin)
UNION ALL
SELECT 'owner_elsewhere', pg_catalog.pg_describe_object(s.classid, s.objid, s.objsubid)
  FROM owner AS o JOIN here AS h ON true
  JOIN pg_catalog.pg_shdepend AS s ON s.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass AND s.refobjid = o.oid
 WHERE s.dbid IN (0, h.oid) AND s.deptype IN ('o', 'a')
   AND NOT (s.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass AND s.objid = (SELECT m.oid FROM managed AS m))
   AND NOT (s.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND EXISTS (
     SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = s.objid AND c.relnamespace = (SELECT m.oid FROM managed AS m)))
   AND NOT (s.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND EXISTS (
     SELECT FROM pg_catalog.pg_type AS t WHERE t.oid = s.objid AND t.typnamespace = (SELECT m.oid FROM managed AS m)))
   AND NOT (s.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND EXISTS (
     SELECT FROM pg_catalog.pg_proc AS p WHERE p.oid = s.objid AND p.pronamespace = (SELECT m.oid FROM managed AS m)))
   AND s.classid NOT IN ('pg_catalog.pg_default_acl'::pg_catalog.regclass)
UNION ALL
SELECT 'foreign_owner', t.relname || ' is owned by ' || r.rolname
  FROM relations AS t JOIN pg_catalog.pg_roles AS r ON r.oid = t.relowner
 WHERE r.rolname <> %(owner)s AND NOT (r.rolname ~ '^dpone_w_[0-9a-f]{32}$')
UNION ALL
SELECT 'public_connect', h.datname FROM here AS h WHERE pg_catalog.has_database_privilege('public', h.oid, 'CONNECT')
UNION ALL
SELECT 'public_create', h.datname FROM here AS h WHERE pg_catalog.has_database_privilege('public', h.oid, 'CREATE')
UNION ALL
SELECT 'public_create', 'schema ' || n.nspname FROM pg_catalog.pg_namespace AS n
 WHERE n.nspname !~ '^pg_(toast_)?temp_' AND pg_catalog.has_schema_privilege('public', n.oid, 'CREATE')
UNION ALL
SELECT 'public_write', n.nspname || '.' || c.relname
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
   AND n.nspname !~ '^pg_(toast_)?temp_'
   AND pg_catalog.has_table_privilege('public', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
UNION ALL
SELECT 'definer_function', pg_catalog.format('%%s.%%s', n.nspname, p.proname)
  FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
 WHERE p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'dpone_gate')
   AND pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE')
UNION ALL
SELECT 'untrusted_language', l.lanname FROM pg_catalog.pg_language AS l
 WHERE NOT l.lanpltrusted AND l.lanname NOT IN ('internal', 'c')
   AND pg_catalog.has_language_privilege('public', l.oid, 'USAGE')
UNION ALL
SELECT 'controller', 'needs CREATEROLE' FROM pg_catalog.pg_roles AS r
 WHERE r.rolname = %(controller)s AND NOT (r.rolcreaterole OR r.rolsuper)
UNION ALL
SELECT 'controller', 'needs the role of the owner WITH ADMIN TRUE, INHERIT TRUE, SET TRUE' FROM pg_catalog.pg_roles AS r, owner AS o
 WHERE r.rolname = %(controller)s AND NOT r.rolsuper AND NOT EXISTS (
   SELECT FROM pg_catalog.pg_auth_members AS m
    WHERE m.member = r.oid AND m.roleid = o.oid AND m.admin_option AND m.inherit_option AND m.set_option)
UNION ALL
SELECT DISTINCT 'ambient_writer', l.rolname || ' can ' || a.how
  FROM able AS a JOIN pg_catalog.pg_roles AS l ON l.rolcanlogin AND pg_catalog.pg_has_role(l.oid, a.oid, 'MEMBER')
 WHERE l.rolname <> ALL (%(administrators)s::name[]) AND l.rolname <> %(controller)s
   AND l.rolname !~ '^dpone_w_[0-9a-f]{32}$'
ORDER BY 1, 2
