-- The installed ledger, and whether this server and database may hold one.
SELECT m.schema_version, m.service_id, m.family, m.layout_sha256, d.delayed_durability_desc, d.is_read_only,
  CAST(SERVERPROPERTY(N'EngineEdition') AS int) AS engine_edition,
  CAST(PARSENAME(CAST(SERVERPROPERTY(N'ProductVersion') AS nvarchar(128)), 4) AS int) AS product_major
FROM sys.databases AS d LEFT JOIN [dpone].[ledger_meta] AS m ON m.one = 1
WHERE d.database_id = DB_ID();
