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

// Watch asks for the changes in a directory.
type Watch struct {
	Path      string `json:"path"` // "": the workspace
	Recursive bool   `json:"recursive,omitempty"`
}

// Changes are what happened in a directory, in the order of the first change of each path. A path has one at
// most, that of its end: what was made and deleted between two frames is removed. Only a directory that was
// removed and made again has two: what was below it is gone.
type Changes struct {
	Changes []Change `json:"changes,omitempty"`
	Lost    bool     `json:"lost,omitempty"` // earlier changes were dropped: list the directory
}

// A Change is one entry's. What is renamed is removed, and created.
type Change struct {
	Path []byte     `json:"path"` // relative to the directory
	Kind ChangeKind `json:"kind"`
}

// A ChangeKind is what happened.
type ChangeKind string

// The kinds.
const (
	ChangeCreated ChangeKind = "created" // it was made, or moved there, perhaps in place of another one
	ChangeChanged ChangeKind = "changed" // its content, mode or owner
	ChangeRemoved ChangeKind = "removed" // it was deleted or moved away, with all below it
)

// A Watching receives the changes in a directory. It is for one goroutine.
type Watching struct{ x *exchange }

// WatchFiles returns once everything that happens in a directory from then on is reported. Ctx
// bounds the whole. An [*Error] is the agent's: ErrIncompatible says that it is too old, ErrTooMany that
// the runner is watched too often, or that there is too much to be watched. Conn is closed with the Watching, or on an error.
func WatchFiles(ctx context.Context, conn net.Conn, watch Watch) (*Watching, error) {
	if err := checkPath(conn, watch.Path); err != nil {
		return nil, err
	}
	x, _, err := open(ctx, conn, Request{Watch: &watch})
	if err != nil {
		return nil, err
	}
	return &Watching{x}, nil
}

// Next waits for changes. After an error no more come; an [*Error] says why the agent ended it.
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
			err = fmt.Errorf("%w: an end without a reason", ErrProtocol)
		}
	default:
		err = fmt.Errorf("%w: kind %d among changes", ErrProtocol, kind)
	}
	if err != nil {
		return Changes{}, w.x.fail(err)
	}
	return changes, nil
}

// Close ends it.
func (w *Watching) Close() { w.x.close() }

func (c Changes) check() error {
	if len(c.Changes) > MaxChanges {
		return fmt.Errorf("%w: %d changes", ErrProtocol, len(c.Changes))
	}
	for _, change := range c.Changes {
		if n := len(change.Path); n == 0 || n > maxChangePath {
			return fmt.Errorf("%w: a change of a path of %d bytes", ErrProtocol, n)
		}
		switch change.Kind {
		case ChangeCreated, ChangeChanged, ChangeRemoved:
		default:
			return fmt.Errorf("%w: a change of an unknown kind", ErrProtocol)
		}
	}
	return nil
}
