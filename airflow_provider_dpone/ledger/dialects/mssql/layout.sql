-- Everything that makes the ledger what it is, one line each: columns, defaults, keys and indexes, checks, foreign keys,
-- triggers and their bodies, owners, rights, members of the roles that may write. One batch for each: a server plans them faster apart. The client sorts and hashes the
-- lines. What the session may not see is missing or NULL, and so changes the fingerprint too. Names the server makes up
-- itself are left out.
SELECT CONCAT(N'column|', o.name, N'|', c.column_id, N'|', c.name, N'|', TYPE_NAME(c.user_type_id), N'|', c.max_length,
    N'|', c.precision, N'|', c.scale, N'|', c.is_nullable, N'|', c.is_identity, N'|', c.is_computed, N'|',
    c.collation_name, N'|', d.definition) AS line
FROM sys.objects AS o
JOIN sys.columns AS c ON c.object_id = o.object_id
LEFT JOIN sys.default_constraints AS d ON d.parent_object_id = c.object_id AND d.parent_column_id = c.column_id
WHERE o.schema_id = SCHEMA_ID(N'dpone') AND o.type IN ('U', 'V');
GO
SELECT CONCAT(N'object|', o.name, N'|', o.type, N'|', USER_NAME(o.principal_id))
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dpone') AND o.type NOT IN ('D', 'PK', 'UQ', 'F', 'C');
GO
SELECT CONCAT(N'index|', o.name, N'|', i.name, N'|', i.type, N'|', i.is_unique, N'|', i.is_primary_key, N'|',
    i.is_disabled, N'|', i.ignore_dup_key, N'|', i.filter_definition, N'|', x.key_ordinal, N'|', x.column_id, N'|',
    x.is_included_column)
FROM sys.objects AS o
JOIN sys.indexes AS i ON i.object_id = o.object_id AND i.index_id > 0
LEFT JOIN sys.index_columns AS x ON x.object_id = i.object_id AND x.index_id = i.index_id
WHERE o.schema_id = SCHEMA_ID(N'dpone');
GO
SELECT CONCAT(N'check|', OBJECT_NAME(k.parent_object_id), N'|', k.name, N'|', k.is_disabled, N'|', k.is_not_trusted,
    N'|', k.definition)
FROM sys.check_constraints AS k WHERE k.schema_id = SCHEMA_ID(N'dpone');
GO
SELECT CONCAT(N'reference|', OBJECT_NAME(f.parent_object_id), N'|', f.name, N'|', f.is_disabled, N'|',
    f.is_not_trusted, N'|', f.delete_referential_action, N'|', f.update_referential_action, N'|',
    OBJECT_NAME(p.referenced_object_id), N'|', p.constraint_column_id, N'|', p.parent_column_id, N'|',
    p.referenced_column_id)
FROM sys.foreign_keys AS f
JOIN sys.foreign_key_columns AS p ON p.constraint_object_id = f.object_id
WHERE f.schema_id = SCHEMA_ID(N'dpone');
GO
SELECT CONCAT(N'trigger|', OBJECT_NAME(t.parent_id), N'|', t.name, N'|', t.is_disabled, N'|',
    t.is_instead_of_trigger, N'|', OBJECTPROPERTY(t.object_id, 'ExecIsAnsiNullsOn'), N'|',
    OBJECTPROPERTY(t.object_id, 'ExecIsQuotedIdentOn'), N'|', OBJECT_DEFINITION(t.object_id)) AS line
FROM sys.triggers AS t WHERE OBJECT_SCHEMA_NAME(t.parent_id) = N'dpone';
GO
SELECT CONCAT(N'function|', o.name, N'|', OBJECTPROPERTY(o.object_id, 'ExecIsAnsiNullsOn'), N'|',
    OBJECTPROPERTY(o.object_id, 'ExecIsQuotedIdentOn'), N'|', OBJECT_DEFINITION(o.object_id)) AS line
FROM sys.objects AS o
WHERE o.schema_id = SCHEMA_ID(N'dpone') AND o.type IN ('FN', 'IF', 'TF', 'P', 'V');
GO
SELECT CONCAT(N'right|', p.class, N'|', o.name, N'|', COL_NAME(p.major_id, p.minor_id), N'|', p.permission_name,
    N'|', p.state_desc, N'|', USER_NAME(p.grantee_principal_id))
FROM sys.database_permissions AS p
LEFT JOIN sys.objects AS o ON p.class = 1 AND o.object_id = p.major_id
WHERE (p.class = 3 AND p.major_id = SCHEMA_ID(N'dpone')) OR o.schema_id = SCHEMA_ID(N'dpone');
GO
SELECT CONCAT(N'owner|', USER_NAME(s.principal_id)) FROM sys.schemas AS s WHERE s.schema_id = SCHEMA_ID(N'dpone');
GO
-- rights over the whole database that reach into the schema, and who is in a role that has them
SELECT CONCAT(N'right|database|', p.permission_name, N'|', p.state_desc, N'|', USER_NAME(p.grantee_principal_id))
FROM sys.database_permissions AS p
WHERE p.class = 0 AND p.permission_name IN (N'CONTROL', N'ALTER', N'ALTER ANY SCHEMA', N'ALTER ANY ROLE', N'ALTER ANY USER',
  N'ALTER ANY DATABASE DDL TRIGGER', N'TAKE OWNERSHIP', N'INSERT', N'UPDATE', N'DELETE', N'EXECUTE', N'SELECT');
GO
SELECT CONCAT(N'member|', USER_NAME(m.role_principal_id), N'|', USER_NAME(m.member_principal_id))
FROM sys.database_role_members AS m
WHERE USER_NAME(m.role_principal_id) IN (N'db_owner', N'db_ddladmin', N'db_securityadmin', N'db_accessadmin', N'db_datawriter',
  N'dpone_ledger');
