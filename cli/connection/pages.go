package connection

import "github.com/rockpool/rockpool/client"

// PageSize is how much is asked for at once: what the API gives at most.
var PageSize = new(1000)

// LabelledPage is how many executions or runners are asked for at once, with their labels: more cost too much.
var LabelledPage = new(200)

// Pages reads a connection to its end; read returns the page after a cursor.
func Pages[T any](read func(after *string) ([]T, client.PageInfo, error)) ([]T, error) {
	all := []T{} // an empty list isn't null
	var after *string
	for {
		nodes, info, err := read(after)
		if err != nil {
			return nil, err
		}
		all = append(all, nodes...)
		if !info.HasNextPage || info.EndCursor == nil {
			return all, nil
		}
		after = info.EndCursor
	}
}
