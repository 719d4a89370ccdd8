-- The database itself checks that a document's key is the SHA-256 of its bytes.
ALTER TABLE dpone.evidence ADD CONSTRAINT ck_evidence_hash
  CHECK (evidence_sha256 = sha256(document) AND octet_length(document) BETWEEN 2 AND 8388608);
ALTER TABLE dpone.activation ADD CONSTRAINT ck_activation_hash
  CHECK (activation_sha256 = sha256(document) AND octet_length(document) BETWEEN 2 AND 8388608);
ALTER TABLE dpone.attempt ADD CONSTRAINT ck_attempt_hash
  CHECK (attempt_sha256 = sha256(document) AND octet_length(document) BETWEEN 2 AND 8388608);
CREATE FUNCTION dpone.no_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dpone.refuse(TG_TABLE_NAME || '_append_only');
  RETURN NULL;
END $$
