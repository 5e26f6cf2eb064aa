package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// A cell is the sandbox of one run. Its groups are a slot, which later cells use again.
//
// A slot is given out only after it was proved empty, and its counters were read. Any error retires it: its groups
// are removed, and the next cell with its id gets new ones.

// A slot is the groups of cells of one size. One cell at a time uses it; the queue of requests for its id sees to that.
type slot struct {
	resources spec.Resources
	limits    cgroup.Limits
	dirs      []string // version 1: the groups to join
	unified   string   // version 2: the group to start in
	counter   *cgroup.Counter
	before    counts
	inUse     bool
	reports   *os.File // of the present cell's init
}

// counts are what the kernel counted in a slot since it was made.
type counts struct {
	kills, refused int64
	cpu            time.Duration
}

func (s *slot) count() (c counts, err error) {
	c.kills, c.refused, err = s.counter.Counts()
	c.cpu = s.counter.CPU()
	return c, err
}

// cellProcesses is the share of a slot's limit of processes that isn't the command's: init.
const cellProcesses = 1

// cell makes a cell in a slot. It returns the descriptors for the agent; the caller closes them.
func (s *server) cell(c helper.Config, q *helper.Request, by *maker.Maker, plan *os.File) (answer helper.Answer, files []*os.File, err error) {
	d, err := newDraft(c, q, s.trees, nil, "")
	if err != nil {
		return helper.Answer{}, nil, err
	}
	// Its limits are those of commands: no agent is inside.
	d.config.Machine.Launchers = cellProcesses
	limits := spec.Commands(*q.Resources, d.config.Machine)
	r := d.spec.Linux.Resources
	*r.Memory.Limit, *r.Pids.Limit, *r.CPU.Quota = limits.Memory, limits.Processes, limits.CPUQuota
	if d.limits, err = spec.Limits(d.spec, d.config.Machine.Lacks); err != nil {
		return helper.Answer{}, nil, finalError{err}
	}
	if err := d.makeView(); err != nil {
		return helper.Answer{}, nil, err
	}
	sl, err := s.slotFor(c, q, d)
	if err != nil {
		return helper.Answer{}, nil, err
	}
	defer func() {
		if err != nil {
			helper.CloseAll(files)
			err = errors.Join(err, s.retire(c, q.ID))
		}
	}()
	spec.ShowGroups(d.spec, s.trees.OwnMounts(c.Group(q.ID), sl.dirs)...)
	d.spec.Process.Args, d.spec.Process.Env = []string{"init"}, nil
	ends, err := openCell(q.Stdin)
	files = ends.agent
	defer ends.closeTheirs()
	if err != nil {
		return helper.Answer{}, files, err
	}
	image, err := s.initProgram()
	if err != nil {
		return helper.Answer{}, files, err
	}
	box := maker.Sandbox{
		ID: q.ID, Spec: d.spec, Stdio: ends.stdio, Files: []*os.File{ends.socket, plan, ends.report}, Program: image,
		Join: sl.dirs, Group: sl.unified, Settings: settings,
		Check: func(pid int) (err error) {
			d.groups, err = s.trees.Member(pid, c.Group(q.ID))
			return err
		},
	}
	if q.Image != "" {
		if box.Image, err = cloneRoot(c, q, d.spec); err != nil {
			return helper.Answer{}, files, err
		}
		defer box.Image.Close()
	}
	sl.inUse, sl.reports = true, ends.reports
	pid, err := by.Make(box)
	if err != nil {
		return helper.Answer{}, files, err
	}
	answer, err = answered(pid, d.groups)
	return answer, files, err
}

