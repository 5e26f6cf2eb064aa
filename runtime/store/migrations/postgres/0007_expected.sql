-- +goose Up

-- The expected outputs of a batch's cases, in parts, until it has finished.
CREATE TABLE expected_output (
	batch   TEXT COLLATE "C" NOT NULL,
	case_no BIGINT NOT NULL,
	part    BIGINT NOT NULL, -- from 0 on; all but the last have the same size
	data    BYTEA NOT NULL,
	PRIMARY KEY (batch, case_no, part)
);

-- +goose Down
DROP TABLE expected_output;
