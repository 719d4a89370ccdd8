-- The columns of one relation in their order, with domains followed down to their base type.
WITH RECURSIVE resolved AS (
    SELECT a.attnum, a.atttypid AS typid, a.atttypmod AS typmod, ARRAY[]::text[] COLLATE "C" AS domains
      FROM pg_catalog.pg_attribute a
     WHERE a.attrelid = %(relation)s::oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT r.attnum, t.typbasetype, CASE WHEN r.typmod = -1 THEN t.typtypmod ELSE r.typmod END,
           r.domains || (n.nspname || '.' || t.typname)
      FROM resolved r
      JOIN pg_catalog.pg_type t ON t.oid = r.typid AND t.typtype = 'd'
      JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
), element AS (
    -- An array's elements may be of a domain again: one more step down, then the base type.
    SELECT r.attnum, r.typmod, r.domains, t.oid AS typid,
           COALESCE(e.oid, 0::oid) AS elemid, e.typtype = 'd' AS element_domain
      FROM resolved r
      JOIN pg_catalog.pg_type t ON t.oid = r.typid AND t.typtype <> 'd'
      LEFT JOIN pg_catalog.pg_type e ON t.typcategory = 'A' AND e.oid = t.typelem AND t.typlen = -1
)
SELECT a.attname                                                   AS name,
       pg_catalog.format_type(a.atttypid, a.atttypmod)             AS declared,
       pg_catalog.format_type(e.typid, e.typmod)                   AS base,
       e.elemid <> 0                                               AS is_array,
       COALESCE(e.element_domain, false)                           AS element_domain,
       bn.nspname                                                  AS type_namespace,
       b.typname                                                   AS type_name,
       b.typtype::text                                             AS type_class,
       x.extname                                                   AS extension,
       a.attnotnull AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_constraint c
            WHERE c.conrelid = a.attrelid AND c.contype = 'n' AND c.conkey = ARRAY[a.attnum] AND NOT c.convalidated
       )                                                           AS not_null,
       a.attgenerated::text                                        AS generated,
       a.attidentity::text                                         AS identity,
       CASE WHEN co.oid IS NOT NULL THEN cn.nspname || '.' || co.collname END AS collation,
       e.domains                                                   AS domains,
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT') AS readable
  FROM element e
  JOIN pg_catalog.pg_attribute a ON a.attrelid = %(relation)s::oid AND a.attnum = e.attnum
  JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN e.elemid <> 0 THEN e.elemid ELSE e.typid END
  JOIN pg_catalog.pg_namespace bn ON bn.oid = b.typnamespace
  LEFT JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_type'::regclass AND d.objid = b.oid
       AND d.deptype = 'e' AND d.refclassid = 'pg_catalog.pg_extension'::regclass
  LEFT JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid
  LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
  LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace
 ORDER BY a.attnum
