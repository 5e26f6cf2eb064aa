package agent

import (
	"context"
	"fmt"
	"net"
)

// MaxChanges bounds the changes of one KindChanges frame.
const MaxChanges = 1000

// maxChangePath bounds a change's path, in bytes: a directory's path and a name.
const maxChangePath = 4096 + 256

// Watch requests reports of the changes in a directory.
type Watch struct {
	Path      string `json:"path"` // "" means the workspace
	Recursive bool   `json:"recursive,omitempty"`
}

// Changes are the changes in a directory, ordered by the first change of each path. A path occurs
// at most once, with its last change: an entry that was created and deleted between two frames is
// reported as removed. The exception is a directory that was removed and created again. It occurs
// twice, because everything below it was removed.
type Changes struct {
	Changes []Change `json:"changes,omitempty"`
	Lost    bool     `json:"lost,omitempty"` // earlier changes were dropped; the receiver must list the directory again
}

// A Change is the change of one entry. A rename is reported as a removed and a created path.
type Change struct {
	Path []byte     `json:"path"` // relative to the directory
	Kind ChangeKind `json:"kind"`
}

// A ChangeKind says how an entry changed.
type ChangeKind string

// The kinds.
const (
	ChangeCreated ChangeKind = "created" // created, or moved to this path; it may have replaced another entry
	ChangeChanged ChangeKind = "changed" // content, mode or owner changed
	ChangeRemoved ChangeKind = "removed" // deleted or moved away, with everything below it
)

// A Watching receives the changes in a directory. One goroutine may use it at a time.
type Watching struct{ x *exchange }

// WatchFiles starts to watch a directory. All changes after its return are reported by Next. Ctx
// bounds the whole watch: its end closes conn, and Next returns its cause. Conn is closed with the
// Watching, or on an error. An [*Error] comes from the agent: ErrTooMany means that the
// runner has too many watches or the directory too many entries.
func WatchFiles(ctx context.Context, conn net.Conn, watch Watch) (*Watching, error) {
	x, _, err := open(ctx, conn, Request{Watch: &watch})
	if err != nil {
		return nil, err
	}
	return &Watching{x}, nil
}

// Next waits for changes. Every error is final. An [*Error] says why the agent ended the watch.
func (w *Watching) Next() (Changes, error) {
	kind, body, err := w.x.next()
	if err != nil {
		return Changes{}, w.x.fail(err)
	}
	var changes Changes
	switch kind {
	case KindChanges:
		if err = ParseJSON(body, &changes); err == nil {
			err = changes.check()
		}
	case KindEnd:
		if err = parseEnd(body); err == nil {
			err = fmt.Errorf("%w: the watch ended without a reason", ErrProtocol)
		}
	default:
		err = fmt.Errorf("%w: unexpected frame of kind %d in a watch", ErrProtocol, kind)
	}
	if err != nil {
		return Changes{}, w.x.fail(err)
	}
	return changes, nil
}

// Close ends the watch and closes its stream.
func (w *Watching) Close() { w.x.close() }

func (c Changes) check() error {
	if len(c.Changes) > MaxChanges {
		return fmt.Errorf("%w: %d changes", ErrProtocol, len(c.Changes))
	}
	for _, change := range c.Changes {
		if n := len(change.Path); n == 0 || n > maxChangePath {
			return fmt.Errorf("%w: a change has a path of %d bytes", ErrProtocol, n)
		}
		switch change.Kind {
		case ChangeCreated, ChangeChanged, ChangeRemoved:
		default:
			return fmt.Errorf("%w: a change has an unknown kind", ErrProtocol)
		}
	}
	return nil
}
