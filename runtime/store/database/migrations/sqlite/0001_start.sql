-- +goose Up
CREATE TABLE environments (
	id       TEXT PRIMARY KEY,
	revision INTEGER NOT NULL,
	value    BLOB NOT NULL -- runtime.Environment as JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE runners (
	id      TEXT PRIMARY KEY,
	epoch   INTEGER NOT NULL, -- of the claim; 0 if it has none
	value   BLOB NOT NULL,    -- runtime.Runner as JSON, without its claim
	claim   BLOB NOT NULL,    -- runtime.Claim as JSON
	private BLOB              -- the cluster's own data
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
	id          TEXT PRIMARY KEY,
	runner      TEXT NOT NULL,
	environment TEXT NOT NULL,
	state       TEXT NOT NULL,
	key         TEXT UNIQUE,                -- NULL if it has none
	value       BLOB NOT NULL,              -- runtime.Execution as JSON
	finished    INTEGER,                    -- Unix milliseconds; NULL while it is unfinished
	bytes       INTEGER NOT NULL DEFAULT 0, -- its disk use, once it has finished
	batch       TEXT,                       -- NULL if it belongs to none
	case_no     INTEGER,                    -- in its batch
	tenant      TEXT NOT NULL DEFAULT ''    -- '' is the default tenant
) STRICT, WITHOUT ROWID;
CREATE INDEX executions_runner ON executions (runner, id);
CREATE INDEX executions_environment ON executions (environment, id);
CREATE INDEX executions_state ON executions (state, id) WHERE state <> 'FINISHED';
CREATE INDEX executions_finished ON executions (finished, bytes) WHERE finished IS NOT NULL;
CREATE INDEX executions_batch ON executions (batch, case_no) WHERE batch IS NOT NULL;
CREATE INDEX executions_tenant ON executions (tenant, id);

-- What executions are searched by: narrow, so that all rows can be read.
CREATE TABLE execution_search (
	execution   TEXT PRIMARY KEY,
	environment TEXT NOT NULL,
	tenant      TEXT NOT NULL,
	queued      INTEGER NOT NULL,         -- Unix nanoseconds
	outcome     TEXT NOT NULL DEFAULT '', -- '' while it is unfinished
	failed      INTEGER,                  -- 1: see runtime.Execution.Failed; 0: it exited with status 0; NULL: it is unfinished, or was cancelled
	labels      TEXT NOT NULL,            -- a line for each: see labelLine
	command     TEXT NOT NULL             -- the beginning of its command line, in lower case
) STRICT, WITHOUT ROWID;

-- What the engine needs to continue an execution after a restart. The API doesn't show it. It is deleted when
-- the execution ends.
CREATE TABLE restarts (
	execution TEXT PRIMARY KEY,
	start     BLOB NOT NULL, -- the engine's
	killed    TEXT,          -- the outcome for which it was killed; NULL if it wasn't
	input_end INTEGER,       -- the offset at which its stdin was closed; NULL if it wasn't
	gone      TEXT           -- why its runner is about to be removed, or was; NULL if it wasn't
) STRICT;

-- The executions that were deleted and whose output is still to be removed.
CREATE TABLE removals (
	execution TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Batches: one build and many cases, which are executions.
CREATE TABLE batches (
	id          TEXT PRIMARY KEY,
	runner      TEXT NOT NULL,              -- '' if each case has its own
	environment TEXT NOT NULL,
	key         TEXT UNIQUE,                -- NULL if it has none
	value       BLOB NOT NULL,              -- runtime.Batch as JSON
	start       BLOB,                       -- what all its executions share, for the engine; NULL once it has finished
	cancelled   INTEGER NOT NULL DEFAULT 0, -- 1: it is to end
	finished    INTEGER,                    -- Unix milliseconds; NULL while it is unfinished
	tenant      TEXT NOT NULL DEFAULT ''    -- '' is the default tenant
) STRICT;
CREATE INDEX batches_runner ON batches (runner, id);
CREATE INDEX batches_environment ON batches (environment, id);
CREATE INDEX batches_unfinished ON batches (id) WHERE finished IS NULL;
CREATE INDEX batches_tenant ON batches (tenant, id);

-- What the engine needs to start each of a batch's executions, until the batch has finished.
CREATE TABLE batch_steps (
	batch   TEXT NOT NULL,
	case_no INTEGER NOT NULL, -- from 0 on; -1 is the build
	value   BLOB NOT NULL,
	PRIMARY KEY (batch, case_no)
) STRICT;

-- The expected outputs of a batch's cases, in parts, until the batch has finished.
CREATE TABLE expected_output (
	batch   TEXT NOT NULL,
	case_no INTEGER NOT NULL,
	part    INTEGER NOT NULL, -- from 0 on; all but the last have the same size
	data    BLOB NOT NULL,
	PRIMARY KEY (batch, case_no, part)
) STRICT;

-- The idempotency keys of claims whose runner is gone.
CREATE TABLE spent_keys (
	key     TEXT PRIMARY KEY,
	input   TEXT NOT NULL,
	runner  TEXT NOT NULL,
	expires INTEGER NOT NULL -- Unix seconds
) STRICT, WITHOUT ROWID;
CREATE INDEX spent_keys_expires ON spent_keys (expires);

-- Since when the machine has been draining. It has no row while the machine isn't draining.
CREATE TABLE draining (
	one   INTEGER PRIMARY KEY CHECK (one = 1), -- at most one row
	since INTEGER NOT NULL                     -- Unix milliseconds
) STRICT;

CREATE TABLE tenants (
	id    TEXT PRIMARY KEY,
	value BLOB NOT NULL -- runtime.Tenant as JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
	id    TEXT PRIMARY KEY,
	value BLOB NOT NULL, -- access.Token as JSON
	used  INTEGER        -- Unix milliseconds of the last use; NULL if it wasn't used
) STRICT, WITHOUT ROWID;

-- The usage of executions that ended on a day (UTC).
CREATE TABLE tenant_days (
	day          TEXT NOT NULL,    -- as 2006-01-02
	tenant       TEXT NOT NULL,    -- '' is the default tenant
	executions   INTEGER NOT NULL,
	cpu_us       INTEGER NOT NULL, -- microseconds, user and system
	output_bytes INTEGER NOT NULL,
	PRIMARY KEY (day, tenant)
) STRICT, WITHOUT ROWID;

-- The audit log. Rows are added, and deleted when they are old.
CREATE TABLE audit (
	id     TEXT PRIMARY KEY, -- a UUID of version 7: it begins with the time
	tenant TEXT NOT NULL,
	actor  TEXT NOT NULL,
	action TEXT NOT NULL,
	object TEXT NOT NULL,    -- its id
	at     INTEGER NOT NULL, -- Unix milliseconds
	value  BLOB NOT NULL,    -- audit.Entry as JSON
	failed INTEGER NOT NULL  -- 1: its outcome isn't OK; 0: it is
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_tenant ON audit (tenant, id);
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_action ON audit (action, id);
CREATE INDEX audit_object ON audit (object, id) WHERE object <> '';
CREATE INDEX audit_failed ON audit (id) WHERE failed = 1;

-- +goose StatementBegin
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN
	SELECT RAISE(ABORT, 'entries of the audit log never change');
END;
-- +goose StatementEnd
