-- +goose Up

-- The executions that were deleted and whose output is still to be removed.
CREATE TABLE removals (
	execution TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE removals;
