-- rights: the controller's rights where the gates are; an owner of that database has them already
IF SUSER_SID({name}) <> (SELECT d.owner_sid FROM sys.databases AS d WHERE d.database_id = DB_ID())
BEGIN
  IF USER_ID({name}) IS NULL CREATE USER [controller] FOR LOGIN [controller];
  GRANT ALTER ANY USER TO [controller];
  GRANT VIEW DEFINITION TO [controller];
  GRANT SELECT, INSERT ON OBJECT::dpone_gate.gate TO [controller];
  GRANT UPDATE ON OBJECT::dpone_gate.gate (state) TO [controller];
END;
