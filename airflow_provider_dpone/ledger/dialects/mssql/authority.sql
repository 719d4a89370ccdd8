-- Rules of the authority log. Kinds of entries: 1 trust policy 2 grant 3 membership; phases: 1 qualification 2 execution.
-- Kinds of their originals in the evidence: 22 policy 23 grant 24 bundle 25 membership.
CREATE TRIGGER [dpone].[authority_log_rule] ON [dpone].[authority_log] AFTER INSERT, UPDATE, DELETE AS
BEGIN
  SET NOCOUNT ON;
  IF APPLOCK_MODE(N'dpone_ledger', N'dpone_ledger', N'Transaction') <> N'Exclusive' THROW 51000, N'ledger_lock', 1;
  IF EXISTS (SELECT 1 FROM deleted) THROW 51000, N'authority_log_append_only', 1;
  IF 1 < (SELECT COUNT(*) FROM inserted AS i WHERE i.kind = 1) THROW 51000, N'authority_one_policy', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE NOT EXISTS (
      SELECT 1 FROM [dpone].[evidence] AS e
      WHERE e.evidence_sha256 = i.document_sha256 AND e.subject = i.entry_sha256
        AND e.kind = CASE i.kind WHEN 1 THEN 22 WHEN 2 THEN 23 ELSE 25 END)
    OR i.kind = 2 AND NOT EXISTS (
      SELECT 1 FROM [dpone].[evidence] AS e WHERE e.evidence_sha256 = i.bundle_sha256 AND e.kind = 24))
    THROW 51000, N'authority_document', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE i.kind = 1 AND i.revision <> 1 + (
      SELECT COUNT(*) FROM [dpone].[authority_log] AS a
      WHERE a.kind = 1 AND a.environment = i.environment AND a.entry_sha256 <> i.entry_sha256))
    THROW 51000, N'authority_trust_revision', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i JOIN [dpone].[authority_log] AS a ON a.kind = 1 AND a.environment = i.environment
    WHERE i.kind = 1 AND a.revision < i.revision AND a.epoch > i.epoch) THROW 51000, N'authority_revocation_epoch', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE i.kind <> 1 AND i.revision <> ISNULL((
      SELECT MAX(a.revision) FROM [dpone].[authority_log] AS a WHERE a.kind = 1 AND a.environment = i.environment), 0))
    THROW 51000, N'authority_trust_moved', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE i.kind = 2 AND i.phase = 2 AND NOT EXISTS (
      SELECT 1 FROM [dpone].[activation] AS a
      WHERE a.activation_sha256 = i.subject AND a.environment = i.environment AND a.state IN (1, 2)))
    THROW 51000, N'authority_activation', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i
    WHERE i.kind = 3 AND NOT EXISTS (
      SELECT 1 FROM [dpone].[authority_log] AS g
      WHERE g.entry_sha256 = i.grant_sha256 AND g.kind = 2 AND g.environment = i.environment
        AND g.campaign = i.campaign AND g.phase = i.phase AND g.revision = i.revision))
    THROW 51000, N'authority_membership_grant', 1;
  IF EXISTS (
    SELECT 1 FROM inserted AS i JOIN [dpone].[authority_log] AS m
      ON m.kind = 3 AND m.environment = i.environment AND m.campaign = i.campaign AND m.phase = i.phase
    WHERE i.kind = 3 GROUP BY i.entry_sha256 HAVING COUNT(*) > 64) THROW 51000, N'authority_membership_ceiling', 1;
END;
