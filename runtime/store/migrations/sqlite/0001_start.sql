-- +goose Up
CREATE TABLE environments (
	id       TEXT PRIMARY KEY,
	revision INTEGER NOT NULL,
	value    BLOB NOT NULL -- runtime.Environment as JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE runners (
	id      TEXT PRIMARY KEY,
	epoch   INTEGER NOT NULL, -- of the claim; 0: none
	value   BLOB NOT NULL,    -- runtime.Runner as JSON, without its claim
	claim   BLOB NOT NULL,    -- runtime.Claim as JSON
	private BLOB              -- what the cluster keeps for itself
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
	id          TEXT PRIMARY KEY,
	runner      TEXT NOT NULL,
	environment TEXT NOT NULL,
	state       TEXT NOT NULL,
	key         TEXT UNIQUE, -- NULL: none
	value       BLOB NOT NULL -- runtime.Execution as JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX executions_runner ON executions (runner, id);
CREATE INDEX executions_environment ON executions (environment, id);
CREATE INDEX executions_state ON executions (state, id) WHERE state <> 'FINISHED';

-- The idempotency keys of claims whose runner is gone.
CREATE TABLE spent_keys (
	key     TEXT PRIMARY KEY,
	input   TEXT NOT NULL,
	runner  TEXT NOT NULL,
	expires INTEGER NOT NULL -- Unix seconds
) STRICT, WITHOUT ROWID;
CREATE INDEX spent_keys_expires ON spent_keys (expires);

-- +goose Down
DROP TABLE spent_keys;
DROP TABLE executions;
DROP TABLE runners;
DROP TABLE environments;
