-- {table} and {rule} are filled in per table. ALWAYS: the rules hold under session_replication_role = replica too.
CREATE TRIGGER {table}_rule BEFORE INSERT OR UPDATE OR DELETE ON dpone.{table}
  FOR EACH ROW EXECUTE FUNCTION dpone.{rule}();
ALTER TABLE dpone.{table} ENABLE ALWAYS TRIGGER {table}_rule;
CREATE TRIGGER {table}_truncate BEFORE TRUNCATE ON dpone.{table}
  FOR EACH STATEMENT EXECUTE FUNCTION dpone.no_truncate();
ALTER TABLE dpone.{table} ENABLE ALWAYS TRIGGER {table}_truncate
