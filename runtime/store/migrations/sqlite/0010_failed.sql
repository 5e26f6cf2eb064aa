-- +goose Up

-- 1: the outcome of an entry of the audit log isn't OK; 0: it is; NULL: an earlier server stored it, and its value says it.
ALTER TABLE audit ADD COLUMN failed INTEGER;
CREATE INDEX audit_failed ON audit (id) WHERE coalesce(failed, 1) = 1;

-- +goose Down
DROP INDEX audit_failed;
ALTER TABLE audit DROP COLUMN failed;
