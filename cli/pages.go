package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rockpool/rockpool/client"
)

// A page is a part of a connection.
type page struct {
	Nodes    []json.RawMessage
	PageInfo struct {
		HasNextPage bool
		EndCursor   *string
	}
}

// pageSize is how much is asked for at once: what the API gives at most.
const pageSize = 1000

// pages reads a connection to its end. The query has a variable after, and one
// called first for the page's size; pick finds the page in an answer.
func pages(ctx context.Context, c *client.Client, query string, variables map[string]any, pick func(data map[string]json.RawMessage) (json.RawMessage, error)) ([]json.RawMessage, error) {
	all := []json.RawMessage{} // an empty list isn't null
	variables["first"] = pageSize
	for {
		var data map[string]json.RawMessage
		if err := ask(ctx, c, query, variables, &data); err != nil {
			return nil, err
		}
		text, err := pick(data)
		if err != nil {
			return nil, err
		}
		var p page
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("read a page: %w", err)
		}
		all = append(all, p.Nodes...)
		if !p.PageInfo.HasNextPage || p.PageInfo.EndCursor == nil {
			return all, nil
		}
		variables["after"] = *p.PageInfo.EndCursor
	}
}

// field picks a connection that is a field of the query itself.
func field(name string) func(map[string]json.RawMessage) (json.RawMessage, error) {
	return func(data map[string]json.RawMessage) (json.RawMessage, error) { return data[name], nil }
}

// filesOfRunner picks the files of a runner.
func filesOfRunner(data map[string]json.RawMessage) (json.RawMessage, error) {
	var runner *struct{ Files json.RawMessage }
	if err := json.Unmarshal(data["runner"], &runner); err != nil {
		return nil, fmt.Errorf("read an answer: %w", err)
	}
	if runner == nil {
		return nil, errors.New("the runner isn't there any more")
	}
	return runner.Files, nil
}
