-- enabled: logins that can log in although their gate is CLOSED
SELECT g.name FROM dpone_gate.gate AS g
JOIN sys.server_principals AS p ON p.name = g.name AND p.is_disabled = 0
WHERE g.state = 4 ORDER BY g.name;
GO
-- where: which database of which server this is
SELECT CONVERT(nvarchar(36), d.service_broker_guid) AS broker, CONVERT(nvarchar(33), d.create_date, 126) AS created, d.name
FROM sys.databases AS d WHERE d.database_id = DB_ID();
