-- users: whether a name or a UUID is on the server; control counts the reader itself, which must be there.
SELECT groupArrayIf((name, toString(id), nowhere), name = {name:String} OR toString(id) = {uuid:String}),
    countIf(name = currentUser()),
    toString(serverUUID()), toUInt64(uptime()), toString(now64(6, 'UTC'))
FROM
(
    SELECT name, id, empty(host_ip) AND empty(host_names) AND empty(host_names_regexp) AND empty(host_names_like) AS nowhere
    FROM system.users
)
