package files

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// take takes events as the kernel wrote them: see inotify(7).
func (w *watcher) take(events []byte) error {
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:end], []byte{0})
		events = events[end:]
		if err := w.event(wd, mask, string(name)); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) event(wd int32, mask uint32, name string) error {
	at, known := w.dirs[wd]
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		return errOverflow
	case !known: // one that left
		return nil
	case wd == w.top && mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
		return w.gone()
	case mask&unix.IN_IGNORED != 0:
		w.forget(wd)
		return nil
	case name == "" || strings.HasPrefix(name, temporaryPrefix):
		return nil // of the directory itself: its parent reports it
	}
	path := join(at, name)
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.pending.add(path, agent.ChangeCreated)
		if w.Recursive && mask&unix.IN_ISDIR != 0 {
			return w.appeared(path)
		}
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		w.pending.add(path, agent.ChangeRemoved)
		if mask&unix.IN_ISDIR != 0 {
			w.left(path)
		}
	default:
		w.pending.add(path, agent.ChangeChanged)
	}
	return nil
}

// mostPending bounds the paths that are held, in bytes.
const mostPending = 256 << 10

// pending are the changes that are to be reported: one for each path.
type pending struct {
	kinds map[string]agent.ChangeKind // "": what was made is gone again
	order []string
	bytes int // of order
	lost  bool
}

func (p *pending) add(path string, kind agent.ChangeKind) {
	before, there := p.kinds[path]
	switch {
	case p.lost:
		return
	case !there:
		if len(p.order) == agent.MaxChanges || p.bytes+len(path) > mostPending {
			*p = pending{lost: true}
			return
		}
		p.order = append(p.order, path)
		p.bytes += len(path)
	case before == agent.ChangeCreated && kind == agent.ChangeRemoved:
		kind = ""
	case before == agent.ChangeCreated:
		return
	case before == agent.ChangeRemoved && kind == agent.ChangeCreated:
		kind = agent.ChangeChanged
	}
	if p.kinds == nil {
		p.kinds = map[string]agent.ChangeKind{}
	}
	p.kinds[path] = kind
}

// take returns the changes, and forgets them.
func (p *pending) take() agent.Changes {
	changes := agent.Changes{Lost: p.lost}
	for _, path := range p.order {
		if kind := p.kinds[path]; kind != "" {
			changes.Changes = append(changes.Changes, agent.Change{Path: []byte(path), Kind: kind})
		}
	}
	*p = pending{}
	return changes
}
