-- +goose Up

-- Ids are compared byte by byte, as SQLite does.
CREATE TABLE environments (
	id       TEXT COLLATE "C" PRIMARY KEY,
	revision BIGINT NOT NULL,
	value    BYTEA NOT NULL -- runtime.Environment as JSON
);

CREATE TABLE runners (
	id      TEXT COLLATE "C" PRIMARY KEY,
	epoch   BIGINT NOT NULL, -- of the claim; 0: none
	value   BYTEA NOT NULL,  -- runtime.Runner as JSON, without its claim
	claim   BYTEA NOT NULL,  -- runtime.Claim as JSON
	private BYTEA            -- what the cluster keeps for itself
);

CREATE TABLE executions (
	id          TEXT COLLATE "C" PRIMARY KEY,
	runner      TEXT COLLATE "C" NOT NULL,
	environment TEXT COLLATE "C" NOT NULL,
	state       TEXT NOT NULL,
	key         TEXT UNIQUE,               -- NULL: none
	value       BYTEA NOT NULL,            -- runtime.Execution as JSON
	finished    BIGINT,                    -- Unix milliseconds; NULL: it isn't
	bytes       BIGINT NOT NULL DEFAULT 0, -- that it takes, once it has finished
	batch       TEXT COLLATE "C",          -- NULL: it belongs to none
	case_no     BIGINT                     -- in its batch
);
CREATE INDEX executions_runner ON executions (runner, id);
CREATE INDEX executions_environment ON executions (environment, id);
CREATE INDEX executions_state ON executions (state, id) WHERE state <> 'FINISHED';
CREATE INDEX executions_finished ON executions (finished, bytes) WHERE finished IS NOT NULL;
CREATE INDEX executions_batch ON executions (batch, case_no) WHERE batch IS NOT NULL;

-- The idempotency keys of claims whose runner is gone.
CREATE TABLE spent_keys (
	key     TEXT PRIMARY KEY,
	input   TEXT NOT NULL,
	runner  TEXT NOT NULL,
	expires BIGINT NOT NULL -- Unix seconds
);
CREATE INDEX spent_keys_expires ON spent_keys (expires);

-- What the engine needs to go on with an execution after a restart. It isn't
-- part of what the API shows, and goes when the execution ends.
CREATE TABLE restarts (
	execution TEXT COLLATE "C" PRIMARY KEY,
	start     BYTEA NOT NULL, -- the engine's
	killed    TEXT,           -- the outcome for which it was killed; NULL: it wasn't
	input_end BIGINT,         -- the offset at which its stdin was closed; NULL: it wasn't
	gone      TEXT            -- why its runner is about to go, or went; NULL: it isn't
);

-- Since when the machine is being drained; no row: it isn't.
CREATE TABLE draining (
	one   INTEGER PRIMARY KEY CHECK (one = 1), -- at most one row
	since BIGINT NOT NULL                      -- Unix milliseconds
);

-- Batches: one build and many cases, which are executions.
CREATE TABLE batches (
	id          TEXT COLLATE "C" PRIMARY KEY,
	runner      TEXT COLLATE "C" NOT NULL,  -- '': each case has its own
	environment TEXT COLLATE "C" NOT NULL,
	key         TEXT UNIQUE,                -- NULL: none
	value       BYTEA NOT NULL,             -- runtime.Batch as JSON
	start       BYTEA,                      -- what all its executions share, for the engine; NULL: it has finished
	cancelled   INTEGER NOT NULL DEFAULT 0, -- 1: it is to end
	finished    BIGINT                      -- Unix milliseconds; NULL: it isn't
);
CREATE INDEX batches_runner ON batches (runner, id);
CREATE INDEX batches_environment ON batches (environment, id);
CREATE INDEX batches_unfinished ON batches (id) WHERE finished IS NULL;

-- What the engine needs to start each of a batch's executions, until it has finished.
CREATE TABLE batch_steps (
	batch   TEXT COLLATE "C" NOT NULL,
	case_no BIGINT NOT NULL, -- from 0 on; -1: the build
	value   BYTEA NOT NULL,
	PRIMARY KEY (batch, case_no)
);

-- The output of executions, as package output encodes it.
CREATE TABLE output (
	execution TEXT COLLATE "C" NOT NULL,
	position  BIGINT NOT NULL, -- bytes of it before this
	data      BYTEA NOT NULL,
	PRIMARY KEY (execution, position)
);
ALTER TABLE output ALTER COLUMN data SET STORAGE EXTERNAL; -- no time for compressing

-- The executions that were deleted and whose output is still to be removed.
CREATE TABLE removals (
	execution TEXT COLLATE "C" PRIMARY KEY
);

-- Which server may write.
CREATE TABLE leader (
	one    INTEGER PRIMARY KEY CHECK (one = 1), -- one row
	epoch  BIGINT NOT NULL,                     -- that it got when it began to lead
	number BIGINT NOT NULL                      -- of the transaction that it committed last
);
INSERT INTO leader (one, epoch, number) VALUES (1, 0, 0);

-- What servers share that nobody else may know.
CREATE TABLE secrets (
	name  TEXT PRIMARY KEY,
	value BYTEA NOT NULL
);

-- +goose Down
DROP TABLE secrets;
DROP TABLE leader;
DROP TABLE removals;
DROP TABLE output;
DROP TABLE batch_steps;
DROP TABLE batches;
DROP TABLE draining;
DROP TABLE restarts;
DROP TABLE spent_keys;
DROP TABLE executions;
DROP TABLE runners;
DROP TABLE environments;
