-- +goose Up
ALTER TABLE restarts ADD COLUMN gone TEXT; -- why its runner is about to go, or went; NULL: it isn't

-- +goose Down
ALTER TABLE restarts DROP COLUMN gone;
