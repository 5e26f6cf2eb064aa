// Package postgrestest runs PostgreSQL servers for tests.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/need"
)

// A Server is a PostgreSQL on loopback. Only one goroutine may use it.
type Server struct {
	URL string // of its database

	dir     string
	bin     string
	host    string // of loopback; this process's own, so that nothing takes the port between a Kill and a Run
	port    int
	account *syscall.Credential // PostgreSQL refuses to run as root
	process *exec.Cmd           // nil means it isn't running
	input   io.Closer           // closing it ends PostgreSQL
	ended   chan struct{}       // closed when it has ended
}

// Start starts a server until the test's end.
func Start(t testing.TB) *Server {
	t.Helper()
	need.Sandboxes(t)
	s, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.said())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// New starts a server. The caller must call Close.
func New(ctx context.Context) (s *Server, err error) {
	s = &Server{}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		s.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if s.dir, err = os.MkdirTemp("", "rockpool-postgres-"); err != nil {
		return nil, err
	}
	if s.account != nil {
		err = os.Chown(s.dir, int(s.account.Uid), int(s.account.Gid))
	}
	if err == nil {
		init := s.command("initdb", "--auth", "trust", "--username", "rockpool", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync", "--pgdata", s.data())
		err = explained(init.CombinedOutput())
	}
	if err == nil {
		s.host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
		s.port, err = freePort(ctx, s.host)
	}
	if err == nil {
		s.URL = fmt.Sprintf("postgres://rockpool@%s:%d/postgres", s.host, s.port)
		err = s.Run(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.Close())
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }

// said returns its log.
func (s *Server) said() string {
	text, _ := os.ReadFile(s.log())
	return string(text)
}

func explained(text []byte, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// programs returns the directory of the newest PostgreSQL's programs.
func programs() (string, error) {
	all, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(all) == 0 {
		return "", errors.New("PostgreSQL is missing: make test installs it")
	}
	slices.Sort(all)
	return filepath.Dir(all[len(all)-1]), nil
}

func freePort(ctx context.Context, host string) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account, Setpgid: true} // Ctrl-C doesn't reach it
	return cmd
}

// Run starts it again, and returns when it answers.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %s", err, s.said())
		}
	}()
	// It ends when its input does, so at the latest with this process. Its data needn't survive a crash
	// of the machine.
	s.process = s.command("postgres", "-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir, "-c", "listen_addresses="+s.host, "-c", "fsync=off")
	s.process.Args = append([]string{"sh", "-c", `exec 3<&0; "$0" "$@" </dev/null 3<&- & (read -r _ <&3; kill -QUIT $!) 2>/dev/null & wait %1`, s.process.Path}, s.process.Args[1:]...)
	s.process.Path = "/bin/sh"
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // PostgreSQL has its own copy
	s.process.Stdout, s.process.Stderr = log, log
	if s.input, err = s.process.StdinPipe(); err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		s.process = nil
		return err
	}
	ended := make(chan struct{})
	s.ended = ended
	go func(process *exec.Cmd) {
		_ = process.Wait() // its result doesn't matter
		close(ended)
	}(s.process)
	for {
		ready := s.command("pg_isready", "-q", "-h", s.host, "-p", strconv.Itoa(s.port))
		if ready.Run() == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("it ended")
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Kill kills all of its processes, as a crash of its machine would.
func (s *Server) Kill() {
	s.Signal(syscall.SIGSTOP) // so that none starts another one
	all := s.processes()
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.ended
	for _, pid := range all { // PostgreSQL doesn't start before all previous processes are gone
		for syscall.Kill(pid, 0) == nil {
			<-time.After(time.Millisecond)
		}
	}
	_ = s.input.Close()
	s.process = nil
}

// Signal sends a signal to all of its processes, for example to freeze them.
func (s *Server) Signal(signal syscall.Signal) {
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, signal)
	}
}

// processes returns the ids of its processes, parents first.
func (s *Server) processes() []int {
	all := []int{s.process.Process.Pid}
	for i := 0; i < len(all); i++ {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", all[i]))
		for field := range strings.FieldsSeq(string(children)) {
			if pid, err := strconv.Atoi(field); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}

// Query runs a statement and returns its output.
func (s *Server) Query(statement string) (string, error) {
	cmd := s.command("psql", "-X", "-q", "-A", "-t", "-c", statement, s.URL)
	text, err := cmd.CombinedOutput()
	return string(text), explained(text, err)
}

// Close stops the server and removes its data.
func (s *Server) Close() error {
	if s.process != nil {
		_ = s.input.Close()
		<-s.ended
		s.process = nil
	}
	return os.RemoveAll(s.dir)
}
