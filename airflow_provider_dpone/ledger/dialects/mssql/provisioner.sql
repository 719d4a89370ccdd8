-- What a provisioner of authority may do: read everything, add trust policies, grants and their originals. Nothing else.
GRANT SELECT ON SCHEMA::[dpone] TO [/*provisioner*/];
GO
GRANT VIEW DEFINITION ON SCHEMA::[dpone] TO [/*provisioner*/];
GO
GRANT INSERT ON [dpone].[evidence] TO [/*provisioner*/];
GO
GRANT INSERT ON [dpone].[authority_log] TO [/*provisioner*/];
GO
ALTER ROLE [dpone_ledger] ADD MEMBER [/*provisioner*/];
