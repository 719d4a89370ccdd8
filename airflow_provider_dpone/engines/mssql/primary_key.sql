-- The columns of a table's primary key, in order.
SELECT c.name
FROM sys.indexes AS i
JOIN sys.objects AS o ON o.object_id = i.object_id
JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.is_primary_key = 1 AND o.schema_id = SCHEMA_ID(?) AND o.name = ?
ORDER BY k.key_ordinal;
