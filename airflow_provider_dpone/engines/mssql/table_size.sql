-- size: bytes of all pages of a table and its indexes
SELECT SUM(s.reserved_page_count) * 8192 AS size
FROM sys.dm_db_partition_stats AS s WHERE s.object_id = OBJECT_ID(QUOTENAME({schema}) + N'.' + QUOTENAME({name}));
