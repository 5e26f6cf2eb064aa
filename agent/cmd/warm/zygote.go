package warm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
)

// A zygote is a process that has loaded an interpreter and its modules, and forks. Its methods are
// safe for concurrent use.
type zygote struct {
	link                     // only the holder of turn uses it
	unreaped func(do func()) // as in Warmer
	wanted   agent.Warm
	path     string          // of the interpreter
	version  string          // "3.11"
	memory   int64           // bytes of anonymous memory
	modules  map[string]bool // the top-level packages of all loaded modules

	turn  chan struct{} // capacity 1; holds a token while a fork is in progress
	ended atomic.Bool
}

// forksWithin is how long a zygote may take to fork. A slower one is given up.
const forksWithin = 30 * time.Second

func (z *zygote) load() error {
	answer, err := z.request("ready", append([]string{z.path}, z.wanted.Modules...), nil, time.Now().Add(loadsWithin))
	var f *failure
	switch {
	case errors.As(err, &f) && len(f.fields) == 2:
		return &agent.Error{Code: agent.ErrInvalid, Field: "modules", Path: f.fields[0], Message: f.fields[1]}
	case errors.As(err, &f):
		return &agent.Error{Code: agent.ErrInvalid, Field: "interpreter", Path: z.path, Message: f.Error()}
	case err != nil:
		return err
	case len(answer) < 2:
		return errZygote
	}
	z.version = answer[0]
	z.memory, _ = strconv.ParseInt(answer[1], 10, 64)
	z.modules = map[string]bool{}
	for _, name := range answer[2:] {
		z.modules[name] = true
	}
	return nil
}

// fork returns a child that waits to become a command, or an error after patience. A fork that
// takes longer continues, and its child is ended.
func (z *zygote) fork(patience time.Duration) (*Spare, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case z.turn <- struct{}{}:
	case <-late.C:
		return nil, errBusy
	}
	type result struct {
		spare *Spare
		err   error
	}
	forked := make(chan result, 1)
	go func() { // ends within forksWithin
		s, err := z.forkOnce()
		<-z.turn
		forked <- result{s, err}
	}()
	select {
	case r := <-forked:
		return r.spare, r.err
	case <-late.C:
		go func() { // ends within forksWithin, too
			if r := <-forked; r.err == nil {
				r.spare.End()
			}
		}()
		return nil, errBusy
	}
}

// forkOnce makes the zygote fork. The caller has the turn.
func (z *zygote) forkOnce() (*Spare, error) {
	if z.ended.Load() {
		return nil, errEnded
	}
	ours, theirs, err := newLink()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(forksWithin)
	answer, err := z.request("forked", nil, []int{theirs}, until)
	_ = unix.Close(theirs)
	s := &Spare{link: ours, pidfd: -1, unreaped: z.unreaped}
	if err == nil && len(answer) == 1 {
		s.pid, err = strconv.Atoi(answer[0])
	}
	switch {
	case err != nil || s.pid == 0: // the zygote's state is unknown
		z.ended.Store(true)
		z.close()
		err = errEnded
	case s.pid < 0:
		err = fmt.Errorf("fork: %w", syscall.Errno(-s.pid))
	default:
		// A child keeps its id until it is reaped. So the descriptor is the child's.
		z.unreaped(func() {
			if err = known(s.pid); err == nil {
				s.pidfd, err = unix.PidfdOpen(s.pid, 0)
			}
		})
	}
	if err == nil {
		_, err = s.hear("waits", until)
	}
	if err != nil {
		s.End()
		return nil, err
	}
	return s, nil
}

// known returns an error unless pid is a child of the agent that belongs to the zygote's user. A
// process that was reaped could have passed its id to another one.
func known(pid int) error {
	is, err := read(pid)
	user := strconv.Itoa(confinement.ZygoteUser) + "\t"
	if err != nil || !strings.HasPrefix(string(is["Uid"]), user+user) || string(is["PPid"]) != strconv.Itoa(unix.Getpid()) {
		return errGone
	}
	return nil
}

// The reasons why no child was forked, for people.
var (
	errBusy  = fmt.Errorf("the interpreter didn't fork within %v", takesWithin)
	errEnded = errors.New("the interpreter has ended")
	errGone  = errors.New("the interpreter's child has ended")
)
