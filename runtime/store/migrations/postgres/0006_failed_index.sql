-- +goose NO TRANSACTION
-- +goose Up

-- Concurrently: another server leads meanwhile, and stores entries.
DROP INDEX IF EXISTS audit_failed; -- that a server left unfinished
CREATE INDEX CONCURRENTLY audit_failed ON audit (id) WHERE coalesce(failed, 1) = 1;

-- +goose Down
DROP INDEX audit_failed;
