-- Everything that is installed, as one text to be digested: functions, triggers, tables, rights, the event trigger.
SELECT pg_catalog.string_agg(fact, E'\n' ORDER BY fact COLLATE "C") FROM (
  SELECT pg_catalog.format('function %s(%s) %s definer=%s config=%s owner=%s acl=%s', p.proname,
           pg_catalog.pg_get_function_identity_arguments(p.oid), pg_catalog.md5(p.prosrc), p.prosecdef, p.proconfig,
           p.proowner::pg_catalog.regrole, p.proacl) AS fact
    FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
   WHERE n.nspname = 'dpone_gate'
  UNION ALL
  SELECT pg_catalog.format('relation %s %s owner=%s acl=%s rules=%s security=%s', c.relkind, c.relname,
           c.relowner::pg_catalog.regrole, c.relacl, c.relhasrules, c.relrowsecurity)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
   WHERE n.nspname = 'dpone_gate'
  UNION ALL
  SELECT pg_catalog.format('column %s.%s %s %s acl=%s', c.relname, a.attname,
           pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attacl)
    FROM pg_catalog.pg_attribute AS a
    JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'r'
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
   WHERE n.nspname = 'dpone_gate' AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT pg_catalog.format('constraint %s %s', o.conname, pg_catalog.pg_get_constraintdef(o.oid))
    FROM pg_catalog.pg_constraint AS o JOIN pg_catalog.pg_namespace AS n ON n.oid = o.connamespace
   WHERE n.nspname = 'dpone_gate'
  UNION ALL
  SELECT pg_catalog.format('index %s', pg_catalog.pg_get_indexdef(i.indexrelid))
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
   WHERE n.nspname = 'dpone_gate'
  UNION ALL
  SELECT pg_catalog.format('trigger %s enabled=%s', pg_catalog.pg_get_triggerdef(t.oid), t.tgenabled)
    FROM pg_catalog.pg_trigger AS t
    JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
   WHERE n.nspname = 'dpone_gate'
  UNION ALL
  SELECT pg_catalog.format('event trigger %s on %s enabled=%s calls=%s tags=%s superuser=%s', e.evtname, e.evtevent,
           e.evtenabled, e.evtfoid::pg_catalog.regproc, e.evttags, r.rolsuper)
    FROM pg_catalog.pg_event_trigger AS e JOIN pg_catalog.pg_roles AS r ON r.oid = e.evtowner
   WHERE e.evtname = 'dpone_gate_login'
  UNION ALL
  SELECT pg_catalog.format('schema owner=%s acl=%s', n.nspowner::pg_catalog.regrole, n.nspacl)
    FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'dpone_gate'
  UNION ALL
  SELECT pg_catalog.format('owner login=%s super=%s createrole=%s members=%s', r.rolcanlogin, r.rolsuper,
           r.rolcreaterole, ARRAY(SELECT m.member::pg_catalog.regrole::text FROM pg_catalog.pg_auth_members AS m
             WHERE m.roleid = r.oid ORDER BY 1))
    FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'dpone_gate_owner'
) AS facts
