-- owner: what belongs to the gate belongs to a user that can never log in, so that no chain of ownership leads into it
CREATE USER dpone_gate_owner WITHOUT LOGIN;
GO
-- schema_of_gate: the home of the gate in its database
CREATE SCHEMA dpone_gate AUTHORIZATION dpone_gate_owner;
GO
-- gate: one row per name ever used, kept for good. State 1 JOURNALED 2 READY 3 CLOSING 4 CLOSED; made 0 stands for a
-- name under which no login was made and none can be. One row is one lock: the trigger's and the closer's.
CREATE TABLE dpone_gate.gate (
  sid binary(16) NOT NULL CONSTRAINT gate_key PRIMARY KEY,
  name nvarchar(128) NOT NULL CONSTRAINT gate_name UNIQUE,
  guard nvarchar(80) NOT NULL,
  epoch bigint NOT NULL CONSTRAINT gate_epoch CHECK (epoch > 0),
  attempt nvarchar(80) NOT NULL,
  made bit NOT NULL,
  state tinyint NOT NULL CONSTRAINT gate_state CHECK (state BETWEEN 1 AND 4),
  journaled_at datetime2(7) NOT NULL CONSTRAINT gate_journaled DEFAULT SYSUTCDATETIME(),
  CONSTRAINT gate_name_of_sid CHECK (name = N'dpone_w_' + LOWER(CONVERT(nvarchar(32), sid, 2)))
);
GO
-- one_open: a guard has one open gate
CREATE UNIQUE INDEX gate_one_open ON dpone_gate.gate (guard) WHERE state <> 4;
GO
-- one_worker: an attempt gets one login, ever
CREATE UNIQUE INDEX gate_one_worker ON dpone_gate.gate (attempt) WHERE made = 1;
GO
-- row_locks: never one lock for several rows
ALTER INDEX ALL ON dpone_gate.gate SET (ALLOW_PAGE_LOCKS = OFF, ALLOW_ROW_LOCKS = ON);
GO
-- escalation: nor one for the table
ALTER TABLE dpone_gate.gate SET (LOCK_ESCALATION = DISABLE);
GO
-- rule: rows are added and moved forward, nothing else. A refusal is error 51000 with the rule's name.
CREATE TRIGGER dpone_gate.gate_rule ON dpone_gate.gate AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF EXISTS (SELECT 1 FROM deleted AS d LEFT JOIN inserted AS i ON i.sid = d.sid WHERE i.sid IS NULL)
    THROW 51000, N'gate_append_only', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i LEFT JOIN deleted AS d ON d.sid = i.sid
    WHERE d.sid IS NULL AND NOT (i.state = 1 AND i.made = 1 OR i.state = 4 AND i.made = 0))
    THROW 51000, N'gate_born', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i JOIN dpone_gate.gate AS g ON g.guard = i.guard AND g.epoch > i.epoch
    WHERE i.state = 1) THROW 51000, N'gate_stale_epoch', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.sid = d.sid
    WHERE i.name <> d.name OR i.guard <> d.guard OR i.epoch <> d.epoch OR i.attempt <> d.attempt OR i.made <> d.made
      OR i.journaled_at <> d.journaled_at) THROW 51000, N'gate_immutable', 1;
  IF EXISTS (
    SELECT 1 FROM deleted AS d JOIN inserted AS i ON i.sid = d.sid
    WHERE NOT (d.state = 1 AND i.state IN (2, 3) OR d.state = 2 AND i.state = 3 OR d.state = 3 AND i.state = 4))
    THROW 51000, N'gate_transition', 1;
END;
GO
-- fence: the gate of the calling login is READY under exactly this guard, epoch and attempt; held to the end when asked
CREATE PROCEDURE dpone_gate.fence @guard nvarchar(80), @epoch bigint, @attempt nvarchar(80), @hold bit AS
BEGIN
  SET NOCOUNT ON;
  DECLARE @open int = 0, @sid binary(16) = CONVERT(binary(16), SUSER_SID());
  IF ORIGINAL_LOGIN() <> SUSER_SNAME() THROW 51003, N'fence_identity', 1;
  IF @@TRANCOUNT < 1 THROW 51003, N'fence_transaction', 1;
  IF @hold = 1
    SELECT @open = COUNT(*) FROM dpone_gate.gate AS g WITH (HOLDLOCK, ROWLOCK, NOWAIT)
    WHERE g.sid = @sid AND g.state = 2 AND g.guard = @guard AND g.epoch = @epoch AND g.attempt = @attempt;
  ELSE
    SELECT @open = COUNT(*) FROM dpone_gate.gate AS g
    WHERE g.sid = @sid AND g.state = 2 AND g.guard = @guard AND g.epoch = @epoch AND g.attempt = @attempt;
  IF @open <> 1 THROW 51003, N'fence_refused', 1;
END;
GO
-- fence_right: it asks who calls
GRANT EXECUTE ON OBJECT::dpone_gate.fence TO public;
GO
-- reader: the login the trigger runs as; it has a password nobody knows and is disabled
DECLARE @made nvarchar(400) = N'CREATE LOGIN dpone_gate_reader WITH PASSWORD = N''Dp1_'
  + CONVERT(nvarchar(64), CRYPT_GEN_RANDOM(32), 2) + N''', CHECK_POLICY = ON, CHECK_EXPIRATION = OFF;';
EXEC (@made);
GO
-- reader_disabled: it never logs in
ALTER LOGIN dpone_gate_reader DISABLE;
GO
-- reader_user: and reads nothing but the gate
CREATE USER dpone_gate_reader FOR LOGIN dpone_gate_reader;
GO
-- reader_right: one table
GRANT SELECT ON OBJECT::dpone_gate.gate TO dpone_gate_reader;
GO
-- login_trigger: refuses a login of ours unless its gate is READY now. The lock lasts as long as the login's own
-- transaction, so a closer that has moved the row on knows that every session there will ever be is visible already. A
-- login without our tag in its SID and our prefix in its name touches no table.
CREATE TRIGGER dpone_login_gate ON ALL SERVER WITH EXECUTE AS N'dpone_gate_reader' FOR LOGON AS
BEGIN
  SET NOCOUNT ON;
  DECLARE @sid varbinary(85) = SUSER_SID(ORIGINAL_LOGIN());
  IF ((@sid IS NULL OR DATALENGTH(@sid) <> 16 OR SUBSTRING(@sid, 1, 4) <> 0x64706F6E)
      AND ORIGINAL_LOGIN() NOT LIKE N'dpone[_]w[_]%') RETURN;
  DECLARE @open int = 0;
  SELECT @open = COUNT(*) FROM [control].dpone_gate.gate AS g WITH (HOLDLOCK, ROWLOCK, NOWAIT)
  WHERE g.sid = CONVERT(binary(16), @sid) AND g.state = 2;
  IF @open <> 1 ROLLBACK TRANSACTION;
END;
