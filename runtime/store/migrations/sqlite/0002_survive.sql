-- +goose Up

-- What the engine needs to go on with an execution after a restart. It isn't
-- part of what the API shows, and goes when the execution ends.
CREATE TABLE restarts (
	execution TEXT PRIMARY KEY,
	start     BLOB NOT NULL, -- the engine's
	killed    TEXT,          -- the outcome for which it was killed; NULL: it wasn't
	input_end INTEGER        -- the offset at which its stdin was closed; NULL: it wasn't
) STRICT;

ALTER TABLE executions ADD COLUMN finished INTEGER;                -- Unix milliseconds; NULL: it isn't
ALTER TABLE executions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0; -- that it takes on the disk, once it has finished
UPDATE executions SET
	finished = CAST(strftime('%s', json_extract(CAST(value AS TEXT), '$.marks.finishedAt')) AS INTEGER) * 1000,
	bytes = length(value) + coalesce(json_extract(CAST(value AS TEXT), '$.usage.outputBytes'), 0)
	WHERE state = 'FINISHED' AND json_valid(CAST(value AS TEXT));
CREATE INDEX executions_finished ON executions (finished, bytes) WHERE finished IS NOT NULL;

-- +goose Down
DROP INDEX executions_finished;
ALTER TABLE executions DROP COLUMN bytes;
ALTER TABLE executions DROP COLUMN finished;
DROP TABLE restarts;
