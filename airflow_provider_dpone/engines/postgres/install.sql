-- The login gate of one database, as an administrator installs it. Everything belongs to a role that cannot log in; the
-- controller may add gates and move them forward, and nothing else. Gate: 1 JOURNALED 2 READY 3 CLOSING 4 CLOSED.

CREATE TABLE dpone_gate.marker (
  one smallint PRIMARY KEY DEFAULT 1 CONSTRAINT marker_one CHECK (one = 1),
  document text NOT NULL,
  sha256 text NOT NULL,
  layout text NOT NULL
);

-- One row per name ever used, kept for good: a name whose row is CLOSED can never be created or log in again.
CREATE TABLE dpone_gate.gate (
  name name PRIMARY KEY CONSTRAINT gate_name CHECK (name::text ~ '^dpone_w_[0-9a-f]{32}$'),
  incarnation uuid NOT NULL CONSTRAINT gate_incarnation UNIQUE,
  guard text NOT NULL,
  epoch bigint NOT NULL CONSTRAINT gate_epoch CHECK (epoch > 0),
  attempt text NOT NULL,
  role_oid oid,
  state smallint NOT NULL CONSTRAINT gate_state CHECK (state BETWEEN 1 AND 4),
  journaled_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE UNIQUE INDEX gate_one_open ON dpone_gate.gate (guard) WHERE state <> 4;
CREATE UNIQUE INDEX gate_one_worker ON dpone_gate.gate (attempt) WHERE role_oid IS NOT NULL;

-- What a load wrote, in the transaction that wrote it.
CREATE TABLE dpone_gate.receipt (
  attempt text PRIMARY KEY,
  guard text NOT NULL,
  epoch bigint NOT NULL,
  relation text NOT NULL,
  document text NOT NULL,
  sha256 text NOT NULL,
  name name NOT NULL,
  xid xid8 NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY,
  written_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

CREATE FUNCTION dpone_gate.gate_rule() RETURNS trigger LANGUAGE plpgsql SET search_path = '' AS $gate$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NOT (NEW.state = 1 AND NEW.role_oid IS NOT NULL OR NEW.state = 4 AND NEW.role_oid IS NULL) THEN
      RAISE EXCEPTION USING ERRCODE = 'DP002', MESSAGE = 'gate_born';
    END IF;
    IF NEW.state = 1 AND EXISTS (
        SELECT FROM dpone_gate.gate AS g WHERE g.guard = NEW.guard AND g.epoch > NEW.epoch) THEN
      RAISE EXCEPTION USING ERRCODE = 'DP002', MESSAGE = 'gate_stale_epoch';
    END IF;
    RETURN NEW;
  END IF;
  IF TG_OP <> 'UPDATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'DP002', MESSAGE = 'gate_append_only';
  END IF;
  IF (NEW.name, NEW.incarnation, NEW.guard, NEW.epoch, NEW.attempt, NEW.role_oid, NEW.journaled_at)
     IS DISTINCT FROM (OLD.name, OLD.incarnation, OLD.guard, OLD.epoch, OLD.attempt, OLD.role_oid, OLD.journaled_at) THEN
    RAISE EXCEPTION USING ERRCODE = 'DP002', MESSAGE = 'gate_immutable';
  END IF;
  IF NOT ((OLD.state = 1 AND NEW.state IN (2, 3)) OR (OLD.state = 2 AND NEW.state = 3) OR (OLD.state = 3 AND NEW.state = 4)) THEN
    RAISE EXCEPTION USING ERRCODE = 'DP002', MESSAGE = 'gate_transition';
  END IF;
  RETURN NEW;
END $gate$;

CREATE FUNCTION dpone_gate.append_only() RETURNS trigger LANGUAGE plpgsql SET search_path = '' AS $gate$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'DP002', MESSAGE = TG_TABLE_NAME || '_append_only';
END $gate$;

CREATE TRIGGER gate_rule BEFORE INSERT OR UPDATE OR DELETE ON dpone_gate.gate
  FOR EACH ROW EXECUTE FUNCTION dpone_gate.gate_rule();
CREATE TRIGGER gate_kept BEFORE TRUNCATE ON dpone_gate.gate EXECUTE FUNCTION dpone_gate.append_only();
CREATE TRIGGER receipt_rule BEFORE UPDATE OR DELETE ON dpone_gate.receipt
  FOR EACH ROW EXECUTE FUNCTION dpone_gate.append_only();
CREATE TRIGGER receipt_kept BEFORE TRUNCATE ON dpone_gate.receipt EXECUTE FUNCTION dpone_gate.append_only();
ALTER TABLE dpone_gate.gate ENABLE ALWAYS TRIGGER gate_rule;
ALTER TABLE dpone_gate.gate ENABLE ALWAYS TRIGGER gate_kept;
ALTER TABLE dpone_gate.receipt ENABLE ALWAYS TRIGGER receipt_rule;
ALTER TABLE dpone_gate.receipt ENABLE ALWAYS TRIGGER receipt_kept;

-- Refuses a login of ours unless its gate is READY now. The share lock lasts as long as the login's own transaction, so
-- a closer that has moved the row on knows that every session there will ever be is visible already.
CREATE FUNCTION dpone_gate.login() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $gate$
BEGIN
  IF pg_catalog.left(session_user::text, 8) <> 'dpone_w_' THEN
    RETURN;
  END IF;
  PERFORM 1 FROM dpone_gate.gate AS g
    WHERE g.name = session_user AND g.state = 2
      AND g.role_oid = pg_catalog.quote_ident(session_user::text)::pg_catalog.regrole::oid
    FOR SHARE NOWAIT;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '28000', MESSAGE = 'the gate of this login is not open';
  END IF;
END $gate$;

-- The gate of the calling worker is READY under exactly this guard, epoch and attempt; held until the end when asked.
CREATE FUNCTION dpone_gate.fence(guard text, epoch bigint, attempt text, hold boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $gate$
BEGIN
  IF hold THEN
    PERFORM 1 FROM dpone_gate.gate AS g
      WHERE g.name = session_user AND g.state = 2 AND g.guard = fence.guard AND g.epoch = fence.epoch
        AND g.attempt = fence.attempt
      FOR SHARE NOWAIT;
  ELSE
    PERFORM 1 FROM dpone_gate.gate AS g
      WHERE g.name = session_user AND g.state = 2 AND g.guard = fence.guard AND g.epoch = fence.epoch
        AND g.attempt = fence.attempt;
  END IF;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'DP003', MESSAGE = 'this attempt does not hold the guard any more';
  END IF;
END $gate$;

-- The worker's last statement: fence again, held, and the receipt, in the transaction that changed the target.
CREATE FUNCTION dpone_gate.conclude(guard text, epoch bigint, attempt text, relation text, document text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $gate$
BEGIN
  PERFORM dpone_gate.fence(conclude.guard, conclude.epoch, conclude.attempt, true);
  INSERT INTO dpone_gate.receipt (attempt, guard, epoch, relation, document, sha256, name, xid)
  VALUES (
    conclude.attempt, conclude.guard, conclude.epoch, conclude.relation, conclude.document,
    'sha256:' || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(conclude.document, 'UTF8')), 'hex'),
    session_user, pg_catalog.pg_current_xact_id());
END $gate$;

REVOKE ALL ON FUNCTION dpone_gate.gate_rule(), dpone_gate.append_only(), dpone_gate.login() FROM PUBLIC;
