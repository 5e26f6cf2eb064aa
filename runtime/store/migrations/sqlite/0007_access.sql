-- +goose Up

-- Whose an execution or a batch is; '': the default tenant's.
ALTER TABLE executions ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
CREATE INDEX executions_tenant ON executions (tenant, id);
ALTER TABLE batches ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
CREATE INDEX batches_tenant ON batches (tenant, id);

CREATE TABLE tenants (
	id    TEXT PRIMARY KEY,
	value BLOB NOT NULL -- runtime.Tenant as JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
	id    TEXT PRIMARY KEY,
	value BLOB NOT NULL, -- access.Token as JSON
	used  INTEGER        -- Unix milliseconds of the last use; NULL: it wasn't used
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE tokens;
DROP TABLE tenants;
DROP INDEX batches_tenant;
ALTER TABLE batches DROP COLUMN tenant;
DROP INDEX executions_tenant;
ALTER TABLE executions DROP COLUMN tenant;
