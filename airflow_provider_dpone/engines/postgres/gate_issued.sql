-- issued: everything the catalog has about one issued role, to be compared with what was meant.
SELECT 'role' AS kind, ARRAY[r.rolcanlogin::text, r.rolsuper::text, r.rolcreaterole::text, r.rolcreatedb::text,
         r.rolreplication::text, r.rolbypassrls::text, r.rolinherit::text, r.rolconnlimit::text,
         (r.rolvaliduntil IS NOT NULL)::text] AS fields
  FROM pg_catalog.pg_roles AS r WHERE r.rolname = %(name)s
UNION ALL
SELECT 'gate', ARRAY[g.incarnation::text, g.state::text, g.guard, g.epoch::text, g.attempt, (g.role_oid = r.oid)::text]
  FROM dpone_gate.gate AS g LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = g.name WHERE g.name = %(name)s
UNION ALL
SELECT 'member of', ARRAY[o.rolname::text, m.admin_option::text, m.inherit_option::text, m.set_option::text]
  FROM pg_catalog.pg_auth_members AS m
  JOIN pg_catalog.pg_roles AS r ON r.oid = m.member AND r.rolname = %(name)s
  JOIN pg_catalog.pg_roles AS o ON o.oid = m.roleid
UNION ALL
SELECT DISTINCT 'member', ARRAY[o.rolname::text]
  FROM pg_catalog.pg_auth_members AS m
  JOIN pg_catalog.pg_roles AS r ON r.oid = m.roleid AND r.rolname = %(name)s
  JOIN pg_catalog.pg_roles AS o ON o.oid = m.member
UNION ALL
SELECT 'grant', ARRAY[a.kind, a.place, a.privilege, a.grantable::text]
  FROM (
    SELECT 'table' AS kind, n.nspname || '.' || c.relname AS place, x.privilege_type AS privilege,
           x.is_grantable AS grantable, x.grantee
      FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace,
           pg_catalog.aclexplode(c.relacl) AS x
    UNION ALL
    SELECT 'schema', n.nspname, x.privilege_type, x.is_grantable, x.grantee
      FROM pg_catalog.pg_namespace AS n, pg_catalog.aclexplode(n.nspacl) AS x
    UNION ALL
    SELECT 'database', d.datname, x.privilege_type, x.is_grantable, x.grantee
      FROM pg_catalog.pg_database AS d, pg_catalog.aclexplode(d.datacl) AS x
    UNION ALL
    SELECT 'column', c.relname || '.' || t.attname, x.privilege_type, x.is_grantable, x.grantee
      FROM pg_catalog.pg_attribute AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.attrelid,
           pg_catalog.aclexplode(t.attacl) AS x
    UNION ALL
    SELECT 'function', p.proname::text, x.privilege_type, x.is_grantable, x.grantee
      FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS x
  ) AS a
  JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee AND r.rolname = %(name)s
UNION ALL
SELECT 'setting', ARRAY[pg_catalog.split_part(s, '=', 1), pg_catalog.substr(s, pg_catalog.strpos(s, '=') + 1)]
  FROM pg_catalog.pg_db_role_setting AS d
  JOIN pg_catalog.pg_roles AS r ON r.oid = d.setrole AND r.rolname = %(name)s,
       pg_catalog.unnest(d.setconfig) AS s
