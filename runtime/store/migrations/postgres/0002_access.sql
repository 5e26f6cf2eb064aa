-- +goose Up

-- Whose an execution or a batch is; '': the default tenant's.
ALTER TABLE executions ADD COLUMN tenant TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX executions_tenant ON executions (tenant, id);
ALTER TABLE batches ADD COLUMN tenant TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX batches_tenant ON batches (tenant, id);

CREATE TABLE tenants (
	id    TEXT COLLATE "C" PRIMARY KEY,
	value BYTEA NOT NULL -- runtime.Tenant as JSON
);

CREATE TABLE tokens (
	id    TEXT COLLATE "C" PRIMARY KEY,
	value BYTEA NOT NULL, -- access.Token as JSON
	used  BIGINT          -- Unix milliseconds of the last use; NULL: it wasn't used
);

-- +goose Down
DROP TABLE tokens;
DROP TABLE tenants;
DROP INDEX batches_tenant;
ALTER TABLE batches DROP COLUMN tenant;
DROP INDEX executions_tenant;
ALTER TABLE executions DROP COLUMN tenant;