// slotFor returns the slot of a cell, ready to be used.
func (s *server) slotFor(c helper.Config, q *helper.Request, d *draft) (*slot, error) {
	s.mu.Lock()
	known := s.slots[q.ID]
	s.mu.Unlock()
	switch {
	case known != nil && known.inUse:
		return nil, fmt.Errorf("the slot %s is in use", q.ID)
	case known != nil && known.resources == *q.Resources:
		return known, nil
	}
	if err := s.retire(c, q.ID); err != nil {
		return nil, err
	}
	if err := s.trees.Prepare(path.Dir(c.Group(q.ID))); err != nil {
		return nil, finalError{err}
	}
	dirs, unified, err := makeGroups(q, d.spec)
	if err == nil {
		err = boundGroups(c, q, s.trees)
	}
	made := &slot{resources: *q.Resources, limits: d.limits, dirs: dirs, unified: unified}
	if err == nil {
		var groups cgroup.Groups
		if groups, err = s.trees.At(c.Group(q.ID), d.limits); err == nil {
			made.counter = cgroup.NewCounter(groups)
			made.before, err = made.count()
		}
	}
	if err != nil {
		return nil, errors.Join(finalError{fmt.Errorf("make the groups of cells: %w", err)}, s.trees.Remove(context.Background(), c.Group(q.ID)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[q.ID] = made
	return made, nil
}

// endCell ends a cell, whatever it is doing, and proves its slot empty. The answer has what the kernel counted.
func (s *server) endCell(c helper.Config, q *helper.Request) (answer helper.Answer, err error) {
	s.mu.Lock()
	sl := s.slots[q.ID]
	s.mu.Unlock()
	if sl == nil || !sl.inUse {
		return helper.Answer{}, errors.Join(fmt.Errorf("the slot %s has no cell", q.ID), s.retire(c, q.ID))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.retire(c, q.ID))
		}
	}()
	if err := s.end(q.ID); err != nil {
		return helper.Answer{}, err
	}
	end := &helper.CellEnd{}
	text := make([]byte, agent.CellReportSize)
	for { // init's end closed the pipe
		if _, err := io.ReadFull(sl.reports, text); err != nil {
			break
		}
		r, err := agent.ParseCellReport(text)
		if err != nil {
			return helper.Answer{}, err
		}
		if r.Kind == agent.CellEnded {
			end.Ended, end.Status = true, uint32(r.Status)
		}
		if r.Kind == agent.CellUnprepared || r.Kind == agent.CellUnstarted {
			end.Failed, end.Step, end.Errno = uint32(r.Kind), r.Step, r.Errno
		}
	}
	_ = sl.reports.Close()
	now, err := sl.count()
	if err != nil {
		return helper.Answer{}, err
	}
	end.OOMKills, end.Refused, end.CPU = now.kills-sl.before.kills, now.refused-sl.before.refused, now.cpu-sl.before.cpu
	if end.PeakMemory, err = s.trees.Recycle(c.Group(q.ID)); err != nil {
		return helper.Answer{Cell: end}, s.retire(c, q.ID) // the run is over; only its slot isn't used again
	}
	sl.before, sl.inUse = now, false
	return helper.Answer{Cell: end}, nil
}

// retire removes a slot's groups with everything in them. The next cell with its id gets new ones.
func (s *server) retire(c helper.Config, id string) error {
	s.mu.Lock()
	sl := s.slots[id]
	delete(s.slots, id)
	s.mu.Unlock()
	if sl != nil && sl.counter != nil {
		sl.counter.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	return errors.Join(s.end(id), s.trees.Remove(ctx, c.Group(id)))
}

// cellEnds are the descriptors of a cell and their other ends.
type cellEnds struct {
	stdio   [3]*os.File
	socket  *os.File // init's, to the agent
	report  *os.File // init's, to this process
	agent   []*os.File
	reports *os.File
}

func openCell(stdin bool) (e cellEnds, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return e, err
	}
	e.socket = os.NewFile(uintptr(pair[1]), "socket")
	e.agent = []*os.File{os.NewFile(uintptr(pair[0]), "socket")}
	for i := 1; i < 3; i++ {
		r, w, err := pipe()
		if err != nil {
			return e, err
		}
		e.stdio[i], e.agent = w, append(e.agent, r)
	}
	if stdin {
		r, w, err := pipe()
		if err != nil {
			return e, err
		}
		e.stdio[0], e.agent = r, append(e.agent, w)
	}
	e.reports, e.report, err = pipe()
	return e, err
}

// pipe is os.Pipe without Go's poller.
func pipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// closeTheirs closes the ends that the cell has now.
func (e cellEnds) closeTheirs() {
	for _, f := range append(e.stdio[:], e.socket, e.report) {
		if f != nil {
			_ = f.Close()
		}
	}
}

// initProgram returns the program of process 1, open for reading.
func (s *server) initProgram() (*os.File, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.init == nil {
		var err error
		if s.init, err = maker.OpenInit(); err != nil {
			return nil, err
		}
	}
	return s.init, nil
}
