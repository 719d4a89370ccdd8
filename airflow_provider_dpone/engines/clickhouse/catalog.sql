-- catalog: everything that decides about the named tables of one database, in one statement and so at one moment.
-- Each row is a kind and its fields as text; an empty number means the server gave none.
SELECT 'server' AS kind, [toString(serverUUID()), toString(uptime()), toString(now64(6, 'UTC')), version()] AS fields
UNION ALL
-- control: a table everybody's server has; its absence means the view is filtered.
SELECT 'control', [toString(count())] FROM system.tables WHERE database = 'system' AND name = 'tables'
UNION ALL
SELECT 'database', [name, engine, toString(uuid)] FROM system.databases WHERE name = {database:String}
UNION ALL
SELECT 'directory', [name, type] FROM system.user_directories
UNION ALL
SELECT 'table', [name, toString(uuid), engine, create_table_query, comment, ifNull(toString(total_bytes), '')]
FROM system.tables WHERE database = {database:String} AND name IN {tables:Array(String)}
UNION ALL
SELECT 'column', [table, leftPad(toString(position), 8, '0'), name, type, default_kind, default_expression, compression_codec, comment]
FROM system.columns WHERE database = {database:String} AND table IN {tables:Array(String)}
UNION ALL
-- parts: outdated parts still take space, so they count for storage but not for content.
SELECT 'part', [table, toString(active), hash_of_all_files, toString(rows), toString(bytes_on_disk)]
FROM system.parts WHERE database = {database:String} AND table IN {tables:Array(String)}
UNION ALL
SELECT 'feature', ['unfinished_mutation:' || mutation_id]
FROM system.mutations WHERE database = {database:String} AND table IN {tables:Array(String)} AND NOT is_done
UNION ALL
-- what reads from, or is loaded from, one of the tables.
SELECT 'feature', [if(dependent.3 = 0, 'outgoing_view:', 'dictionary:') || dependent.1 || '.' || dependent.2]
FROM system.tables
ARRAY JOIN arrayConcat(
    arrayMap((d, t) -> (d, t, 0), dependencies_database, dependencies_table),
    arrayMap((d, t) -> (d, t, 1), loading_dependent_database, loading_dependent_table)) AS dependent
WHERE database = {database:String} AND name IN {tables:Array(String)}
UNION ALL
SELECT 'feature', ['incoming_view:' || database || '.' || name]
FROM system.tables
WHERE engine = 'MaterializedView' AND target_database = {database:String} AND target_table IN {tables:Array(String)}
UNION ALL
-- mention: tables and views whose text decides whether they touch ours.
SELECT 'mention', [multiIf(engine = 'MaterializedView', 'refreshable_view', lower(engine)), database || '.' || name,
    if(engine = 'MaterializedView', create_table_query, engine_full)]
FROM system.tables
WHERE engine IN ('Distributed', 'Buffer', 'Alias')
    OR (engine = 'MaterializedView' AND (database, name) IN (SELECT database, view FROM system.view_refreshes))
UNION ALL
SELECT 'mention', ['dictionary', if(database = '', name, database || '.' || name), source] FROM system.dictionaries
UNION ALL
SELECT 'feature', ['row_policy:' || short_name] FROM system.row_policies
WHERE database IN ('', '*', {database:String}) AND (table IN ('', '*') OR table IN {tables:Array(String)})
UNION ALL
SELECT 'feature', ['masking_policy:' || short_name] FROM system.masking_policies
WHERE database IN ('', '*', {database:String}) AND (table IN ('', '*') OR table IN {tables:Array(String)})
SETTINGS final = 0, additional_table_filters = {}, additional_result_filter = '', use_query_cache = 0, limit = 0, offset = 0,
    max_result_rows = 0, max_rows_to_read = 0, max_execution_time = 0, enable_parallel_replicas = 0
