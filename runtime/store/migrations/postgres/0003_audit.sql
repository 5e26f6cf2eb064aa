-- +goose Up

-- What executions used that ended on a day (UTC).
CREATE TABLE tenant_days (
	day          TEXT COLLATE "C" NOT NULL, -- as 2006-01-02
	tenant       TEXT COLLATE "C" NOT NULL, -- '': the default one
	executions   BIGINT NOT NULL,
	cpu_us       BIGINT NOT NULL,           -- microseconds, user and system
	output_bytes BIGINT NOT NULL,
	PRIMARY KEY (day, tenant)
);

-- Who did what to which object. Rows are added, and deleted when they are old.
CREATE TABLE audit (
	id     TEXT COLLATE "C" PRIMARY KEY, -- a UUID of version 7: it begins with the time
	tenant TEXT COLLATE "C" NOT NULL,
	actor  TEXT COLLATE "C" NOT NULL,
	action TEXT COLLATE "C" NOT NULL,
	object TEXT COLLATE "C" NOT NULL,    -- its id
	at     BIGINT NOT NULL,              -- Unix milliseconds
	value  BYTEA NOT NULL                -- audit.Entry as JSON
);
CREATE INDEX audit_tenant ON audit (tenant, id);
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_action ON audit (action, id);
CREATE INDEX audit_object ON audit (object, id) WHERE object <> '';

-- +goose StatementBegin
CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'entries of the audit log never change';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION audit_stays();

-- +goose Down
DROP TABLE audit;
DROP FUNCTION audit_stays();
DROP TABLE tenant_days;
