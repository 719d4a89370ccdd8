-- owner: what belongs to the gate belongs to a user that can never log in, so that no chain of ownership leads into it
IF USER_ID(N'dpone_gate_owner') IS NULL EXEC (N'CREATE USER dpone_gate_owner WITHOUT LOGIN');
GO
-- schema_of_gate: the home of marker and receipts
IF SCHEMA_ID(N'dpone_gate') IS NULL EXEC (N'CREATE SCHEMA dpone_gate AUTHORIZATION dpone_gate_owner');
GO
-- marker: the one ledger that may own the database
CREATE TABLE dpone_gate.marker (
  one tinyint NOT NULL CONSTRAINT marker_key PRIMARY KEY CONSTRAINT marker_one CHECK (one = 1),
  document nvarchar(max) NOT NULL,
  sha256 nvarchar(80) NOT NULL,
  layout nvarchar(80) NOT NULL
);
GO
-- receipt: what a load wrote, in the transaction that wrote it
CREATE TABLE dpone_gate.receipt (
  attempt nvarchar(80) NOT NULL CONSTRAINT receipt_key PRIMARY KEY,
  guard nvarchar(80) NOT NULL,
  epoch bigint NOT NULL,
  relation nvarchar(260) NOT NULL,
  document varbinary(max) NOT NULL,
  name nvarchar(128) NOT NULL,
  transaction_id bigint NOT NULL,
  written_at datetime2(7) NOT NULL CONSTRAINT receipt_written DEFAULT SYSUTCDATETIME()
);
GO
-- receipt_rule: receipts are added, nothing else
CREATE TRIGGER dpone_gate.receipt_rule ON dpone_gate.receipt AFTER UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF EXISTS (SELECT 1 FROM deleted) THROW 51000, N'receipt_append_only', 1;
END;
GO
-- look: the fence, early and without holding it
CREATE PROCEDURE dpone_gate.look @guard nvarchar(80), @epoch bigint, @attempt nvarchar(80) AS
BEGIN
  SET NOCOUNT ON;
  EXEC [control].dpone_gate.fence @guard, @epoch, @attempt, 0;
END;
GO
-- look_right: it asks who calls
GRANT EXECUTE ON OBJECT::dpone_gate.look TO public;
GO
-- conclude: the worker's last step, fence again, held, and the receipt, in the transaction that changed the target
CREATE PROCEDURE dpone_gate.conclude @guard nvarchar(80), @epoch bigint, @attempt nvarchar(80),
  @relation nvarchar(260), @document varbinary(max) AS
BEGIN
  SET NOCOUNT ON;
  EXEC [control].dpone_gate.fence @guard, @epoch, @attempt, 1;
  INSERT INTO dpone_gate.receipt (attempt, guard, epoch, relation, document, name, transaction_id)
  VALUES (@attempt, @guard, @epoch, @relation, @document, ORIGINAL_LOGIN(), CURRENT_TRANSACTION_ID());
END;
GO
-- conclude_right: it asks who calls
GRANT EXECUTE ON OBJECT::dpone_gate.conclude TO public;
GO
-- writer: the bounded role of logins that make relations
CREATE ROLE dpone_writer AUTHORIZATION dbo;
GO
-- writer_makes: tables and views, nothing that runs by itself
GRANT CREATE TABLE, CREATE VIEW, VIEW DEFINITION TO dpone_writer;
GO
-- writer_sees: what depends on what
GRANT SELECT ON OBJECT::sys.sql_expression_dependencies TO dpone_writer;
