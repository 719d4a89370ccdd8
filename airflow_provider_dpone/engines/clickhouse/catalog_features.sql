-- features: everything else that could read from, write into or change the tables.
SELECT 'mutation' AS kind, [mutation_id] AS fields
FROM system.mutations WHERE database = {database:String} AND has({tables:Array(String)}, table) AND NOT is_done
UNION ALL
-- relay: tables and views that write elsewhere; whether into ours, their target or their text decides. Where rows go is
-- said by the statement for views, time series and tables made of a table function, by the engine's arguments for others.
SELECT 'relay', [engine, database || '.' || name, target_database, target_table,
    if(engine IN ('MaterializedView', 'WindowView', 'TimeSeries') OR engine_full = '', create_table_query, engine_full),
    toString((database, name) IN (SELECT database, view FROM system.view_refreshes))]
FROM system.tables
WHERE engine IN ('MaterializedView', 'WindowView', 'TimeSeries', 'Distributed', 'Buffer', 'Alias', 'Merge', 'Hybrid', 'StorageProxy')
UNION ALL
SELECT 'dictionary', [if(database = '', name, database || '.' || name), source] FROM system.dictionaries
UNION ALL
SELECT 'row_policy', [short_name] FROM system.row_policies
WHERE database IN ('', '*', {database:String}) AND (table IN ('', '*') OR has({tables:Array(String)}, table))
UNION ALL
SELECT 'masking_policy', [short_name] FROM system.masking_policies
WHERE database IN ('', '*', {database:String}) AND (table IN ('', '*') OR has({tables:Array(String)}, table))
UNION ALL
SELECT 'replicated_access_storage', [name] FROM system.user_directories WHERE type = 'replicated'
