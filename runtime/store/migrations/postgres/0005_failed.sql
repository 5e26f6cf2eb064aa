-- +goose Up

-- 1: the outcome of an entry of the audit log isn't OK; 0: it is; NULL: an earlier server stored it, and its value says it.
ALTER TABLE audit ADD COLUMN failed SMALLINT;

-- As SQLite has it.
CREATE FUNCTION instr(whole BYTEA, part BYTEA) RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT position(part IN whole)';

-- +goose Down
DROP FUNCTION instr(BYTEA, BYTEA);
ALTER TABLE audit DROP COLUMN failed;
