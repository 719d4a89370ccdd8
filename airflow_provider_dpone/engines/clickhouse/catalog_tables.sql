-- tables: what the names carry now, with the server it was read from. The row of system.tables itself is the control:
-- without it the view is filtered.
SELECT 'server' AS kind, [toString(serverUUID()), toString(uptime()), toString(now64(6, 'UTC')), version()] AS fields
UNION ALL
SELECT 'database', [name, engine, toString(uuid)] FROM system.databases WHERE name = {database:String}
UNION ALL
SELECT if(database = 'system', 'control', 'table'),
    [name, toString(uuid), engine, create_table_query, comment, ifNull(toString(total_bytes), ''),
    arrayStringConcat(arrayMap((d, t) -> d || '.' || t, dependencies_database, dependencies_table), '\n'),
    arrayStringConcat(arrayMap((d, t) -> d || '.' || t, loading_dependent_database, loading_dependent_table), '\n')]
FROM system.tables
WHERE (database = {database:String} AND has({tables:Array(String)}, name)) OR (database = 'system' AND name = 'tables')
UNION ALL
SELECT 'column', [table, leftPad(toString(position), 8, '0'), name, type, default_kind, default_expression, compression_codec, comment]
FROM system.columns WHERE database = {database:String} AND has({tables:Array(String)}, table)
UNION ALL
-- parts: outdated parts still take space, so they count for storage but not for content.
SELECT 'part', [table, toString(active), hash_of_all_files, toString(rows), toString(bytes_on_disk)]
FROM system.parts WHERE database = {database:String} AND has({tables:Array(String)}, table)
