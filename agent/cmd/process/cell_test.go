package process_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/process"
	"github.com/rockpool/rockpool/agent/serve"
	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/test/need"
)

// adopt makes a cell with a shell script, in pid and mount namespaces of its own, and adopts it.
func adopt(t *testing.T, script string, stdin bool, files ...maker.File) (serve.Process, error) {
	t.Helper()
	need.Sandboxes(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "init")
	flags := strings.Fields("-std=gnu17 -O2 -static -nostdlib -ffreestanding -fno-stack-protector -fno-tree-loop-distribute-patterns -fcf-protection=none -Wl,--build-id=none,-z,noseparate-code -o")
	if out, err := exec.Command("cc", append(flags, program, "../../../local/sandbox/maker/init/init.c")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	plan, err := maker.NewPlan(maker.Command{
		Files: files, Candidates: []string{"/bin/sh"}, Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
	})
	if err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(ends[0], true); err != nil {
		t.Fatal(err)
	}
	ours, theirs := []*os.File{os.NewFile(uintptr(ends[0]), "socket")}, []*os.File{os.NewFile(uintptr(ends[1]), "socket"), plan.File}
	var out []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ours, out = append(ours, r), append(out, w)
	}
	reports := ours[3]
	ours = ours[:3]
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = out[0], out[1]
	cmd.ExtraFiles = append(theirs, out[2])
	if stdin {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin, ours, out = r, append(ours, w), append(out, r)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(theirs, out...) {
		_ = f.Close()
	}
	t.Cleanup(func() {
		_ = reports.Close()
		_ = cmd.Wait()
	})
	return process.Adopt(agent.Start{Argv: []string{"sh"}, Stdin: stdin}, ours)
}

func TestAdoptedCellIsAProcess(t *testing.T) {
	p, err := adopt(t, "read line; echo got $line; echo wrong >&2; exit 5", true)
	if err != nil {
		t.Fatal(err)
	}
	stdin, stdout, stderr := p.Pipes()
	if _, err := io.WriteString(stdin, "it\n"); err != nil {
		t.Error(err)
	}
	out, err := io.ReadAll(stdout)
	if err != nil || string(out) != "got it\n" {
		t.Errorf("stdout is %q, %v", out, err)
	}
	if out, err := io.ReadAll(stderr); err != nil || string(out) != "wrong\n" {
		t.Errorf("stderr is %q, %v", out, err)
	}
	if status := p.Wait(); status != (serve.Status{Code: 5}) {
		t.Errorf("got %+v, want code 5", status)
	}
	p.Kill(0)
	if u := p.Close(); u.PeakMemory == 0 {
		t.Errorf("%+v", u)
	}
}

func TestAdoptedCellIsKilled(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		grace  time.Duration
		want   serve.Status
	}{
		"it handles SIGTERM": {"trap 'exit 4' TERM; echo; while :; do sleep 0.01; done", time.Minute, serve.Status{Code: 4}},
		"it ignores SIGTERM": {"trap '' TERM; echo; while :; do sleep 0.01; done", 20 * time.Millisecond, serve.Status{Signal: "SIGKILL"}},
		"without grace":      {"setsid sh -c 'sleep 1000' & echo; sleep 1000", 0, serve.Status{Signal: "SIGKILL"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := adopt(t, test.script, false)
			if err != nil {
				t.Fatal(err)
			}
			_, stdout, _ := p.Pipes()
			if _, err := stdout.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			p.Kill(test.grace)
			if status := p.Wait(); status != test.want {
				t.Errorf("got %+v, want %+v", status, test.want)
			}
			p.Close()
		})
	}
}

func TestUnwritableFilesOfACellAreRefused(t *testing.T) {
	_, err := adopt(t, "echo", false, maker.File{Path: "etc/passwd/x"})
	var refused *agent.Error
	if !errors.As(err, &refused) || refused.Code != agent.ErrInvalid || refused.Field != "files" {
		t.Errorf("got %v, want %s of files", err, agent.ErrInvalid)
	}
}
