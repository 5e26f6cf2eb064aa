-- +goose Up

-- What executions are searched by: narrow, so that all rows can be read. The next migration fills it.
CREATE TABLE execution_search (
	execution TEXT COLLATE "C" PRIMARY KEY,
	queued    BIGINT NOT NULL,          -- Unix nanoseconds
	outcome   TEXT NOT NULL DEFAULT '', -- '': it hasn't ended
	passed    BIGINT,                   -- 1: by exit status 0; 0: otherwise; NULL: it hasn't ended
	labels    TEXT NOT NULL,            -- a line for each, as labelLine has it
	command   TEXT NOT NULL             -- the beginning of its command line, in lower case
);

-- +goose Down
DROP TABLE execution_search;
