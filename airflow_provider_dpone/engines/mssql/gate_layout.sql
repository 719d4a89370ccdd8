-- server_trigger: the login trigger, its state, its text and whom it runs as
SELECT CONCAT(N'login trigger|', t.name, N'|', t.is_disabled, N'|', SUSER_NAME(m.execute_as_principal_id), N'|',
    m.uses_ansi_nulls, N'|', m.uses_quoted_identifier, N'|', m.definition) AS line
FROM sys.server_triggers AS t
JOIN sys.server_sql_modules AS m ON m.object_id = t.object_id
JOIN sys.server_trigger_events AS e ON e.object_id = t.object_id AND e.type_desc = N'LOGON'
WHERE t.name = N'dpone_login_gate';
GO
-- reader: the login it runs as is disabled and has no right of the server
SELECT CONCAT(N'reader|', p.name, N'|', p.type, N'|', p.is_disabled, N'|', (
    SELECT COUNT(*) FROM sys.server_role_members AS r WHERE r.member_principal_id = p.principal_id), N'|', (
    SELECT COUNT(*) FROM sys.server_permissions AS s WHERE s.grantee_principal_id = p.principal_id
      AND s.permission_name <> N'CONNECT SQL')) AS line
FROM sys.server_principals AS p WHERE p.name = N'dpone_gate_reader';
GO
-- owner: who owns the gate cannot log in
SELECT CONCAT(N'gate owner|', p.name, N'|', p.authentication_type) AS line
FROM sys.database_principals AS p WHERE p.name IN (N'dpone_gate_owner', N'dpone_gate_reader');
