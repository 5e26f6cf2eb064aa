package warm

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/launch"
)

// A child is a process of the zygotes' user: a zygote, or what it has forked.
type child struct {
	link
	pid int
}

// end ends it.
func (c child) end() {
	c.close() // which it ends by, unless it was stopped
	user := strconv.Itoa(confinement.ZygoteUser) + "\t"
	if is, err := read(c.pid, make([]byte, 4096)); err == nil && strings.HasPrefix(string(is["Uid"]), user) {
		_ = unix.Kill(c.pid, unix.SIGKILL)
	}
}

// A zygote has all loaded, and forks. One goroutine at a time uses it.
type zygote struct {
	child
	version string          // of the interpreter: "3.11"
	memory  int64           // bytes that no file backs
	modules map[string]bool // the packages of all that are loaded
}

func (z *zygote) warmed() agent.Warmed { return agent.Warmed{Version: z.version, Memory: z.memory} }

// load has it load modules, and returns when it has.
func (z *zygote) load(modules []string) error {
	answer, err := z.ask("ready", []string{strings.Join(modules, "\x00")}, nil, loadsWithin)
	var f *failure
	switch {
	case errors.As(err, &f) && len(f.fields) == 2:
		return &agent.Error{Code: agent.ErrInvalid, Field: "modules", Path: f.fields[0], Message: "can't be loaded: " + f.fields[1]}
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

// fork returns a child that waits to become a command.
func (z *zygote) fork() (*Spare, error) {
	ours, theirs, err := newLink()
	if err != nil {
		return nil, err
	}
	s := &Spare{child{link: ours}}
	answer, err := z.ask("forked", nil, []int{theirs}, answersWithin)
	_ = unix.Close(theirs)
	if err == nil {
		if s.pid, err = strconv.Atoi(strings.Join(answer, "")); err == nil && s.pid < 0 {
			err = syscall.Errno(-s.pid)
		}
	}
	if err == nil {
		_, err = s.hear("waits", answersWithin)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// A Spare is a child of a zygote that waits to become a command, once. It ends when its link is
// closed.
type Spare struct{ child }

// Launch returns what makes it a command. The kernel's limits are those of package process. An
// error says that nothing of it runs. It must be called where no child is waited for.
func (s *Spare) Launch(c Command, limits [4]int64) launch.Func {
	return launch.Preferred(func(_ string, argv []string, attr *syscall.ProcAttr) (int, error) {
		defer s.close()
		if err := s.become(c, argv, attr, limits); err != nil {
			_ = unix.Kill(s.pid, unix.SIGKILL)
			return 0, err
		}
		return s.pid, nil
	})
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
	if _, err := s.ask("ready", fields, files, becomesWithin); err != nil {
		return err
	}
	if err := check(s.pid, who); err != nil {
		return err
	}
	return s.send([]string{"go"}, nil, becomesWithin)
}
