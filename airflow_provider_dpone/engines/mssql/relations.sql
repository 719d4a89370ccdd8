-- relations: name and kind of every relation of a schema
SELECT o.name, o.type FROM sys.objects AS o
WHERE o.schema_id = SCHEMA_ID({schema}) AND o.type IN ('U', 'V', 'SN', 'SO') ORDER BY o.name;
GO
-- outside: modules and foreign keys outside a schema that depend on a relation in it
SELECT DISTINCT CONCAT(OBJECT_SCHEMA_NAME(d.referencing_id), N'.', OBJECT_NAME(d.referencing_id), N' on ',
    d.referenced_entity_name) AS described
FROM sys.sql_expression_dependencies AS d
WHERE d.referenced_schema_name = {schema} AND OBJECT_SCHEMA_NAME(d.referencing_id) <> {schema}
UNION
SELECT CONCAT(OBJECT_SCHEMA_NAME(f.parent_object_id), N'.', OBJECT_NAME(f.parent_object_id), N' on ',
    OBJECT_NAME(f.referenced_object_id))
FROM sys.foreign_keys AS f
WHERE OBJECT_SCHEMA_NAME(f.referenced_object_id) = {schema} AND OBJECT_SCHEMA_NAME(f.parent_object_id) <> {schema};
GO
-- dependents: what depends on one relation
SELECT OBJECT_NAME(d.referencing_id) AS name FROM sys.sql_expression_dependencies AS d
WHERE d.referenced_id = OBJECT_ID(QUOTENAME({schema}) + N'.' + QUOTENAME({name})) AND d.referencing_id <> d.referenced_id
UNION ALL
SELECT f.name FROM sys.foreign_keys AS f
WHERE f.referenced_object_id = OBJECT_ID(QUOTENAME({schema}) + N'.' + QUOTENAME({name}))
  AND f.parent_object_id <> f.referenced_object_id;
