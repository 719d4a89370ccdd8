-- The database itself checks that a document's key is the SHA-256 of its bytes.
ALTER TABLE [dpone].[evidence] ADD CONSTRAINT ck_evidence_hash
  CHECK (evidence_sha256 = HASHBYTES('SHA2_256', document) AND DATALENGTH(document) BETWEEN 2 AND 8388608);
GO
ALTER TABLE [dpone].[activation] ADD CONSTRAINT ck_activation_hash
  CHECK (activation_sha256 = HASHBYTES('SHA2_256', document) AND DATALENGTH(document) BETWEEN 2 AND 8388608);
GO
ALTER TABLE [dpone].[attempt] ADD CONSTRAINT ck_attempt_hash
  CHECK (attempt_sha256 = HASHBYTES('SHA2_256', document) AND DATALENGTH(document) BETWEEN 2 AND 8388608);
GO
-- A table that others reference cannot be truncated, and no trigger would see it. This one stays empty.
CREATE TABLE [dpone].[no_truncate] (
  never smallint NOT NULL CONSTRAINT no_truncate_pkey PRIMARY KEY CONSTRAINT ck_no_truncate CHECK (never = 0 AND never = 1),
  one smallint NOT NULL CONSTRAINT no_truncate_one_fkey REFERENCES [dpone].[ledger_meta] (one),
  attempt_sha256 binary(32) NOT NULL,
  guard_id binary(32) NOT NULL,
  dispatch_id uniqueidentifier NOT NULL CONSTRAINT no_truncate_dispatch_id_fkey REFERENCES [dpone].[dispatch] (dispatch_id),
  intent_sha256 binary(32) NOT NULL CONSTRAINT no_truncate_intent_sha256_fkey
    REFERENCES [dpone].[publication] (intent_sha256),
  entry_sha256 binary(32) NOT NULL CONSTRAINT no_truncate_entry_sha256_fkey
    REFERENCES [dpone].[authority_log] (entry_sha256),
  CONSTRAINT no_truncate_attempt_guard_fkey FOREIGN KEY (attempt_sha256, guard_id)
    REFERENCES [dpone].[attempt_guard] (attempt_sha256, guard_id)
);
