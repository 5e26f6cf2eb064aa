-- +goose Up

-- Ids are compared byte by byte, as SQLite does.
CREATE TABLE environments (
	id       TEXT COLLATE "C" PRIMARY KEY,
	revision BIGINT NOT NULL,
	value    BYTEA NOT NULL -- runtime.Environment as JSON
);

CREATE TABLE runners (
	id      TEXT COLLATE "C" PRIMARY KEY,
	epoch   BIGINT NOT NULL, -- of the claim; 0 if it has none
	value   BYTEA NOT NULL,  -- runtime.Runner as JSON, without its claim
	claim   BYTEA NOT NULL,  -- runtime.Claim as JSON
	private BYTEA            -- the cluster's own data
);

CREATE TABLE executions (
	id          TEXT COLLATE "C" PRIMARY KEY,
	runner      TEXT COLLATE "C" NOT NULL,
	environment TEXT COLLATE "C" NOT NULL,
	state       TEXT NOT NULL,
	key         TEXT UNIQUE,                         -- NULL if it has none
	value       BYTEA NOT NULL,                      -- runtime.Execution as JSON
	finished    BIGINT,                              -- Unix milliseconds; NULL while it is unfinished
	bytes       BIGINT NOT NULL DEFAULT 0,           -- its disk use, once it has finished
	batch       TEXT COLLATE "C",                    -- NULL if it belongs to none
	case_no     BIGINT,                              -- in its batch
	tenant      TEXT COLLATE "C" NOT NULL DEFAULT '' -- '' is the default tenant
);
CREATE INDEX executions_runner ON executions (runner, id);
CREATE INDEX executions_environment ON executions (environment, id);
CREATE INDEX executions_state ON executions (state, id) WHERE state <> 'FINISHED';
CREATE INDEX executions_finished ON executions (finished, bytes) WHERE finished IS NOT NULL;
CREATE INDEX executions_batch ON executions (batch, case_no) WHERE batch IS NOT NULL;
CREATE INDEX executions_tenant ON executions (tenant, id);

-- What executions are searched by: narrow, so that all rows can be read.
CREATE TABLE execution_search (
	execution   TEXT COLLATE "C" PRIMARY KEY,
	environment TEXT COLLATE "C" NOT NULL,
	tenant      TEXT COLLATE "C" NOT NULL,
	queued      BIGINT NOT NULL,            -- Unix nanoseconds
	outcome     TEXT NOT NULL DEFAULT '',   -- '' while it is unfinished
	failed      BIGINT,                     -- 1: see runtime.Execution.Failed; 0: it exited with status 0; NULL: it is unfinished, or was cancelled
	labels      TEXT COLLATE "C" NOT NULL,  -- a line for each: see labelLine
	command     TEXT COLLATE "C" NOT NULL   -- the beginning of its command line, in lower case
);

-- SQLite has this function.
CREATE FUNCTION instr(whole TEXT, part TEXT) RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT strpos(whole, part)';

-- What the engine needs to continue an execution after a restart. The API doesn't show it. It is deleted when
-- the execution ends.
CREATE TABLE restarts (
	execution TEXT COLLATE "C" PRIMARY KEY,
	start     BYTEA NOT NULL, -- the engine's
	killed    TEXT,           -- the outcome for which it was killed; NULL if it wasn't
	input_end BIGINT,         -- the offset at which its stdin was closed; NULL if it wasn't
	gone      TEXT            -- why its runner is about to be removed, or was; NULL if it wasn't
);

-- The output of executions, as package output encodes it.
CREATE TABLE output (
	execution TEXT COLLATE "C" NOT NULL,
	position  BIGINT NOT NULL, -- bytes of it before this
	data      BYTEA NOT NULL,
	PRIMARY KEY (execution, position)
);
ALTER TABLE output ALTER COLUMN data SET STORAGE EXTERNAL; -- compression takes too much time

-- The executions that were deleted and whose output is still to be removed.
CREATE TABLE removals (
	execution TEXT COLLATE "C" PRIMARY KEY
);

