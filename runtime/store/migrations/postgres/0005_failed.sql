-- +goose Up

-- 1: the outcome of an entry of the audit log isn't OK.
ALTER TABLE audit ADD COLUMN failed SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE audit DISABLE TRIGGER audit_stays;
UPDATE audit SET failed = 1 WHERE position('"outcome":"OK"'::bytea IN value) = 0;
ALTER TABLE audit ENABLE TRIGGER audit_stays;
CREATE INDEX audit_failed ON audit (id) WHERE failed = 1;

-- +goose Down
DROP INDEX audit_failed;
ALTER TABLE audit DROP COLUMN failed;
