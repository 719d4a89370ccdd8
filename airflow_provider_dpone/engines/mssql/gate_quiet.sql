-- known: the view is complete: it shows a second session of ours, and the system's own
SELECT (SELECT COUNT(*) FROM sys.dm_exec_sessions AS s WHERE s.session_id = {known} AND s.program_name = {program}) AS known,
  (SELECT COUNT(*) FROM sys.dm_exec_sessions AS s WHERE s.is_user_process = 0) AS system_sessions;
GO
-- sessions: every session of the login, also one that took its identity, with the time it logged in
SELECT s.session_id, CONVERT(nvarchar(33), s.login_time, 126) AS since
FROM sys.dm_exec_sessions AS s WHERE s.security_id = {sid} OR s.original_security_id = {sid};
GO
-- kill: end one session, if it still is the one that was seen
IF EXISTS (
  SELECT 1 FROM sys.dm_exec_sessions AS s
  WHERE s.session_id = {spid} AND CONVERT(nvarchar(33), s.login_time, 126) = {since}
    AND (s.security_id = {sid} OR s.original_security_id = {sid}))
  KILL {spid};
GO
-- transactions: every transaction in the database that no session has, or a session other than this one writes with
SELECT CASE WHEN t.session_id IS NULL THEN N'none' ELSE CONCAT(N'session ', t.session_id, N' of ', s.original_login_name) END AS whose
FROM sys.dm_tran_database_transactions AS d
LEFT JOIN sys.dm_tran_active_transactions AS a ON a.transaction_id = d.transaction_id
LEFT JOIN sys.dm_tran_session_transactions AS t ON t.transaction_id = d.transaction_id
LEFT JOIN sys.dm_exec_sessions AS s ON s.session_id = t.session_id
WHERE d.database_id = DB_ID() AND d.database_transaction_type <> 3 AND ISNULL(a.transaction_type, 1) <> 3
  AND ISNULL(t.session_id, 0) <> @@SPID
  AND (t.session_id IS NULL OR d.database_transaction_type = 1 OR t.is_bound = 1);
GO
-- locks: locks without a session: orphaned distributed transactions, deferred recovery
SELECT COUNT(*) FROM sys.dm_tran_locks AS k WHERE k.resource_database_id = DB_ID() AND k.request_session_id < 0;
GO
-- login: whatever stands under the name or the SID
SELECT p.name, LOWER(CONVERT(char(32), p.sid, 2)) AS sid, p.type, p.is_disabled
FROM sys.server_principals AS p WHERE p.name = {name} OR p.sid = {sid};
GO
-- users: users of the login that are left, here and where the gates are
SELECT N'target' AS place FROM sys.database_principals AS u WHERE u.name = {name} OR u.sid = {sid}
UNION ALL
SELECT N'control' FROM [control].sys.database_principals AS u WHERE u.name = {name} OR u.sid = {sid};
GO
-- gate: its gate
SELECT g.state, g.made FROM [control].dpone_gate.gate AS g WITH (HOLDLOCK) WHERE g.sid = {sid};
GO
-- moment: since when the server runs, and the time of this look, both in UTC
SELECT DATEADD(second, DATEDIFF(second, GETDATE(), GETUTCDATE()), i.sqlserver_start_time) AS started, GETUTCDATE() AS seen
FROM sys.dm_os_sys_info AS i;
