package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/agent"
)

// newPlain starts an agent without namespaces and privileges, as on a developer's machine.
func newPlain(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-plain")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "agent")
	if err := os.Link(agentBinary, binary); err != nil {
		t.Fatal(err)
	}
	b := &bed{socket: filepath.Join(dir, "s")}
	listener, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	file, err := listener.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(binary, "serve", "--workspace", dir)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = testWriter{t}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("the agent ended with %v", err)
		}
	})
	return b
}

func TestAgentWorksWithoutPrivileges(t *testing.T) {
	b := newPlain(t)
	if r := b.run(t, "echo", "hi"); r.stdout != "hi\n" {
		t.Errorf("got %+v", r)
	}
	if r := b.run(t, "sh", "-c", "grep -e NoNewPrivs -e Seccomp: /proc/self/status | tr -d '\\n'"); r.stdout != "NoNewPrivs:\t1Seccomp:\t2" {
		t.Errorf("got %+v", r)
	}
	b.put(t, agent.Write{Path: "d/f", Size: 3}, "abc")
	if r := b.sh(t, "cat d/f"); r.stdout != "abc" {
		t.Errorf("got %+v", r)
	}
	_, err := b.update(t, agent.Update{Write: []agent.Write{{Path: "d/f", Size: 3}}, Protected: true}, "abc")
	checkError(t, "a protected file", err, agent.Error{Code: agent.ErrInvalid, Field: "protected"})
	// Alone, an execution leaves nothing, whatever session it went to.
	s, err := b.session(t, agent.Start{Argv: []string{"sh", "-c", "(setsid sh -c 'echo $$; exec sleep 1005' &); sleep 1000"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t: t, s: s}
	p.sees(1, "\n")
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	if exit := p.ends(); exit.Cause != agent.CauseKill {
		t.Fatalf("%+v", exit)
	}
	if r := b.sh(t, "test -e /proc/"+p.all[1]); r.exit.Code != 1 {
		t.Errorf("a process was left: %+v", r)
	}
}
