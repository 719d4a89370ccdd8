-- One relation: where it is, what kind it is, and what would keep the current user from reading all of it.
SELECT (SELECT system_identifier::text FROM pg_catalog.pg_control_system())       AS system_identifier,
       pg_catalog.current_database()                                              AS database,
       (SELECT d.oid::text FROM pg_catalog.pg_database d
         WHERE d.datname = pg_catalog.current_database())                         AS database_oid,
       c.oid::text                                                                AS relation_oid,
       c.relkind::text                                                            AS kind,
       c.relpersistence::text                                                     AS persistence,
       c.relispopulated                                                           AS populated,
       pg_catalog.row_security_active(c.oid)                                      AS row_security,
       pg_catalog.current_setting('server_encoding')                              AS encoding,
       pg_catalog.current_setting('server_version_num')::int                      AS version,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE')                            AS schema_usage,
       EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)    AS has_children,
       ARRAY(SELECT k.oid::regclass::text
               FROM pg_catalog.pg_partition_tree(c.oid) t
               JOIN pg_catalog.pg_class k ON k.oid = t.relid
              WHERE t.isleaf AND k.relkind NOT IN ('r', 'p') ORDER BY 1)          AS foreign_leaves,
       EXISTS (SELECT FROM pg_catalog.pg_seclabels l
                WHERE l.provider = 'anon' AND l.objtype = 'role'
                  AND l.objname = pg_catalog.quote_ident(current_user))           AS masked
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(namespace)s
   AND c.relname = %(name)s
