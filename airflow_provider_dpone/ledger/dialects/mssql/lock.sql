-- The one ledger lock, owned by the open transaction; a role of its own, so that no other user of the database can take it.
DECLARE @granted int;
EXEC @granted = sp_getapplock @Resource = N'dpone_ledger', @LockMode = N'Exclusive', @LockOwner = N'Transaction',
  @LockTimeout = 15000, @DbPrincipal = N'dpone_ledger';
SELECT @granted AS granted;
