-- +goose Up

-- Batches: one build and many cases, which are executions.
CREATE TABLE batches (
	id          TEXT PRIMARY KEY,
	runner      TEXT NOT NULL,              -- '': each case has its own
	environment TEXT NOT NULL,
	key         TEXT UNIQUE,                -- NULL: none
	value       BLOB NOT NULL,              -- runtime.Batch as JSON
	start       BLOB,                       -- what all its executions share, for the engine; NULL: it has finished
	cancelled   INTEGER NOT NULL DEFAULT 0, -- 1: it is to end
	finished    INTEGER                     -- Unix milliseconds; NULL: it isn't
) STRICT;
CREATE INDEX batches_runner ON batches (runner, id);
CREATE INDEX batches_environment ON batches (environment, id);
CREATE INDEX batches_unfinished ON batches (id) WHERE finished IS NULL;

-- What the engine needs to start each of a batch's executions, until it has finished.
CREATE TABLE batch_steps (
	batch     TEXT NOT NULL,
	case_no   INTEGER NOT NULL, -- from 0 on; -1: the build
	value     BLOB NOT NULL,
	PRIMARY KEY (batch, case_no)
) STRICT;

ALTER TABLE executions ADD COLUMN batch TEXT;      -- NULL: it belongs to none
ALTER TABLE executions ADD COLUMN case_no INTEGER; -- in its batch
CREATE INDEX executions_batch ON executions (batch, case_no) WHERE batch IS NOT NULL;

-- +goose Down
DROP INDEX executions_batch;
ALTER TABLE executions DROP COLUMN case_no;
ALTER TABLE executions DROP COLUMN batch;
DROP TABLE batch_steps;
DROP TABLE batches;
