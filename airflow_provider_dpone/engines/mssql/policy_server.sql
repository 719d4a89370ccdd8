-- version: what the server is
SELECT CONVERT(int, SERVERPROPERTY('EngineEdition')) AS edition, CONVERT(int, SERVERPROPERTY('ProductMajorVersion')) AS major;
GO
-- visible: the controller sees all there is; what cannot be seen would look as if it were not there
SELECT N'controller' AS reason, CONCAT({controller}, N' lacks ', w.name) AS found
FROM (VALUES (N'VIEW ANY DEFINITION'), (N'VIEW SERVER PERFORMANCE STATE'), (N'VIEW SERVER SECURITY STATE'),
  (N'ALTER ANY LOGIN'), (N'ALTER ANY CONNECTION')) AS w (name)
WHERE ISNULL(HAS_PERMS_BY_NAME(NULL, NULL, w.name), 0) <> 1;
GO
-- server_option: nothing lets code of one database act elsewhere
SELECT N'server_option' AS reason, CONCAT(c.name, N' = ', CONVERT(nvarchar(20), c.value_in_use)) AS found
FROM sys.configurations AS c
WHERE c.name IN (N'cross db ownership chaining', N'clr enabled', N'xp_cmdshell', N'Ole Automation Procedures',
    N'contained database authentication', N'external scripts enabled', N'scan for startup procs')
  AND CONVERT(int, c.value_in_use) <> 0;
GO
-- server_principal: no login but administrators and the controller has rights over every database
SELECT N'ambient_writer' AS reason, CONCAT(l.name, N' is in ', r.name) AS found
FROM sys.server_role_members AS m
JOIN sys.server_principals AS r ON r.principal_id = m.role_principal_id
JOIN sys.server_principals AS l ON l.principal_id = m.member_principal_id
WHERE r.name IN (N'sysadmin', N'securityadmin', N'dbcreator', N'##MS_DatabaseManager##', N'##MS_LoginManager##')
  AND l.name NOT IN ({administrators}, {controller}) AND l.name NOT LIKE N'NT SERVICE\%' AND l.name NOT LIKE N'NT AUTHORITY\%';
GO
-- server_right: nor rights that amount to it
SELECT N'ambient_writer' AS reason, CONCAT(l.name, N' has ', p.permission_name) AS found
FROM sys.server_permissions AS p
JOIN sys.server_principals AS l ON l.principal_id = p.grantee_principal_id
WHERE p.state IN ('G', 'W') AND p.permission_name IN (N'CONTROL SERVER', N'ALTER ANY DATABASE', N'ALTER ANY LOGIN',
    N'IMPERSONATE ANY LOGIN', N'ALTER ANY SERVER ROLE', N'CONNECT ANY DATABASE', N'ADMINISTER BULK OPERATIONS',
    N'UNSAFE ASSEMBLY', N'EXTERNAL ACCESS ASSEMBLY', N'ALTER ANY LINKED SERVER', N'ALTER ANY CREDENTIAL')
  AND l.name NOT IN ({administrators}, {controller}) AND l.name NOT LIKE N'##MS[_]%';
GO
-- linked: no linked server that every login may use
SELECT N'server_option' AS reason, CONCAT(N'linked server ', s.name) AS found
FROM sys.servers AS s JOIN sys.linked_logins AS l ON l.server_id = s.server_id
WHERE s.is_linked = 1 AND l.local_principal_id = 0 AND l.uses_self_credential = 0;
