package model

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/usage"
)

// The number of entries in a page.
const (
	DefaultFirst = 100
	MaxFirst     = 1000
)

// A Connection is one page of a list. Pages follow each other by cursor (GraphQL Cursor Connections
// Specification, forward only). A cursor has the key of the last entry, not its index. So if entries
// are added or removed between two pages, no other entry is repeated or left out.
type Connection[T any] struct {
	Nodes      []T
	TotalCount int // of all pages

	key  func(T) string
	more bool
}

// An Edge is one entry of a page, with its cursor.
type Edge[T any] struct {
	Cursor string
	Node   T
}

// PageInfo says whether more entries follow, and where the page ends.
type PageInfo struct {
	HasNextPage bool
	EndCursor   *string
}

// Edges returns the page's entries, each with its cursor.
func (c Connection[T]) Edges() []Edge[T] {
	edges := make([]Edge[T], len(c.Nodes))
	for i, node := range c.Nodes {
		edges[i] = Edge[T]{Cursor: encode(c.key(node)), Node: node}
	}
	return edges
}

// PageInfo returns whether more entries follow, and where the page ends.
func (c Connection[T]) PageInfo() PageInfo {
	info := PageInfo{HasNextPage: c.more}
	if n := len(c.Nodes); n > 0 {
		end := encode(c.key(c.Nodes[n-1]))
		info.EndCursor = &end
	}
	return info
}

// A Page is a client's request for a page.
type Page struct {
	First int    // 1 to MaxFirst
	After string // a key; "" means from the beginning

	Descending bool // the entries are sorted from the last key to the first
}

// ParsePage checks a client's request. It returns INVALID_INPUT for "first" or "after".
func ParsePage(first *int, after *string) (Page, error) {
	page := Page{First: DefaultFirst}
	if first != nil {
		page.First = *first
	}
	if err := runtime.Between("first", int64(page.First), 1, MaxFirst, "entries"); err != nil {
		return Page{}, err
	}
	if after != nil {
		key, err := base64.RawURLEncoding.Strict().DecodeString(*after)
		if err != nil || len(key) == 0 {
			return Page{}, runtime.Invalid("after", "must be a cursor of an earlier page")
		}
		page.After = string(key)
	}
	return page, nil
}

// CutPage returns the requested page of items, which are sorted by key in the page's direction.
func CutPage[T any](items []T, key func(T) string, page Page) Connection[T] {
	start := 0
	if page.After != "" {
		at, found := slices.BinarySearchFunc(items, page.After, func(item T, after string) int {
			if page.Descending {
				return strings.Compare(after, key(item))
			}
			return strings.Compare(key(item), after)
		})
		if found {
			at++
		}
		start = at
	}
	rest := items[start:]
	return LoadedPage(rest[:min(len(rest), page.First+1)], key, page, len(items))
}

// LoadedPage returns the requested page. items are at most page.First+1 entries after page.After; the
// extra one means that more follow. total is the number in all pages.
func LoadedPage[T any](items []T, key func(T) string, page Page, total int) Connection[T] {
	more := len(items) > page.First
	if more {
		items = items[:page.First]
	}
	return PageOf(items, key, more, total)
}

// PageOf returns a page with all of items. more says that others follow them. total is the number in
// all pages.
func PageOf[T any](items []T, key func(T) string, more bool, total int) Connection[T] {
	return Connection[T]{Nodes: items, TotalCount: total, key: key, more: more}
}

func encode(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// The connections are pages of lists. An edge is an entry of a page with its cursor.
type (
	RunnerConnection       = Connection[runtime.Runner]
	RunnerEdge             = Edge[runtime.Runner]
	ExecutionConnection    = Connection[runtime.Execution]
	ExecutionEdge          = Edge[runtime.Execution]
	BatchConnection        = Connection[runtime.Batch]
	BatchEdge              = Edge[runtime.Batch]
	BatchCaseConnection    = Connection[runtime.Case]
	BatchCaseEdge          = Edge[runtime.Case]
	FileConnection         = Connection[runtime.File]
	FileEdge               = Edge[runtime.File]
	EvaluationConnection   = Connection[runtime.Evaluation]
	EvaluationEdge         = Edge[runtime.Evaluation]
	AllocationConnection   = Connection[runtime.Allocation]
	AllocationEdge         = Edge[runtime.Allocation]
	AuditEntryConnection   = Connection[audit.Entry]
	AuditEntryEdge         = Edge[audit.Entry]
	WaitingClaimConnection = Connection[usage.WaitingClaim]
	WaitingClaimEdge       = Edge[usage.WaitingClaim]
)
