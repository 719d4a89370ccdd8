-- issued: everything the server has under one issued name, to be compared with what was meant.
SELECT 'user' AS kind, [toString(id), toString(auth_type), arrayStringConcat(host_ip, ','), arrayStringConcat(host_names, ','), toString(host_names_regexp),
    toString(host_names_like), toString(default_roles_all), toString(default_roles_list), toString(grantees_any),
    toString(grantees_list)] AS fields
FROM system.users WHERE name = {name:String}
UNION ALL
SELECT 'grant', [toString(access_type), ifNull(database, ''), ifNull(table, ''), ifNull(column, ''), toString(is_partial_revoke),
    toString(grant_option)]
FROM system.grants WHERE user_name = {name:String}
UNION ALL
SELECT 'role', [granted_role_name] FROM system.role_grants WHERE user_name = {name:String}
UNION ALL
SELECT 'quota', [toString(durations), toString(apply_to_all), toString(apply_to_list)]
FROM system.quotas WHERE name = {name:String}
UNION ALL
SELECT 'limit', [ifNull(toString(max_queries), '')] FROM system.quota_limits WHERE quota_name = {name:String}
UNION ALL
SELECT 'setting', [ifNull(setting_name, ''), ifNull(value, ''), ifNull(toString(writability), '')]
FROM system.settings_profile_elements WHERE user_name = {name:String}
