-- quiet: what of a user can still have an effect; control finds this very statement among the running ones.
SELECT
    (SELECT count() FROM system.processes
     WHERE user = {name:String} OR initial_user = {name:String}
        OR query_id IN {dispatches:Array(String)} OR initial_query_id IN {dispatches:Array(String)}),
    (SELECT count() FROM system.processes WHERE position(query, {control:String}) > 0),
    (SELECT count() FROM system.asynchronous_inserts
     WHERE hasAny(`entries.query_id`, {dispatches:Array(String)}) OR (database || '.' || table) IN {tables:Array(String)}),
    (SELECT count() FROM system.distribution_queue
     WHERE (database || '.' || table) IN {tables:Array(String)} AND data_files > 0),
    (SELECT count() FROM system.mutations WHERE (database || '.' || table) IN {tables:Array(String)} AND NOT is_done),
    toString(serverUUID()), toUInt64(uptime()), toString(now64(6, 'UTC'))
