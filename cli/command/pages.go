package command

import "github.com/rockpool/rockpool/client"

// PageSize is the size of a page: the maximum of the API.
var PageSize = new(1000)

// LabelledPage is the size of a page of executions or runners with labels, whose cost the API limits.
var LabelledPage = new(200)

// Pages reads all pages of a list. read returns the page after a cursor, the first one for nil.
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
