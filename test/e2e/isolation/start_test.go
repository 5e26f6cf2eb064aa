package isolation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
)

// TestE2EStartSaysWhatIsMissing serves on machines that lack one thing each. The message names it, and so does
// a failed line of the doctor.
func TestE2EStartSaysWhatIsMissing(t *testing.T) {
	need.Sandboxes(t)
	for _, test := range []struct {
		name   string
		before string   // a shell's commands in a mount namespace of their own; $D is the parent of the data
		prefix []string // of the server's command line
		says   []string
	}{
		{"few open files", "ulimit -n 512", nil, []string{"512 files", "ulimit -n", "LimitNOFILE="}},
		{"noexec", "mount -t tmpfs -o noexec none $D", nil, []string{"noexec", "--data"}},
		{"a covered /proc", "mount -t tmpfs none /proc/fs", nil, []string{"/proc/fs", "--privileged"}},
		{"a chroot on a mount", "mkdir -p $D/root; mount --rbind / $D/root", []string{"chroot", "$D/root"}, []string{"chroot", "outside"}},
		{"a missing capability", "", []string{"setpriv", "--bounding-set=-sys_admin"}, []string{"CAP_SYS_ADMIN", "CapabilityBoundingSet="}},
		{"two missing capabilities", "", []string{"setpriv", "--bounding-set=-setgid,-chown"}, []string{"CAP_CHOWN, CAP_SETGID", "--privileged"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := filepath.Join(bed.DataDir(t), "data")
			run := func(code int, args ...string) (text string) {
				t.Helper()
				line := strings.Join(append(append(test.prefix, bed.Rockpool(t)), args...), " ")
				script := "set -e; D=" + filepath.Dir(data) + "; mkdir -p $D; " + test.before + "\nexec " + line
				stdout, stderr, got := bed.RunProgram(t, nil, "unshare", "--mount", "sh", "-c", script)
				if got != code {
					t.Errorf("%s: exit code %d, want %d", line, got, code)
				}
				return stdout + stderr
			}
			served := run(125, "serve", "--listen", "127.0.0.1:0", "--on-stop", "remove", "--cgroup-parent", "rockpool/start", "--data", data)
			examined := run(1, "doctor", "--config", os.DevNull, "--data", data)
			if left, err := filepath.Glob(data + "-private/*"); err != nil || len(left) > 0 {
				t.Errorf("the doctor leaves %q, %v", left, err)
			}
			for _, word := range test.says {
				if !strings.Contains(served, word) {
					t.Errorf("the server doesn't say %q: %s", word, served)
				}
				if !strings.Contains(examined, word) || !strings.Contains(examined, "FAIL") {
					t.Errorf("the doctor doesn't say %q: %s", word, examined)
				}
			}
			if strings.Contains(served, "everything that it needs was found") {
				t.Error("the server says that nothing is missing")
			}
		})
	}
}

// TestE2ERootOfUserNamespace serves as uid 0 of a namespace that maps this user only. It can do what the user
// outside can.
func TestE2ERootOfUserNamespace(t *testing.T) {
	s := newSeparation(t)
	line := s.ordinary("serve", "--data", s.data, "--listen", "127.0.0.1:0")
	line = slices.Insert(line, slices.Index(line, s.program), "unshare", "-Ur")
	if _, errout, code := bed.RunProgram(t, nil, line[0], line[1:]...); code != 125 || !strings.Contains(errout, "--accept-missing-limits") {
		t.Errorf("without accepting it says %q, and %d", errout, code)
	}
	line = append(line[:len(line)-2:len(line)-2], "--accept-missing-limits")
	p := bed.Serve(t, s.data, line[0], line[1:]...)
	runner := p.ClaimUnreleased(t, "shell")
	if got := p.Shell(t, runner, "echo works"); got.Stream("STDOUT") != "works\n" {
		t.Errorf("%+v", got)
	}
	p.Release(t, runner)
	p.End(t, syscall.SIGTERM, false)
}
