-- One relation: where it is, what kind it is, and what would keep the current user from reading all of it.
SELECT CAST(SERVERPROPERTY('ServerName') AS nvarchar(256)) AS server_name, DB_NAME() AS database_name,
  CAST(d.database_id AS nvarchar(20)) AS database_number, CONVERT(nvarchar(33), d.create_date, 126) AS database_created,
  CONVERT(nvarchar(36), d.service_broker_guid) AS database_guid, d.snapshot_isolation_state,
  CAST(o.object_id AS nvarchar(20)) AS relation_id, RTRIM(o.type) AS kind,
  t.is_external, t.is_memory_optimized, t.is_node, t.is_edge, t.is_filetable,
  (SELECT COUNT(*) FROM sys.security_predicates AS p JOIN sys.security_policies AS s ON s.object_id = p.object_id
    WHERE p.target_object_id = o.object_id AND p.predicate_type = 0 AND s.is_enabled = 1) AS row_filters,
  HAS_PERMS_BY_NAME(QUOTENAME(SCHEMA_NAME(o.schema_id)) + N'.' + QUOTENAME(o.name), N'OBJECT', N'SELECT') AS readable
FROM sys.objects AS o
JOIN sys.databases AS d ON d.database_id = DB_ID()
LEFT JOIN sys.tables AS t ON t.object_id = o.object_id
WHERE o.schema_id = SCHEMA_ID(?) AND o.name = ? AND o.parent_object_id = 0;
