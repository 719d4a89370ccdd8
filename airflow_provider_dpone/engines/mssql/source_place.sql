-- Which database this is; relation.sql says the same of each relation.
SELECT CAST(SERVERPROPERTY('ServerName') AS nvarchar(256)) AS server_name,
  CAST(d.database_id AS nvarchar(20)) AS database_number, CONVERT(nvarchar(33), d.create_date, 126) AS database_created,
  CONVERT(nvarchar(36), d.service_broker_guid) AS database_guid
FROM sys.databases AS d
WHERE d.database_id = DB_ID();
