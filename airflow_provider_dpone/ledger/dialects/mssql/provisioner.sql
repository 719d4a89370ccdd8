-- What a provisioner of authority may do: read everything, add trust policies, grants and their originals. Nothing else.
GRANT SELECT ON SCHEMA::[dpone] TO [/*provisioner*/];
GO
-- Everybody's rights and every module are part of the layout: who sees less than its owner sees another ledger.
GRANT VIEW DEFINITION TO [/*provisioner*/];
GO
GRANT VIEW SECURITY DEFINITION TO [/*provisioner*/];
GO
GRANT EXECUTE ON [dpone].[digest_text] TO [/*provisioner*/];
GO
GRANT EXECUTE ON [dpone].[digest_bytes] TO [/*provisioner*/];
GO
GRANT EXECUTE ON [dpone].[document] TO [/*provisioner*/];
GO
GRANT EXECUTE ON [dpone].[utf8] TO [/*provisioner*/];
GO
GRANT EXECUTE ON [dpone].[sha256] TO [/*provisioner*/];
GO
GRANT INSERT ON [dpone].[evidence] TO [/*provisioner*/];
GO
GRANT INSERT ON [dpone].[authority_log] TO [/*provisioner*/];
GO
ALTER ROLE [dpone_ledger] ADD MEMBER [/*provisioner*/];
