-- enabled: logins that can log in although their gate is CLOSED
SELECT g.name FROM dpone_gate.gate AS g
JOIN sys.server_principals AS p ON p.name = g.name AND p.is_disabled = 0
WHERE g.state = 4 ORDER BY g.name;
