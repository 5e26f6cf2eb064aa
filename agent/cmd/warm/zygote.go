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
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/launch"
)

// A zygote has all loaded, and forks. Its methods are safe for concurrent use.
type zygote struct {
	link    // of the one who has the turn
	wanted  agent.Warm
	path    string          // of the interpreter
	version string          // "3.11"
	memory  int64           // bytes that no file backs
	modules map[string]bool // the packages of all that are loaded

	turn  chan struct{} // holds one element while somebody has it fork
	ended atomic.Bool
}

// forksWithin is how long a zygote may take to fork. Then it is given up.
const forksWithin = 30 * time.Second

// load has it load modules, and returns when it has.
func (z *zygote) load() error {
	answer, err := z.ask("ready", []string{strings.Join(z.wanted.Modules, "\x00")}, nil, time.Now().Add(loadsWithin))
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

// fork returns a child that waits to become a command, or an error after patience. A fork that takes
// longer goes on, and its child is ended.
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
	go func() { // which ends within forksWithin
		s, err := z.forkOnce()
		<-z.turn
		forked <- result{s, err}
	}()
	select {
	case r := <-forked:
		return r.spare, r.err
	case <-late.C:
		go func() { // likewise
			if r := <-forked; r.err == nil {
				r.spare.close()
			}
		}()
		return nil, errBusy
	}
}

// forkOnce has it fork. The caller has the turn.
func (z *zygote) forkOnce() (*Spare, error) {
	if z.ended.Load() {
		return nil, errEnded
	}
	ours, theirs, err := newLink()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(forksWithin)
	answer, err := z.ask("forked", nil, []int{theirs}, until)
	_ = unix.Close(theirs)
	s := &Spare{link: ours}
	if err == nil {
		s.pid, err = strconv.Atoi(strings.Join(answer, ""))
	}
	switch {
	case err != nil: // which state it is in is unknown
		z.ended.Store(true)
		z.close()
		err = errEnded
	case s.pid < 0:
		err = fmt.Errorf("fork: %w", syscall.Errno(-s.pid))
	default:
		_, err = s.hear("waits", until)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// Why no child was forked, for people.
var (
	errBusy  = fmt.Errorf("the interpreter didn't fork within %v", takesWithin)
	errEnded = errors.New("the interpreter has ended")
)

// A Spare is a child of a zygote that waits to become a command, once. It ends when its link is
// closed.
type Spare struct {
	link
	pid   int
	moved bool // into its command's group
}

// becomesWithin is how long a child may take to become a command: meanwhile no ended process is
// waited for. It is less than after what the reaper counts a start as held up.
const becomesWithin = time.Second

// Launch returns what makes it a command in a group. The kernel's limits are those of package
// process. An error says that no instruction of the command has run. It must be called where no
// child is reaped.
func (s *Spare) Launch(c Command, limits [4]int64, group *groups.Group) launch.Func {
	return launch.Preferred(func(_ string, argv []string, attr *syscall.ProcAttr) (int, error) {
		defer s.close()
		err := s.known()
		if err != nil {
			return 0, err
		}
		if !s.moved && group != nil && group.Own() {
			err = group.Adopt(s.pid)
		}
		if err == nil {
			err = s.become(c, argv, attr, limits)
		}
		if err != nil {
			_ = unix.Kill(s.pid, unix.SIGKILL) // it is still the same: it isn't reaped
			return 0, err
		}
		return s.pid, nil
	})
}

// known returns an error unless the process with its id is a child of the agent that belongs to the
// zygote's user. That can change once it is reaped.
func (s *Spare) known() error {
	is, err := read(s.pid, make([]byte, statusBytes))
	user := strconv.Itoa(confinement.ZygoteUser) + "\t"
	if err != nil || !strings.HasPrefix(string(is["Uid"]), user+user) || string(is["PPid"]) != strconv.Itoa(unix.Getpid()) {
		return errors.New("the interpreter's child has ended")
	}
	return nil
}

// become has it take all that a command has, checks that, and lets it go on.
func (s *Spare) become(c Command, argv []string, attr *syscall.ProcAttr, limits [4]int64) error {
	who := attr.Sys.Credential
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	terminal := "0"
	if attr.Sys.Setctty {
		terminal = "1"
	}
	fields := []string{attr.Dir, number(int64(who.Uid)), number(int64(who.Groups[1])), terminal}
	for _, limit := range limits {
		fields = append(fields, number(limit))
	}
	fields = append(fields, c.form, c.file, number(int64(len(argv))))
	fields = append(append(fields, argv...), attr.Env...)
	files := make([]int, len(attr.Files))
	for i, file := range attr.Files {
		files[i] = int(file)
	}
	until := time.Now().Add(becomesWithin)
	if _, err := s.ask("ready", fields, files, until); err != nil {
		return err
	}
	if err := check(s.pid, who); err != nil {
		return err
	}
	return s.send([]string{"go"}, nil, until) // it goes on only once it has all of that
}
