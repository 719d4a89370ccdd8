-- quiet: what of a user can still have an effect; control finds this very statement among the running ones.
SELECT
    (SELECT count() FROM system.processes
     WHERE user = {name:String} OR initial_user = {name:String}
        OR has({dispatches:Array(String)}, query_id) OR has({dispatches:Array(String)}, initial_query_id)),
    (SELECT count() FROM system.processes WHERE position(query, {control:String}) > 0),
    (SELECT count() FROM system.asynchronous_inserts
     WHERE hasAny(`entries.query_id`, {dispatches:Array(String)}) OR has({tables:Array(String)}, database || '.' || table)),
    (SELECT count() FROM system.distribution_queue
     WHERE has({tables:Array(String)}, database || '.' || table) AND data_files > 0),
    (SELECT count() FROM system.mutations WHERE has({tables:Array(String)}, database || '.' || table) AND NOT is_done),
    toString(serverUUID()), toUInt64(uptime()), toString(now64(6, 'UTC'))
