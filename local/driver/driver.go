// Package driver makes and ends one runner's sandbox: it is the driver of the runner's task and the
// hooks around it. It reattaches to a sandbox that an earlier server made, and only if it is
// certain that it is the same one.
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

// createWithin bounds how long the helper may take to make a sandbox.
const createWithin = 30 * time.Second

// Images are the images that runners are made from; see package image.
type Images interface {
	Root(digest string) (string, error)
	Want(reference, digest string)
}

// Config configures a Driver. Its fields don't change.
type Config struct {
	ID          runtime.RunnerID
	Environment runtime.Environment
	Group       string // its cgroup, as a path below the mount
	Host        *host.Host
	Images      Images
	Network     *access.Runner
	Counters    *evidence.Counters
	Loaded      func(runtime.Loaded) // called with the interpreter that the runner has preloaded
}

// A Driver starts one runner: a sandbox with the agent as its first process.
type Driver struct {
	Config

	mu   sync.Mutex // guards root
	root string
}

// New returns the driver of a runner. It makes nothing yet.
func New(config Config) *Driver { return &Driver{Config: config} }

// Root returns the name of the root directory that the sandbox uses; "": no sandbox was made or
// found.
func (d *Driver) Root() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.root
}

// Start implements taskrunner.Driver.
func (d *Driver) Start(ctx context.Context, request taskrunner.StartRequest) (taskrunner.Handle, error) {
	slot := 0 // a listening helper chooses it
	if d.Host.Direct != nil {
		var err error
		if slot, err = strconv.Atoi(request.Values[slotValue]); err != nil {
			return nil, fmt.Errorf("read the number of its range of user ids: %w", err)
		}
	}
	answer, err := d.create(ctx, slot)
	if err != nil {
		return nil, host.Explained(err)
	}
	s := saved{PID: answer.PID, Start: answer.Start, Root: d.Host.Root, Slot: slot, Address: answer.Address}
	// The agent may have ended already. Its start time differs from that of a later process with the same id.
	first, err := process.Open(s.PID, s.Start)
	if errors.Is(err, process.ErrHidden) {
		return nil, &taskrunner.Failure{Message: process.ErrHidden.Error(), Err: err}
	}
	if err != nil {
		return nil, &taskrunner.Failure{Message: "its agent ended immediately; the server's log says more", Err: err}
	}
	return d.hold(first, s, answer.Groups, 0)
}

// create lets the helper make the sandbox.
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

// Reattach implements taskrunner.Driver. The process must have the recorded id and start time, and
// be in the runner's cgroups. An error that wraps ErrUnread: whether it lives is unknown.
func (d *Driver) Reattach(ctx context.Context, text json.RawMessage) (taskrunner.Handle, error) {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read the record of its process: %w", err)
	}
	var first *process.Process
	var groups cgroup.Groups
	var kills int64
	err := untilRead(ctx, func() (err error) {
		if first, err = process.Open(s.PID, s.Start); err != nil {
			return err
		}
		// The runner has survived the OOM kills that are counted by now.
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
	// Without its packet filter, the runner must not be used again.
	if err := d.Network.Restore(ctx, s.Slot); err != nil {
		first.Close()
		return nil, fmt.Errorf("restore its network: %w", err)
	}
	return d.hold(first, s, groups, kills)
}

// ErrUnread means that it can't be determined whether a runner is alive.
var ErrUnread = errors.New("can't determine whether it is alive")

// findOutWithin bounds how long a new server tries to find out whether a runner is alive;
// findOutEvery is the interval of the tries.
const (
	findOutWithin = 10 * time.Second
	findOutEvery  = 200 * time.Millisecond
)

// untilRead calls read until its error, or nil, says whether the runner is alive. After
// findOutWithin it returns the last error with ErrUnread.
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

// unread reports whether an error of a system call leaves open whether the runner is alive, such as
// EACCES, EMFILE and a hidden process. Other errors say that its process or its cgroups no longer exist; EINVAL says
// that its process id is now a thread's.
func unread(err error) bool {
	var number syscall.Errno
	return errors.Is(err, process.ErrHidden) || errors.As(err, &number) && number != unix.ESRCH && number != unix.EINVAL && !evidence.Gone(err)
}

// hold records a running sandbox and returns its handle.
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

// Destroy implements taskrunner.Driver. Host.Removals limits concurrent removals.
func (d *Driver) Destroy(ctx context.Context) error {
	return d.Host.Removals.Do(ctx, func() error { return d.destroy(ctx) })
}

// destroy removes the sandbox with its network. The caller has a turn of Host.Removals.
func (d *Driver) destroy(ctx context.Context) error {
	_, _ = d.Counters.Count() // the last chance to read the counters
	// Otherwise a verification could report that the packet filter was changed.
	d.Network.Drop()
	err := d.Host.Launcher.Remove(ctx, string(d.ID), d.Group)
	if err == nil {
		d.Counters.Close()
	}
	return err
}

// saved is what the record keeps of a running sandbox. It is short, because every claim writes the
// record again.
type saved struct {
	PID   int    `json:"pid"`   // of its first process, in this machine's pid namespace
	Start uint64 `json:"start"` // start time of that process, in clock ticks since boot
	Root  string `json:"root"`  // name of its root directory

	// With a network only:
	Slot    int        `json:"slot,omitempty"`   // number of its range of user ids
	Address netip.Addr `json:"address,omitzero"` // its address on the machine's side
}

// A handle is a sandbox's first process.
type handle struct {
	*process.Process
	saved json.RawMessage
}

func (h *handle) Saved() json.RawMessage { return h.saved }
