-- +goose Up

-- What executions are searched by: narrow, so that all rows can be read. The next migration fills it.
CREATE TABLE execution_search (
	execution   TEXT PRIMARY KEY,
	environment TEXT NOT NULL,
	tenant      TEXT NOT NULL,
	queued      INTEGER NOT NULL,         -- Unix nanoseconds
	outcome     TEXT NOT NULL DEFAULT '', -- '': it hasn't ended
	passed      INTEGER,                  -- 1: by exit status 0; 0: otherwise; NULL: it hasn't ended
	labels      TEXT NOT NULL,            -- a line for each, as labelLine has it
	command     TEXT NOT NULL             -- the beginning of its command line, in lower case
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE execution_search;
