-- +goose Up

-- 1: the outcome of an entry of the audit log isn't OK.
ALTER TABLE audit ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
DROP TRIGGER audit_stays;
UPDATE audit SET failed = 1 WHERE instr(CAST(value AS TEXT), '"outcome":"OK"') = 0;
-- +goose StatementBegin
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN
	SELECT RAISE(ABORT, 'entries of the audit log never change');
END;
-- +goose StatementEnd
CREATE INDEX audit_failed ON audit (id) WHERE failed = 1;

-- +goose Down
DROP INDEX audit_failed;
ALTER TABLE audit DROP COLUMN failed;
