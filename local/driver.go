package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/evidence"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/process"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/taskrunner"
)

// Bounds of what the helper is waited for.
const (
	createWithin = 30 * time.Second
	cleanWithin  = 15 * time.Second
)

// A driver starts one runner: a sandbox with the agent as its first process.
type driver struct {
	c *Cluster
	e *entry
}

// Start implements taskrunner.Driver.
func (d *driver) Start(ctx context.Context, request taskrunner.StartRequest) (taskrunner.Handle, error) {
	slot := 0 // the helper's to choose, if it listens
	if d.c.host.Direct != nil {
		var err error
		if slot, err = strconv.Atoi(request.Values[slotValue]); err != nil {
			return nil, fmt.Errorf("the range of user ids: %w", err)
		}
	}
	answer, err := d.create(ctx, slot)
	if err != nil {
		return nil, host.Explained(err)
	}
	s := saved{PID: answer.PID, Start: answer.Start, Root: d.c.host.Root, Slot: slot, Address: answer.Address}
	first, err := process.Open(s.PID, s.Start)
	if err != nil {
		return nil, &taskrunner.Failure{Message: "its agent ended at once; the server's log says more", Err: err}
	}
	return d.hold(first, s, answer.Groups, 0)
}

// create has the helper make the sandbox.
func (d *driver) create(ctx context.Context, slot int) (helper.Answer, error) {
	d.c.mu.Lock()
	env := d.e.runner.Environment
	d.c.mu.Unlock()
	file, err := d.c.host.OpenSocket(d.e.id, env)
	if err != nil {
		return helper.Answer{}, err
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	return d.c.host.Launcher.Create(ctx, d.e.group, sandbox.Request(string(d.e.id), env, slot), file)
}

// Reattach implements taskrunner.Driver: the process must have the id and the
// start time of the one that was started, and be in the runner's groups.
func (d *driver) Reattach(ctx context.Context, text json.RawMessage) (taskrunner.Handle, error) {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("what was recorded of its process: %w", err)
	}
	var first *process.Process
	var groups cgroup.Groups
	var kills int64
	err := untilRead(ctx, func() (err error) {
		if first, err = process.Open(s.PID, s.Start); err != nil {
			return err
		}
		if groups, err = d.c.host.Trees.Member(s.PID, d.e.group); err == nil {
			kills, _, err = groups.Counts()
		}
		if err != nil {
			first.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := d.e.network.Restore(ctx, s.Slot); err != nil {
		first.Close()
		return nil, fmt.Errorf("its network: %w", err)
	}
	return d.hold(first, s, groups, kills)
}

// errUnread says that nobody knows whether a runner lives.
var errUnread = errors.New("can't read whether it lives")

// findOutWithin is how long a new server tries to find out whether a runner lives,
// and findOutEvery how often.
const (
	findOutWithin = 10 * time.Second
	findOutEvery  = 200 * time.Millisecond
)

// untilRead calls read again while its error leaves open whether the runner lives.
// After findOutWithin it returns that error with errUnread.
func untilRead(ctx context.Context, read func() error) error {
	ctx, cancel := context.WithTimeout(ctx, findOutWithin)
	defer cancel()
	for {
		err := read()
		if err == nil || !unread(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errUnread, err)
		case <-time.After(findOutEvery):
		}
	}
}

// unread reports whether an error of a system call leaves open whether the runner
// lives, as EACCES and EMFILE do. The others say that its process or its groups aren't
// there; EINVAL says that its id is now a thread's.
func unread(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) && number != unix.ESRCH && number != unix.EINVAL && !evidence.Gone(err)
}

// hold notes what is known of a sandbox that runs.
func (d *driver) hold(first *process.Process, s saved, groups cgroup.Groups, kills int64) (taskrunner.Handle, error) {
	text, err := json.Marshal(s)
	if err != nil {
		first.Close()
		return nil, err
	}
	d.e.counters.Hold(groups, kills)
	d.e.network.Hold(s.Slot, s.Start, s.Address)
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.e.root = s.Root
	return &handle{first, text}, nil
}

// Destroy implements taskrunner.Driver.
func (d *driver) Destroy(ctx context.Context) error {
	return d.c.host.Removals.Do(ctx, func() error { return d.destroy(ctx) })
}

func (d *driver) destroy(ctx context.Context) error {
	_, _ = d.e.counters.Count() // the last look
	d.e.network.Drop()
	err := d.c.host.Launcher.Remove(ctx, string(d.e.id), d.e.group)
	if err == nil {
		d.e.counters.Close()
	}
	return err
}

// saved is what is recorded of a sandbox that runs. It is short, since a claim
// writes the record again.
type saved struct {
	PID   int    `json:"pid"`   // of its first process, as this machine counts
	Start uint64 `json:"start"` // when that started, in ticks since the machine's start
	Root  string `json:"root"`  // the name of the directory that it was made around

	// With a network:
	Slot    int        `json:"slot,omitempty"`   // of its user ids
	Address netip.Addr `json:"address,omitzero"` // at which the machine reaches it
}

// A handle is a sandbox's first process.
type handle struct {
	*process.Process
	saved json.RawMessage
}

func (h *handle) Saved() json.RawMessage { return h.saved }
