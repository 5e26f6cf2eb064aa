-- +goose Up

-- What executions are searched by: narrow, so that all rows can be read. A server fills it after it began to lead: see mendSearch.
CREATE TABLE execution_search (
	execution   TEXT COLLATE "C" PRIMARY KEY,
	environment TEXT COLLATE "C" NOT NULL,
	tenant      TEXT COLLATE "C" NOT NULL,
	queued      BIGINT NOT NULL,            -- Unix nanoseconds
	outcome     TEXT NOT NULL DEFAULT '',   -- '': it hasn't ended
	failed      BIGINT,                     -- 1: as runtime.Execution has it; 0: by exit status 0; NULL: it hasn't ended, or was cancelled
	labels      TEXT COLLATE "C" NOT NULL,  -- a line for each, as labelLine has it
	command     TEXT COLLATE "C" NOT NULL   -- the beginning of its command line, in lower case
);

-- As SQLite has it.
CREATE FUNCTION instr(whole TEXT, part TEXT) RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT strpos(whole, part)';

-- +goose Down
DROP FUNCTION instr(TEXT, TEXT);
DROP TABLE execution_search;
