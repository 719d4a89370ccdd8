-- database_owner: the controller owns the dedicated database
SELECT N'database_owner' AS reason, CONCAT(d.name, N' is owned by ', SUSER_SNAME(d.owner_sid)) AS found
FROM sys.databases AS d
WHERE d.database_id = DB_ID() AND (d.owner_sid IS NULL OR d.owner_sid <> ISNULL(SUSER_SID({controller}), 0x00));
GO
-- database_option: nothing reaches over the edge of the database, and commits are durable
SELECT N'database_option' AS reason, CONCAT(d.name, N': ', o.what) AS found
FROM sys.databases AS d CROSS APPLY (VALUES
  (N'TRUSTWORTHY ON', CONVERT(int, d.is_trustworthy_on)), (N'DB_CHAINING ON', CONVERT(int, d.is_db_chaining_on)),
  (N'CONTAINMENT', CONVERT(int, d.containment)), (N'READ_ONLY', CONVERT(int, d.is_read_only)),
  (N'DELAYED_DURABILITY', CONVERT(int, d.delayed_durability)), (N'not online', CONVERT(int, d.state)),
  (N'replica', CASE WHEN d.replica_id IS NULL THEN 0 ELSE 1 END),
  (N'CDC', CONVERT(int, d.is_cdc_enabled)), (N'published', CONVERT(int, d.is_published))
) AS o (what, holds)
WHERE d.database_id = DB_ID() AND o.holds <> 0;
GO
-- schema_missing: every managed schema is there
SELECT N'schema_missing' AS reason, w.name AS found
FROM (VALUES {schema_rows}) AS w (name) WHERE SCHEMA_ID(w.name) IS NULL;
GO
-- role_ownership: the bounded role is there, and every role of the database is owned by dbo
SELECT N'role_ownership' AS reason, N'dpone_writer is missing' AS found
WHERE NOT EXISTS (SELECT 1 FROM sys.database_principals AS r WHERE r.name = N'dpone_writer' AND r.type = 'R')
UNION ALL
SELECT N'role_ownership', CONCAT(r.name, N' is owned by ', USER_NAME(r.owning_principal_id))
FROM sys.database_principals AS r
WHERE r.type IN ('R', 'A') AND r.is_fixed_role = 0 AND r.name <> N'public' AND USER_NAME(r.owning_principal_id) <> N'dbo';
GO
-- role_grants: the bounded role has exactly its rights, and may pass none on
SELECT N'role_grants' AS reason, CONCAT(N'dpone_writer: ', p.state_desc, N' ', p.permission_name, N' on ', p.class_desc,
    N' ', COALESCE(SCHEMA_NAME(CASE WHEN p.class = 3 THEN p.major_id END), OBJECT_NAME(p.major_id))) AS found
FROM sys.database_permissions AS p
WHERE p.grantee_principal_id = USER_ID(N'dpone_writer') AND NOT (p.state = 'G' AND (
    p.class = 0 AND p.permission_name IN (N'CREATE TABLE', N'CREATE VIEW', N'VIEW DEFINITION')
    OR p.class = 3 AND SCHEMA_NAME(p.major_id) IN ({schemas}) AND p.permission_name IN (
      N'SELECT', N'INSERT', N'UPDATE', N'DELETE', N'ALTER', N'REFERENCES', N'VIEW DEFINITION')
    OR p.class = 1 AND p.permission_name = N'SELECT' AND p.major_id = OBJECT_ID(N'sys.sql_expression_dependencies')));
GO
-- membership: nobody is in a role that writes, but the controller as dbo and logins issued by this gate
SELECT N'membership' AS reason, CONCAT(u.name, N' in ', r.name) AS found
FROM sys.database_role_members AS m
JOIN sys.database_principals AS r ON r.principal_id = m.role_principal_id
JOIN sys.database_principals AS u ON u.principal_id = m.member_principal_id
WHERE NOT (u.principal_id = 1 AND r.name = N'db_owner' AND u.sid = SUSER_SID({controller}))
  AND NOT (r.name = N'dpone_writer' AND u.type = 'S' AND u.name LIKE N'dpone[_]w[_]%' AND SUBSTRING(u.sid, 1, 4) = 0x64706F6E)
  AND r.name NOT IN (N'db_datareader', N'db_denydatareader', N'db_denydatawriter')
  AND NOT (r.name <> N'db_owner' AND u.name IN ({administrators}) AND u.type IN ('S', 'U', 'G'));
GO
-- object_ownership: everything in a managed schema belongs to dbo, and nothing belongs to a reader
SELECT N'object_ownership' AS reason, CONCAT(N'schema ', s.name, N' is owned by ', USER_NAME(s.principal_id)) AS found
FROM sys.schemas AS s
WHERE USER_NAME(s.principal_id) <> N'dbo' AND s.schema_id < 16384
  AND s.name NOT IN (N'sys', N'INFORMATION_SCHEMA', N'guest', N'dpone_gate')
