-- +goose Up

-- What executions are searched by: narrow, so that all rows can be read. A server fills it after it began to lead: see mendSearch.
CREATE TABLE execution_search (
	execution   TEXT PRIMARY KEY,
	environment TEXT NOT NULL,
	tenant      TEXT NOT NULL,
	queued      INTEGER NOT NULL,         -- Unix nanoseconds
	outcome     TEXT NOT NULL DEFAULT '', -- '': it hasn't ended
	failed      INTEGER,                  -- 1: as runtime.Execution has it; 0: by exit status 0; NULL: it hasn't ended, or was cancelled
	labels      TEXT NOT NULL,            -- a line for each, as labelLine has it
	command     TEXT NOT NULL             -- the beginning of its command line, in lower case
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE execution_search;
