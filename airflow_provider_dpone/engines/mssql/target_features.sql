-- relation: one target table, and what of it forbids replacing its rows
SELECT CONVERT(nvarchar(20), o.object_id) AS relation_id, RTRIM(o.type) AS kind,
  (SELECT d.is_read_committed_snapshot_on FROM sys.databases AS d WHERE d.database_id = DB_ID()) AS versions
FROM sys.objects AS o
WHERE o.schema_id = SCHEMA_ID({schema}) AND o.name = {name} AND o.parent_object_id = 0;
GO
-- special: tables that are more than their rows
SELECT w.what FROM sys.tables AS t CROSS APPLY (VALUES
  (N'it is system-versioned or the history of a table', CONVERT(int, t.temporal_type)),
  (N'it is memory-optimized', CONVERT(int, t.is_memory_optimized)), (N'it is external', CONVERT(int, t.is_external)),
  (N'it is a file table', CONVERT(int, t.is_filetable)), (N'it is a graph table', CONVERT(int, t.is_node) + CONVERT(int, t.is_edge)),
  (N'it is a ledger table', CONVERT(int, t.ledger_type)), (N'it is replicated', CONVERT(int, t.is_replicated)),
  (N'its changes are captured', CONVERT(int, t.is_tracked_by_cdc)),
  (N'its changes are tracked', (SELECT COUNT(*) FROM sys.change_tracking_tables AS c WHERE c.object_id = t.object_id))
) AS w (what, holds)
WHERE t.object_id = {relation} AND w.holds <> 0;
GO
-- security: predicates that hide rows from a delete, or refuse them
SELECT CONCAT(N'row security policy ', OBJECT_NAME(p.object_id)) AS what
FROM sys.security_predicates AS p JOIN sys.security_policies AS s ON s.object_id = p.object_id
WHERE p.target_object_id = {relation} AND s.is_enabled = 1;
GO
-- triggers: what runs when rows come and go
SELECT CONCAT(N'trigger:', {shown}, N'.', t.name) AS feature
FROM sys.triggers AS t WHERE t.parent_id = {relation} AND t.is_disabled = 0;
GO
-- references: foreign keys that point at its rows
SELECT CONCAT(N'referenced_by:', OBJECT_SCHEMA_NAME(f.parent_object_id), N'.', OBJECT_NAME(f.parent_object_id), N'.', f.name) AS feature
FROM sys.foreign_keys AS f WHERE f.referenced_object_id = {relation};
GO
-- indexed_views: views that keep what they compute of its rows
SELECT CONCAT(N'indexed_view:', OBJECT_SCHEMA_NAME(i.object_id), N'.', OBJECT_NAME(i.object_id)) AS feature
FROM sys.indexes AS i
JOIN sys.sql_expression_dependencies AS d ON d.referencing_id = i.object_id AND d.referenced_id = {relation}
JOIN sys.views AS v ON v.object_id = i.object_id
WHERE i.index_id = 1
GROUP BY i.object_id;
