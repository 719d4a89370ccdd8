-- quiet: what the whole server shows of one closed login, beside a second session of ours that it must show too.
SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS a
         WHERE a.usename = %(name)s OR a.usesysid = %(role)s::oid)                              AS sessions,
       ARRAY(SELECT p.gid FROM pg_catalog.pg_prepared_xact() AS p
               LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = p.ownerid
              WHERE r.rolname = %(name)s OR p.ownerid = %(role)s::oid ORDER BY 1)               AS prepared,
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks AS l
         WHERE l.locktype = 'relation' AND l.pid IS NOT NULL
           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = l.pid))   AS unattributed,
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS a
         WHERE a.pid = %(known)s AND a.usesysid = (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user)
       )                                                                                        AS known,
       (SELECT ARRAY[r.oid::text, r.rolcanlogin::text] FROM pg_catalog.pg_roles AS r
         WHERE r.rolname = %(name)s)                                                            AS role,
       (SELECT g.state FROM dpone_gate.gate AS g WHERE g.name = %(name)s)                       AS gate,
       (SELECT m.sha256 FROM dpone_gate.marker AS m)                                            AS marker,
       pg_catalog.pg_postmaster_start_time()                                                    AS started,
       pg_catalog.clock_timestamp()                                                             AS seen
