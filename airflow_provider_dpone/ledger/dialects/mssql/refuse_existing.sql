-- Installation adopts nothing: with any of these names in the database the rest of the script is not executed.
IF SCHEMA_ID(N'dpone') IS NOT NULL OR EXISTS (
  SELECT 1 FROM sys.objects AS o WHERE o.type IN ('U', 'V', 'SN') AND LOWER(o.name) IN (/*names*/N'ledger_meta'))
BEGIN
  RAISERROR(N'ledger_exists', 16, 1);
  SET NOEXEC ON;
END;
