-- The columns of one relation in their order, alias types followed down to the type they stand for.
SELECT c.name, b.name AS type_name, u.name AS user_type, u.is_user_defined, u.is_assembly_type, c.max_length, c.precision,
  c.scale, c.is_nullable, c.is_identity, c.is_computed, c.is_hidden, c.is_masked, c.is_column_set, c.encryption_type,
  c.collation_name, c.generated_always_type, COLUMNPROPERTY(c.object_id, c.name, 'IsDeterministic') AS is_deterministic,
  (SELECT k.is_persisted FROM sys.computed_columns AS k
    WHERE k.object_id = c.object_id AND k.column_id = c.column_id) AS is_persisted,
  HAS_PERMS_BY_NAME(QUOTENAME(OBJECT_SCHEMA_NAME(c.object_id)) + N'.' + QUOTENAME(OBJECT_NAME(c.object_id)), N'OBJECT',
    N'SELECT', c.name, N'COLUMN') AS readable,
  HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'UNMASK') AS unmasked
FROM sys.columns AS c
JOIN sys.types AS u ON u.user_type_id = c.user_type_id
LEFT JOIN sys.types AS b ON b.user_type_id = c.system_type_id
WHERE c.object_id = ?
ORDER BY c.column_id;
