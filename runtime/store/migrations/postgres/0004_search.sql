-- +goose Up

-- What executions are searched by: narrow, so that all rows can be read. The next migration fills it.
CREATE TABLE execution_search (
	execution   TEXT COLLATE "C" PRIMARY KEY,
	environment TEXT COLLATE "C" NOT NULL,
	tenant      TEXT COLLATE "C" NOT NULL,
	queued      BIGINT NOT NULL,            -- Unix nanoseconds
	outcome     TEXT NOT NULL DEFAULT '',   -- '': it hasn't ended
	passed      BIGINT,                     -- 1: by exit status 0; 0: otherwise; NULL: it hasn't ended
	labels      TEXT COLLATE "C" NOT NULL,  -- a line for each, as labelLine has it
	command     TEXT COLLATE "C" NOT NULL   -- the beginning of its command line, in lower case
);

-- As SQLite has it.
CREATE FUNCTION instr(whole TEXT, part TEXT) RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT strpos(whole, part)';

-- +goose Down
DROP FUNCTION instr(TEXT, TEXT);
DROP TABLE execution_search;
