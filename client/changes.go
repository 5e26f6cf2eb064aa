package client

import (
	"context"
	"encoding/json"
)

// A FileChange is one change of an entry in a watched directory.
type FileChange struct {
	Type FileChangeType `json:"type"`
	Path *string        `json:"path"` // relative to the watched directory; nil for BEGAN and LOST
}

// FollowFiles subscribes to the changes in a directory of a runner ("": /workspace) and passes
// each change to handle, BEGAN first. It returns as [Client.Subscribe] does. Changes between two
// subscriptions aren't reported: list the directory after the second subscription's BEGAN.
func (c *Client) FollowFiles(ctx context.Context, runner, path string, recursive bool, handle func(FileChange) error) error {
	variables := map[string]any{"runner": runner, "recursive": recursive}
	if path != "" {
		variables["path"] = path
	}
	return follow(ctx, c, Request{fileChanges_Operation, variables}, func(change FileChange, _ json.RawMessage) error { return handle(change) })
}
