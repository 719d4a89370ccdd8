-- probe: whether the trigger's login may read the gate, asked as that login; the controller is restored before a row is sent
SET NOCOUNT ON;
DECLARE @may int, @as_whom nvarchar(128);
EXECUTE AS LOGIN = N'dpone_gate_reader';
SELECT @may = HAS_PERMS_BY_NAME(N'[dpone_gate].[gate]', N'OBJECT', N'SELECT'), @as_whom = SUSER_SNAME();
REVERT;
SELECT @may AS may, @as_whom AS as_whom, SUSER_SNAME() AS now, ORIGINAL_LOGIN() AS original;
