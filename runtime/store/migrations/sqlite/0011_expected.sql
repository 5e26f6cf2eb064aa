-- +goose Up

-- The expected outputs of a batch's cases, in parts, until it has finished.
CREATE TABLE expected_output (
	batch   TEXT NOT NULL,
	case_no INTEGER NOT NULL,
	part    INTEGER NOT NULL, -- from 0 on; all but the last have the same size
	data    BLOB NOT NULL,
	PRIMARY KEY (batch, case_no, part)
) STRICT;

-- +goose Down
DROP TABLE expected_output;
