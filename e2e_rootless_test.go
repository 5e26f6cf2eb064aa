package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ordinary returns a command line that runs one as a user that isn't root, and has
// nothing of its own.
func (s *separation) ordinary(line ...string) []string {
	return append([]string{"setpriv", "--reuid", serverUser, "--regid", serverUser, "--clear-groups", s.program}, line...)
}

// processes returns those of the server's user, as the machine counts, without
// those that have ended.
func (s *separation) processes() (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), "\nUid:\t"+serverUser+"\t") && !strings.Contains(string(text), "State:\tZ") {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

// TestE2EWithoutRoot has the server of an ordinary user, who has neither a control
// group nor other users' ids, say what is lacking, and go on once that is
// accepted.
func TestE2EWithoutRoot(t *testing.T) {
	s := newSeparation(t)
	if text, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(text)) == "0" {
		t.Fatalf("no user namespaces (%v)", err)
	}
	line := s.ordinary("serve", "--data", s.data, "--listen", "127.0.0.1:0")
	if _, errout, code := runProgram(t, nil, line[0], line[1:]...); code != 125 || !strings.Contains(errout, "no limits of memory, processes, processor time") || !strings.Contains(errout, "--accept-missing-limits") {
		t.Errorf("without a control group it says %q, and %d", errout, code)
	}

	line = s.ordinary("serve", "--data", s.data, "--accept-missing-limits")
	p := serve(t, s.data, line[0], line[1:]...)
	const lost = "without root there is less: no limits of memory, processes, processor time"
	var health struct {
		Health struct {
			Components []struct{ Name, Status, Message string }
		}
	}
	p.call(t, `{ health { components { name status message } } }`, nil, &health)
	told := false
	for _, c := range health.Health.Components {
		told = told || c.Name == "cluster" && strings.HasPrefix(c.Message, lost)
	}
	if !told {
		t.Errorf("health doesn't say what is lost: %+v", health)
	}

	runner := p.claimLoosely(t, "shell")
	look := `grep -E '^Cap(Prm|Eff|Bnd)|^NoNewPrivs|^Seccomp:' /proc/self/status | cut -f 2 | sort -u | tr '\n' ' '
		unshare -U true 2>/dev/null || echo refused; cat /proc/1/environ 2>/dev/null || echo hidden; kill -9 1; ls ` + "'" + s.data + "'" + ` 2>/dev/null || echo away
		touch /usr/x 2>/dev/null || echo read-only; (setsid sleep 300 &) ; echo kept >file; cat file`
	if got := p.shell(t, runner, look); got.stream("STDOUT") != "0000000000000000 1 2 refused\nhidden\naway\nread-only\nkept\n" {
		t.Errorf("%+v", got)
	}
	if got := p.run(t, object{"runnerId": runner, "shell": "true", "privileged": true}); got.Outcome != "FAILED" {
		t.Errorf("a privileged one: %+v", got)
	}

	// A server that was killed, and the next: what runs goes on, and can be ended.
	p.end(t, syscall.SIGKILL, false)
	if said := p.stderr.String(); strings.Count(said, lost) != 1 {
		t.Errorf("at its start it said %q", said)
	}
	p = serve(t, s.data, line[0], line[1:]...)
	if got := p.shell(t, runner, "cat file"); got.stream("STDOUT") != "kept\n" {
		t.Errorf("after a restart: %+v", got)
	}
	p.release(t, runner)
	if took := p.end(t, syscall.SIGTERM, false); took > 5*time.Second || p.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("ended after %v with %v\n%s", took, p.cmd.ProcessState, p.stderr.String())
	}
	eventually(t, 10*time.Second, "nothing of it runs", func() bool { return len(s.processes()) == 0 })
	for _, sub := range []string{"state", "runners"} {
		if left, err := os.ReadDir(filepath.Join(s.data, "local", sub)); err != nil || len(left) > 0 {
			t.Errorf("%s: %v (%v)", sub, left, err)
		}
	}
}
