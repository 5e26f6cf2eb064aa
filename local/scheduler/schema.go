package scheduler

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/go-memdb"
)

// The tables of the state. Their rows are pointers that never change.
const (
	tableJobs        = "jobs"
	tableEvaluations = "evaluations"
	tableAllocations = "allocations"
	tableNode        = "node"
	tableIndexes     = "indexes"
)

// The rows of tableIndexes.
const (
	indexAll    = "all"    // index of the last change
	indexOrders = "orders" // index of the last change of an allocation's Desired
)

// index is a row of tableIndexes.
type index struct {
	name  string
	value uint64
}

// schema returns the tables and their indexes.
func schema() *memdb.DBSchema {
	return &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		tableJobs: table(tableJobs, unique(func(j *Job) []byte { return text(j.ID) })),
		tableEvaluations: table(tableEvaluations, unique(func(e *Evaluation) []byte { return text(e.ID) }),
			many("job", func(e *Evaluation) []byte { return text(e.Job) })),
		tableAllocations: table(tableAllocations, unique(func(a *Allocation) []byte { return text(a.ID) }),
			many("job", func(a *Allocation) []byte { return text(a.Job) }),
			many("desired", func(a *Allocation) []byte { return number(a.DesiredIndex) })),
		tableNode:    table(tableNode, unique(func(*Node) []byte { return text("node") })),
		tableIndexes: table(tableIndexes, unique(func(i *index) []byte { return text(i.name) })),
	}}
}

// table returns the schema of a table with these indexes.
func table(name string, indexes ...*memdb.IndexSchema) *memdb.TableSchema {
	t := &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{}}
	for _, i := range indexes {
		t.Indexes[i.Name] = i
	}
	return t
}

// unique returns the index "id", whose key no two rows share.
func unique[T any](key func(*T) []byte) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: "id", Unique: true, Indexer: by[T]{key}}
}

// many returns an index whose key rows can share.
func many[T any](name string, key func(*T) []byte) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, Indexer: by[T]{key}}
}

// by indexes rows by a key function, without memdb's reflection.
type by[T any] struct{ key func(*T) []byte }

// FromObject implements memdb.SingleIndexer.
func (b by[T]) FromObject(row any) (bool, []byte, error) {
	object, ok := row.(*T)
	if !ok {
		return false, nil, fmt.Errorf("row of type %T in a table of %T", row, object)
	}
	return true, b.key(object), nil
}

// FromArgs implements memdb.Indexer.
func (b by[T]) FromArgs(args ...any) ([]byte, error) {
	switch key := args[0].(type) {
	case string:
		return text(key), nil
	case uint64:
		return number(key), nil
	default:
		return nil, fmt.Errorf("unsupported key type %T", key)
	}
}

// text encodes a string key. It ends with a NUL so that no key is a prefix of another.
func text[S ~string](s S) []byte { return append([]byte(s), 0) }

// number encodes an integer key so that keys sort by number.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
