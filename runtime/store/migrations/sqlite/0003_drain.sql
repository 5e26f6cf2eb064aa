-- +goose Up

-- Since when the machine is being drained; no row: it isn't.
CREATE TABLE draining (
	one   INTEGER PRIMARY KEY CHECK (one = 1), -- at most one row
	since INTEGER NOT NULL                     -- Unix milliseconds
) STRICT;

-- +goose Down
DROP TABLE draining;
