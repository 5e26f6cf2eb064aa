package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// take handles events in the kernel's format: see inotify(7).
func (w *watcher) take(ctx context.Context, events []byte) error {
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:end], []byte{0})
		events = events[end:]
		if err := w.event(ctx, wd, mask, string(name)); err != nil {
			return err
		}
	}
	return nil
}

// event handles one event: the change of the entry name in the directory of the watch wd. An empty
// name is the directory itself.
func (w *watcher) event(ctx context.Context, wd int32, mask uint32, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at, known := w.dirs[wd]
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		return errOverflow
	case !known: // of a directory that is no longer watched
		return nil
	case wd == w.top && mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
		return w.gone()
	case mask&unix.IN_IGNORED != 0:
		w.forget(wd)
		return nil
	case name == "" || strings.HasPrefix(name, temporaryPrefix):
		return nil // of the directory itself: the event of its parent is reported
	}
	path, directory := join(at, name), mask&unix.IN_ISDIR != 0
	// These events can cost a walk, or an inspection of the path.
	if mask&unix.IN_MOVED_FROM != 0 || directory {
		if err := w.spend(ctx); err != nil {
			return err
		}
	}
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		return w.created(ctx, path, directory)
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		w.pending.add(path, agent.ChangeRemoved, directory)
		if directory {
			w.left(path)
		}
		if mask&unix.IN_MOVED_FROM != 0 {
			return w.replaced(ctx, at, name)
		}
	default:
		w.pending.add(path, agent.ChangeChanged, directory)
	}
	return nil
}

const mostPending = 256 << 10

// pendingChanges are the changes to report, merged for each path.
type pendingChanges struct {
	paths map[string]*pendingPath
	order []string // paths, by their first change
	count int      // changes, at most
	bytes int      // of the paths in order
	lost  bool
}

// A pendingPath is the merged change of one path.
type pendingPath struct {
	kind      agent.ChangeKind
	directory bool
	made      bool // its first change was its creation
	replaced  bool // it was removed before its creation, with everything below it
}

// add merges a change with those of the same path before it. After changes were lost it does
// nothing.
func (p *pendingChanges) add(path string, kind agent.ChangeKind, directory bool) {
	if p.lost {
		return
	}
	if kind == agent.ChangeRemoved && directory {
		p.drop(path)
	}
	now := p.paths[path]
	if now == nil {
		if !p.room(1, len(path)) {
			return
		}
		if p.paths == nil {
			p.paths = map[string]*pendingPath{}
		}
		p.paths[path] = &pendingPath{kind: kind, directory: directory, made: kind == agent.ChangeCreated}
		p.order = append(p.order, path)
		return
	}
	switch {
	case kind == agent.ChangeChanged && now.kind != agent.ChangeChanged: // created or removed already
		return
	// The removal is reported too, because it removed everything below.
	case kind == agent.ChangeCreated && now.kind == agent.ChangeRemoved && (directory || now.directory):
		if !now.replaced && !p.room(1, 0) {
			return
		}
		now.replaced = true
	// A file that was replaced by another one counts as changed.
	case kind == agent.ChangeCreated && now.kind == agent.ChangeRemoved && !now.made && !now.replaced:
		kind = agent.ChangeChanged
	}
	now.kind, now.directory = kind, directory
}

// room counts changes and bytes. Beyond the limits it drops all of them.
func (p *pendingChanges) room(changes, bytes int) bool {
	p.count, p.bytes = p.count+changes, p.bytes+bytes
	if p.count <= agent.MaxChanges && p.bytes <= mostPending {
		return true
	}
	*p = pendingChanges{lost: true}
	return false
}

// drop forgets the changes below a directory that is removed: later changes there come after the
// removal.
func (p *pendingChanges) drop(directory string) {
	p.order = slices.DeleteFunc(p.order, func(path string) bool {
		if !isBelow(path, directory) {
			return false
		}
		p.count, p.bytes = p.count-1, p.bytes-len(path)
		if p.paths[path].replaced {
			p.count--
		}
		delete(p.paths, path)
		return true
	})
}

func (p *pendingChanges) take() agent.Changes {
	changes := agent.Changes{Lost: p.lost}
	for _, path := range p.order {
		now := p.paths[path]
		if now.replaced && now.kind != agent.ChangeRemoved {
			changes.Changes = append(changes.Changes, agent.Change{Path: []byte(path), Kind: agent.ChangeRemoved})
		}
		changes.Changes = append(changes.Changes, agent.Change{Path: []byte(path), Kind: now.kind})
	}
	*p = pendingChanges{}
	return changes
}
