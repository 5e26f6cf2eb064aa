// Package driver makes and ends one runner's sandbox for its task: it is the task's driver
// and the hooks around it. It finds again what an earlier server made.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/evidence"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/process"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// createWithin bounds how long the helper is waited for.
const createWithin = 30 * time.Second

// Images are those that runners are made from; see package image.
type Images interface {
	Root(digest string) (string, error)
	Want(reference, digest string)
}

// Config is what a Driver works with. Its fields don't change.
type Config struct {
	ID          runtime.RunnerID
	Environment runtime.Environment
	Group       string // its control group
	Host        *host.Host
	Images      Images
	Network     *access.Runner
	Counters    *evidence.Counters
	Loaded      func(runtime.Loaded) // notes what the runner has loaded
}

// A Driver starts one runner: a sandbox with the agent as its first process.
type Driver struct {
	Config

	mu   sync.Mutex // guards what follows
	root string
}

// New returns the driver of a runner.
func New(config Config) *Driver { return &Driver{Config: config} }

// Root returns the name of the directory that the sandbox was made around; "": none was
// made or found.
func (d *Driver) Root() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.root
}

// Start implements taskrunner.Driver.
func (d *Driver) Start(ctx context.Context, request taskrunner.StartRequest) (taskrunner.Handle, error) {
	slot := 0 // the helper's to choose, if it listens
	if d.Host.Direct != nil {
		var err error
		if slot, err = strconv.Atoi(request.Values[slotValue]); err != nil {
			return nil, fmt.Errorf("the range of user ids: %w", err)
		}
	}
	answer, err := d.create(ctx, slot)
	if err != nil {
		return nil, host.Explained(err)
	}
	s := saved{PID: answer.PID, Start: answer.Start, Root: d.Host.Root, Slot: slot, Address: answer.Address}
	first, err := process.Open(s.PID, s.Start)
	if err != nil {
		return nil, &taskrunner.Failure{Message: "its agent ended at once; the server's log says more", Err: err}
	}
	return d.hold(first, s, answer.Groups, 0)
}

// create has the helper make the sandbox.
func (d *Driver) create(ctx context.Context, slot int) (helper.Answer, error) {
	file, err := d.Host.OpenSocket(d.ID, d.Environment)
	if err != nil {
		return helper.Answer{}, err
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	return d.Host.Launcher.Create(ctx, d.Group, sandbox.Request(string(d.ID), d.Environment, slot), file)
}

// Reattach implements taskrunner.Driver: the process must have the id and the
// start time of the one that was started, and be in the runner's groups.
func (d *Driver) Reattach(ctx context.Context, text json.RawMessage) (taskrunner.Handle, error) {
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
		if groups, err = d.Host.Trees.Member(s.PID, d.Group); err == nil {
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
	if err := d.Network.Restore(ctx, s.Slot); err != nil {
		first.Close()
		return nil, fmt.Errorf("its network: %w", err)
	}
	return d.hold(first, s, groups, kills)
}

// ErrUnread says that nobody knows whether a runner lives.
var ErrUnread = errors.New("can't read whether it lives")

// findOutWithin is how long a new server tries to find out whether a runner lives,
// and findOutEvery how often.
const (
	findOutWithin = 10 * time.Second
	findOutEvery  = 200 * time.Millisecond
)

// untilRead calls read again while its error leaves open whether the runner lives.
// After findOutWithin it returns that error with ErrUnread.
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
			return fmt.Errorf("%w: %w", ErrUnread, err)
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
func (d *Driver) hold(first *process.Process, s saved, groups cgroup.Groups, kills int64) (taskrunner.Handle, error) {
	text, err := json.Marshal(s)
	if err != nil {
		first.Close()
		return nil, err
	}
	d.Counters.Hold(groups, kills)
	d.Network.Hold(s.Slot, s.Start, s.Address)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root = s.Root
	return &handle{first, text}, nil
}

// Destroy implements taskrunner.Driver.
func (d *Driver) Destroy(ctx context.Context) error {
	return d.Host.Removals.Do(ctx, func() error { return d.destroy(ctx) })
}

func (d *Driver) destroy(ctx context.Context) error {
	_, _ = d.Counters.Count() // the last look
	d.Network.Drop()
	err := d.Host.Launcher.Remove(ctx, string(d.ID), d.Group)
	if err == nil {
		d.Counters.Close()
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