-- Batches: one build and many cases, which are executions.
CREATE TABLE batches (
	id          TEXT COLLATE "C" PRIMARY KEY,
	runner      TEXT COLLATE "C" NOT NULL,           -- '' if each case has its own
	environment TEXT COLLATE "C" NOT NULL,
	key         TEXT UNIQUE,                         -- NULL if it has none
	value       BYTEA NOT NULL,                      -- runtime.Batch as JSON
	start       BYTEA,                               -- what all its executions share, for the engine; NULL once it has finished
	cancelled   INTEGER NOT NULL DEFAULT 0,          -- 1: it is to end
	finished    BIGINT,                              -- Unix milliseconds; NULL while it is unfinished
	tenant      TEXT COLLATE "C" NOT NULL DEFAULT '' -- '' is the default tenant
);
CREATE INDEX batches_runner ON batches (runner, id);
CREATE INDEX batches_environment ON batches (environment, id);
CREATE INDEX batches_unfinished ON batches (id) WHERE finished IS NULL;
CREATE INDEX batches_tenant ON batches (tenant, id);

-- What the engine needs to start each of a batch's executions, until the batch has finished.
CREATE TABLE batch_steps (
	batch   TEXT COLLATE "C" NOT NULL,
	case_no BIGINT NOT NULL, -- from 0 on; -1 is the build
	value   BYTEA NOT NULL,
	PRIMARY KEY (batch, case_no)
);

-- The expected outputs of a batch's cases, in parts, until the batch has finished.
CREATE TABLE expected_output (
	batch   TEXT COLLATE "C" NOT NULL,
	case_no BIGINT NOT NULL,
	part    BIGINT NOT NULL, -- from 0 on; all but the last have the same size
	data    BYTEA NOT NULL,
	PRIMARY KEY (batch, case_no, part)
);

-- The idempotency keys of claims whose runner is gone.
CREATE TABLE spent_keys (
	key     TEXT PRIMARY KEY,
	input   TEXT NOT NULL,
	runner  TEXT NOT NULL,
	expires BIGINT NOT NULL -- Unix seconds
);
CREATE INDEX spent_keys_expires ON spent_keys (expires);

-- Since when the machine has been draining. It has no row while the machine isn't draining.
CREATE TABLE draining (
	one   INTEGER PRIMARY KEY CHECK (one = 1), -- at most one row
	since BIGINT NOT NULL                      -- Unix milliseconds
);

CREATE TABLE tenants (
	id    TEXT COLLATE "C" PRIMARY KEY,
	value BYTEA NOT NULL -- runtime.Tenant as JSON
);

CREATE TABLE tokens (
	id    TEXT COLLATE "C" PRIMARY KEY,
	value BYTEA NOT NULL, -- access.Token as JSON
	used  BIGINT          -- Unix milliseconds of the last use; NULL if it wasn't used
);

-- The usage of executions that ended on a day (UTC).
CREATE TABLE tenant_days (
	day          TEXT COLLATE "C" NOT NULL, -- as 2006-01-02
	tenant       TEXT COLLATE "C" NOT NULL, -- '' is the default tenant
	executions   BIGINT NOT NULL,
	cpu_us       BIGINT NOT NULL,           -- microseconds, user and system
	output_bytes BIGINT NOT NULL,
	PRIMARY KEY (day, tenant)
);

-- The audit log. Rows are added, and deleted when they are old.
CREATE TABLE audit (
	id     TEXT COLLATE "C" PRIMARY KEY, -- a UUID of version 7: it begins with the time
	tenant TEXT COLLATE "C" NOT NULL,
	actor  TEXT COLLATE "C" NOT NULL,
	action TEXT COLLATE "C" NOT NULL,
	object TEXT COLLATE "C" NOT NULL,    -- its id
	at     BIGINT NOT NULL,              -- Unix milliseconds
	value  BYTEA NOT NULL,               -- audit.Entry as JSON
	failed SMALLINT NOT NULL             -- 1: its outcome isn't OK; 0: it is
);
CREATE INDEX audit_tenant ON audit (tenant, id);
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_action ON audit (action, id);
CREATE INDEX audit_object ON audit (object, id) WHERE object <> '';
CREATE INDEX audit_failed ON audit (id) WHERE failed = 1;

-- +goose StatementBegin
CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'entries of the audit log never change';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION audit_stays();

-- Which server may write.
CREATE TABLE leader (
	one    INTEGER PRIMARY KEY CHECK (one = 1), -- one row
	epoch  BIGINT NOT NULL,                     -- the number of this leadership
	number BIGINT NOT NULL                      -- of the transaction that it committed last
);
INSERT INTO leader (one, epoch, number) VALUES (1, 0, 0);

-- Secrets that servers share.
CREATE TABLE secrets (
	name  TEXT PRIMARY KEY,
	value BYTEA NOT NULL
);
