-- Rules of the authority log. Kinds of entries: 1 trust policy 2 grant 3 membership; phases: 1 qualification 2 execution.
-- Kinds of their originals in the evidence: 22 policy 23 grant 24 bundle 25 membership.
CREATE FUNCTION dpone.authority_log_rule() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  last_revision integer;
  last_epoch bigint;
BEGIN
  PERFORM dpone.require_lock();
  IF TG_OP <> 'INSERT' THEN
    PERFORM dpone.refuse('authority_log_append_only');
  END IF;
  IF NOT EXISTS (
    SELECT 1 FROM dpone.evidence AS e WHERE e.evidence_sha256 = NEW.document_sha256
      AND e.kind = CASE NEW.kind WHEN 1 THEN 22 WHEN 2 THEN 23 ELSE 25 END AND e.subject = NEW.entry_sha256)
     OR NEW.kind = 2 AND NOT EXISTS (
    SELECT 1 FROM dpone.evidence AS e WHERE e.evidence_sha256 = NEW.bundle_sha256 AND e.kind = 24) THEN
    PERFORM dpone.refuse('authority_document');
  END IF;
  SELECT a.revision, a.epoch INTO last_revision, last_epoch FROM dpone.authority_log AS a
  WHERE a.kind = 1 AND a.environment = NEW.environment ORDER BY a.revision DESC LIMIT 1;
  IF NEW.kind = 1 THEN
    IF EXISTS (
      SELECT 1 FROM dpone.authority_log AS a WHERE a.kind = 1 AND a.xmin = pg_catalog.pg_current_xact_id()::xid) THEN
      PERFORM dpone.refuse('authority_one_policy');
    END IF;
    IF NEW.revision <> COALESCE(last_revision, 0) + 1 THEN PERFORM dpone.refuse('authority_trust_revision'); END IF;
    IF NEW.epoch < COALESCE(last_epoch, 0) THEN PERFORM dpone.refuse('authority_revocation_epoch'); END IF;
    RETURN NEW;
  END IF;
  IF NEW.revision IS DISTINCT FROM last_revision THEN PERFORM dpone.refuse('authority_trust_moved'); END IF;
  IF NEW.kind = 2 AND NEW.phase = 2 AND NOT EXISTS (
    SELECT 1 FROM dpone.activation AS a
    WHERE a.activation_sha256 = NEW.subject AND a.environment = NEW.environment AND a.state IN (1, 2)) THEN
    PERFORM dpone.refuse('authority_activation');
  END IF;
  IF NEW.kind = 3 THEN
    IF NOT EXISTS (
      SELECT 1 FROM dpone.authority_log AS g
      WHERE g.entry_sha256 = NEW.grant_sha256 AND g.kind = 2 AND g.environment = NEW.environment
        AND g.campaign = NEW.campaign AND g.phase = NEW.phase AND g.revision = NEW.revision) THEN
      PERFORM dpone.refuse('authority_membership_grant');
    END IF;
    IF (SELECT count(*) FROM dpone.authority_log AS m
        WHERE m.kind = 3 AND m.environment = NEW.environment AND m.campaign = NEW.campaign AND m.phase = NEW.phase) >= 64 THEN
      PERFORM dpone.refuse('authority_membership_ceiling');
    END IF;
  END IF;
  RETURN NEW;
END $$
