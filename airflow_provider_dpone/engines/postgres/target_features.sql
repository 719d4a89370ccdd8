-- One target table: where it is, and everything attached to it that would change, multiply or hide rows.
SELECT c.oid::text, c.relkind::text, c.relpersistence::text, r.rolname, c.relrowsecurity,
       ARRAY(
         SELECT feature FROM (
           SELECT 'trigger:' || %(shown)s || '.' || t.tgname AS feature
             FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D'
           UNION ALL
           SELECT 'rule:' || %(shown)s || '.' || w.rulename FROM pg_catalog.pg_rewrite AS w WHERE w.ev_class = c.oid
           UNION ALL
           SELECT 'referenced_by:' || k.conrelid::pg_catalog.regclass || '.' || k.conname
             FROM pg_catalog.pg_constraint AS k WHERE k.confrelid = c.oid AND k.contype = 'f'
           UNION ALL
           SELECT 'publication:' || p.pubname FROM pg_catalog.pg_publication AS p
            WHERE p.puballtables
               OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel AS q WHERE q.prpubid = p.oid AND q.prrelid = c.oid)
               OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace AS q
                           WHERE q.pnpubid = p.oid AND q.pnnspid = c.relnamespace)
           UNION ALL
           SELECT 'inheritance:' || i.inhparent::pg_catalog.regclass || ' over ' || i.inhrelid::pg_catalog.regclass
             FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid = c.oid OR i.inhparent = c.oid
         ) AS f ORDER BY 1),
       pg_catalog.current_setting('server_encoding')
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles AS r ON r.oid = c.relowner
 WHERE n.nspname = %(schema)s AND c.relname = %(name)s
