-- Installation adopts nothing: with any of these names in the database the script ends here and is rolled back.
DO $$
BEGIN
  IF pg_catalog.to_regnamespace('dpone') IS NOT NULL OR EXISTS (
    SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND c.relname IN (/*names*/'ledger_meta')) THEN
    RAISE EXCEPTION 'ledger_exists';
  END IF;
END $$
