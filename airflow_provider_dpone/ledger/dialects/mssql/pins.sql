-- The installed ledger, whether this server and database may hold one, and which database this is: a copy has another GUID, a
-- restore to an older moment another fork. What the session may not see is NULL, and refused.
SELECT m.schema_version, m.service_id, m.family, m.layout_sha256, m.incarnation, d.delayed_durability_desc, d.is_read_only,
  CAST(SERVERPROPERTY(N'EngineEdition') AS int) AS engine_edition,
  CAST(PARSENAME(CAST(SERVERPROPERTY(N'ProductVersion') AS nvarchar(128)), 4) AS int) AS product_major,
  CONCAT(CURRENT_TRANSACTION_ID(), N'/', @@TRANCOUNT) AS reading,
  LOWER(CONVERT(nvarchar(36), r.database_guid) + N'/' + CONVERT(nvarchar(36), r.recovery_fork_guid)) AS here,
  (SELECT STRING_AGG(CONCAT(SCHEMA_NAME(o.schema_id), N'.', o.name), N', ') FROM sys.objects AS o
   WHERE o.type IN ('U', 'V', 'SN') AND LOWER(o.name) IN (/*legacy*/N'authority')) AS legacy
FROM sys.databases AS d
LEFT JOIN sys.database_recovery_status AS r ON r.database_id = d.database_id
LEFT JOIN [dpone].[ledger_meta] AS m ON m.one = 1
WHERE d.database_id = DB_ID();
