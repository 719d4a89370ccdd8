-- writers: who could write one of the tables; judged in writers.py.
SELECT 'privilege' AS kind, [toString(privilege), ifNull(toString(parent_group), '')] AS fields FROM system.privileges
WHERE startsWith(toString(privilege), 'ALTER') OR privilege IN ('ALL', 'INSERT', 'TRUNCATE', 'OPTIMIZE', 'CREATE', 'CREATE TABLE', 'DROP', 'DROP TABLE', 'DROP DATABASE')
UNION ALL
-- nowhere: no host, so nobody can log in as this user.
SELECT 'user', [name, toString(empty(host_ip) AND empty(host_names) AND empty(host_names_regexp) AND empty(host_names_like))]
FROM system.users
UNION ALL
SELECT 'role', [ifNull(user_name, ''), ifNull(role_name, ''), granted_role_name] FROM system.role_grants
UNION ALL
SELECT 'grant', [ifNull(user_name, ''), ifNull(role_name, ''), toString(access_type), ifNull(database, ''), ifNull(table, ''),
    ifNull(column, ''), toString(is_partial_revoke), toString(is_wildcard)]
FROM system.grants
WHERE database IS NULL OR database = {database:String} OR (is_wildcard AND startsWith({database:String}, assumeNotNull(database)))
