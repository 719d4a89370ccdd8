-- login: one login of ours, enabled, at home in the target database
SELECT LOWER(CONVERT(char(32), p.sid, 2)) AS sid, p.type, p.is_disabled, p.default_database_name
FROM sys.server_principals AS p WHERE p.name = ?;
GO
-- server_role: roles of the server it is in
SELECT r.name FROM sys.server_role_members AS m
JOIN sys.server_principals AS r ON r.principal_id = m.role_principal_id
JOIN sys.server_principals AS l ON l.principal_id = m.member_principal_id WHERE l.name = ?;
GO
-- server_right: rights of the server it has
SELECT p.permission_name, p.state_desc FROM sys.server_permissions AS p
JOIN sys.server_principals AS l ON l.principal_id = p.grantee_principal_id WHERE l.name = ?;
GO
-- database_user: its user in the target database
SELECT LOWER(CONVERT(char(32), u.sid, 2)) AS sid, u.type, u.default_schema_name
FROM sys.database_principals AS u WHERE u.name = ?;
GO
-- role: roles of the database it is in
SELECT r.name FROM sys.database_role_members AS m
JOIN sys.database_principals AS r ON r.principal_id = m.role_principal_id
JOIN sys.database_principals AS u ON u.principal_id = m.member_principal_id WHERE u.name = ? ORDER BY r.name;
GO
-- grant: its own rights in the database
SELECT CASE p.class WHEN 0 THEN N'database' WHEN 1 THEN N'table' WHEN 3 THEN N'schema' ELSE p.class_desc END AS kind,
  CASE p.class WHEN 0 THEN DB_NAME() WHEN 1 THEN CONCAT(OBJECT_SCHEMA_NAME(p.major_id), N'.', OBJECT_NAME(p.major_id),
    CASE WHEN p.minor_id > 0 THEN CONCAT(N'.', COL_NAME(p.major_id, p.minor_id)) END)
    WHEN 3 THEN SCHEMA_NAME(p.major_id) END AS place,
  p.permission_name, CASE WHEN p.state = 'G' THEN N'false' ELSE LOWER(p.state_desc) END AS grantable
FROM sys.database_permissions AS p
JOIN sys.database_principals AS u ON u.principal_id = p.grantee_principal_id WHERE u.name = ?;
GO
-- gate_row: its gate
SELECT LOWER(CONVERT(char(32), g.sid, 2)) AS sid, g.state, g.guard, g.epoch, g.attempt, g.made
FROM [control].dpone_gate.gate AS g WHERE g.name = ?;