UNION ALL
SELECT N'object_ownership', CONCAT(SCHEMA_NAME(o.schema_id), N'.', o.name, N' is owned by ', USER_NAME(o.principal_id))
FROM sys.objects AS o WHERE o.principal_id IS NOT NULL AND USER_NAME(o.principal_id) <> N'dbo' AND o.is_ms_shipped = 0
UNION ALL
SELECT N'object_ownership', CONCAT(N'type ', t.name, N' is owned by ', USER_NAME(t.principal_id))
FROM sys.types AS t WHERE t.is_user_defined = 1 AND t.principal_id IS NOT NULL AND USER_NAME(t.principal_id) <> N'dbo';
GO
-- unmanaged_scope: the database holds nothing but what is managed, the gate, and a ledger
SELECT N'unmanaged_scope' AS reason, CONCAT(SCHEMA_NAME(o.schema_id), N'.', o.name) AS found
FROM sys.objects AS o
WHERE o.is_ms_shipped = 0 AND o.parent_object_id = 0 AND SCHEMA_NAME(o.schema_id) NOT IN ({schemas}, N'dpone_gate', {control_schema});
GO
-- unsupported_object: in a managed schema there is nothing that runs by itself or for somebody else
SELECT N'unsupported_object' AS reason,
  CONCAT(SCHEMA_NAME(o.schema_id), N'.', o.name, N' (', LOWER(o.type_desc), N')') AS found
FROM sys.objects AS o
WHERE o.is_ms_shipped = 0 AND SCHEMA_NAME(o.schema_id) IN ({schemas})
  AND o.type NOT IN ('U', 'V', 'PK', 'UQ', 'F', 'C', 'D', 'IT')
UNION ALL
SELECT N'unsupported_object', CONCAT(N'DDL trigger ', t.name) FROM sys.triggers AS t WHERE t.parent_class = 0;
GO
-- unsupported_feature: nor anything that acts by itself, or reaches outside
SELECT N'unsupported_object' AS reason, CONCAT(N'event notification ', e.name) AS found FROM sys.event_notifications AS e
UNION ALL
SELECT N'unsupported_object', CONCAT(N'credential ', c.name) FROM sys.database_scoped_credentials AS c
UNION ALL
SELECT N'unsupported_object', CONCAT(N'external source ', c.name) FROM sys.external_data_sources AS c;
GO
-- assembly: no code of the common language runtime
SELECT N'assembly' AS reason, a.name AS found FROM sys.assemblies AS a WHERE a.is_user_defined = 1;
GO
-- authentication: whoever is in the database came in through a login of the server
SELECT N'authentication' AS reason, CONCAT(u.name, N' (', LOWER(u.type_desc), N', ', LOWER(u.authentication_type_desc), N')') AS found
FROM sys.database_principals AS u
WHERE u.type NOT IN ('R') AND u.principal_id > 4 AND u.name NOT IN (N'dpone_gate_owner')
  AND (u.type NOT IN ('S', 'U', 'G') OR u.authentication_type = 2 OR u.authentication_type = 0 AND u.type = 'S')
UNION ALL
SELECT N'authentication', N'guest may connect'
FROM sys.database_permissions AS p
WHERE p.grantee_principal_id = USER_ID(N'guest') AND p.permission_name = N'CONNECT' AND p.state IN ('G', 'W');
GO
-- ambient_grant: nobody but the bounded role and issued logins has a right that changes anything
SELECT N'ambient_grant' AS reason, CONCAT(USER_NAME(p.grantee_principal_id), N': ', p.permission_name, N' on ',
    LOWER(p.class_desc), N' ', COALESCE(CASE p.class WHEN 3 THEN SCHEMA_NAME(p.major_id)
      WHEN 1 THEN CONCAT(OBJECT_SCHEMA_NAME(p.major_id), N'.', OBJECT_NAME(p.major_id)) END, DB_NAME())) AS found
FROM sys.database_permissions AS p
JOIN sys.database_principals AS u ON u.principal_id = p.grantee_principal_id
WHERE p.state IN ('G', 'W') AND u.name NOT IN (N'dpone_writer', N'dbo')
  AND p.permission_name NOT IN (N'CONNECT', N'SELECT', N'VIEW DEFINITION', N'VIEW DATABASE STATE', N'SHOWPLAN',
    N'VIEW DATABASE PERFORMANCE STATE', N'VIEW ANY COLUMN MASTER KEY DEFINITION',
    N'VIEW ANY COLUMN ENCRYPTION KEY DEFINITION', N'VIEW ANY SENSITIVITY CLASSIFICATION', N'UNMASK', N'REFERENCES')
  AND NOT (p.class = 1 AND (p.major_id < 0 OR OBJECT_SCHEMA_NAME(p.major_id) IN (N'dpone_gate', {control_schema})))
  AND NOT (p.class = 1 AND u.type = 'S' AND u.name LIKE N'dpone[_]w[_]%' AND SUBSTRING(u.sid, 1, 4) = 0x64706F6E)
  AND u.name NOT IN ({administrators});
GO
-- gate_owner: what belongs to the gate is out of reach of whoever owns tables
SELECT N'gate_owner' AS reason, CONCAT(N'dpone_gate is owned by ', USER_NAME(s.principal_id)) AS found
FROM sys.schemas AS s WHERE s.name = N'dpone_gate' AND USER_NAME(s.principal_id) <> N'dpone_gate_owner';
