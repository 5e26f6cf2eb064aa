-- +goose Up

-- What executions used that ended on a day (UTC).
CREATE TABLE tenant_days (
	day          TEXT NOT NULL,    -- as 2006-01-02
	tenant       TEXT NOT NULL,    -- '': the default one
	executions   INTEGER NOT NULL,
	cpu_us       INTEGER NOT NULL, -- microseconds, user and system
	output_bytes INTEGER NOT NULL,
	PRIMARY KEY (day, tenant)
) STRICT, WITHOUT ROWID;

-- Who did what to which object. Rows are added, and deleted when they are old.
CREATE TABLE audit (
	id     TEXT PRIMARY KEY, -- a UUID of version 7: it begins with the time
	tenant TEXT NOT NULL,
	actor  TEXT NOT NULL,
	action TEXT NOT NULL,
	object TEXT NOT NULL,    -- its id
	at     INTEGER NOT NULL, -- Unix milliseconds
	value  BLOB NOT NULL     -- audit.Entry as JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_tenant ON audit (tenant, id);
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_action ON audit (action, id);
CREATE INDEX audit_object ON audit (object, id) WHERE object <> '';

-- +goose StatementBegin
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN
	SELECT RAISE(ABORT, 'entries of the audit log never change');
END;
-- +goose StatementEnd

-- +goose Down
DROP TABLE audit;
DROP TABLE tenant_days;
