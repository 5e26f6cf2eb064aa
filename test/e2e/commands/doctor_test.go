package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/test/executable"
)

// A finding is one line of the doctor's report.
type finding struct{ Name, Status, Message, Advice string }

// report runs the doctor, which must leave nothing.
func report(t *testing.T, run func() (out string, code int)) (findings []finding, code int) {
	t.Helper()
	_, state := privately(t)
	_ = state
	out, code := run()
	var all struct {
		OK       bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if all.OK != (code == 0) {
		t.Errorf("ok is %v, the exit code %d", all.OK, code)
	}
	return all.Findings, code
}

func statusOf(findings []finding, name string) string {
	i := slices.IndexFunc(findings, func(f finding) bool { return f.Name == name })
	if i < 0 {
		return ""
	}
	return findings[i].Status
}

func TestE2EDoctor(t *testing.T) {
	b := bed.Open(t)
	findings, code := report(t, func() (string, int) {
		out, _, code := bed.RunProgram(t, nil, bed.Rockpool(t), "doctor", "--json", "--server", b.Address)
		return out, code
	})
	if code != 0 {
		t.Errorf("exit %d: %+v", code, findings)
	}
	for _, name := range []string{"open files", "data", "sandbox"} { // a small or slow machine has a warning
		if got := statusOf(findings, name); got != "OK" && got != "WARN" {
			t.Errorf("%s is %q: %+v", name, got, findings)
		}
	}
	for _, name := range []string{"kernel", "server", "root", "kernel parts", "landlock", "packet filters", "network access", "gVisor", "namespaces", "users", "privileges", "seccomp", "network", "files", "images", "processes", "executions",
		"memory", "pids", "cpu", "memory limit", "process limit"} {
		if got := statusOf(findings, name); got != "OK" {
			t.Errorf("%s is %q: %+v", name, got, findings)
		}
	}
	out, _, code := bed.RunProgram(t, nil, bed.Rockpool(t), "doctor", "--server", "http://127.0.0.1:1")
	if code != 0 || !strings.Contains(out, "WARN  server") || !strings.Contains(out, "-> start one: rockpool serve") || !strings.HasSuffix(out, "can isolate programs.\n") {
		t.Errorf("%d %s", code, out)
	}
}

// asNobody runs the program as a user without privileges.
func asNobody(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rockpool-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	own := filepath.Join(dir, "rockpool")
	executable.Copy(t, bed.Rockpool(t), own)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), own, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME=", "HOME="+dir) // so that its state is below that directory
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestE2EDoctorWithoutRoot(t *testing.T) {
	findings, code := report(t, func() (string, int) {
		out, _, code := asNobody(t, "doctor", "--json")
		return out, code
	})
	if code != 1 || statusOf(findings, "limits") != "FAIL" || statusOf(findings, "limitations") != "WARN" || statusOf(findings, "users") != "WARN" {
		t.Errorf("exit %d: %+v", code, findings)
	}
	for _, name := range []string{"kernel", "root", "kernel parts", "sandbox", "namespaces", "privileges", "seccomp", "network", "files", "images", "processes"} {
		if statusOf(findings, name) != "OK" {
			t.Errorf("%s is %q: %+v", name, statusOf(findings, name), findings)
		}
	}
}

// TestE2EPrivateServerWithoutRoot: it works, and says in one line what is missing.
func TestE2EPrivateServerWithoutRoot(t *testing.T) {
	privately(t)
	out, errs, code := asNobody(t, "run", "--env", "shell", "--", "sh", "-c", "echo ran; exit 7")
	if code != 7 || out != "ran\n" || strings.Count(errs, "without root") != 1 || !strings.Contains(errs, "limits of memory, processes, processor time") {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// TestE2EDoctorTriesANetwork: without the programs and namespaces that a trial of the network
// needs, the doctor names them.
func TestE2EDoctorTriesANetwork(t *testing.T) {
	for _, test := range []struct{ path, in, says string }{
		{"/nonesuch", "--net", "install iproute2"},
		{os.Getenv("PATH"), "--ipc", "is in use"}, // it doesn't touch others' networks
	} {
		findings, code := report(t, func() (string, int) {
			out, _, code := bed.RunProgram(t, nil, "unshare", test.in, "env", "PATH="+test.path, bed.Rockpool(t), "doctor", "--apart", "--json")
			return out, code
		})
		if code != 0 || len(findings) != 1 || statusOf(findings, "network access") != "WARN" || !strings.Contains(findings[0].Message, test.says) || findings[0].Advice == "" {
			t.Errorf("exit %d: %+v", code, findings)
		}
	}
}

// TestE2EDoctorFindsWhatIsMissing removes something that a sandbox needs.
func TestE2EDoctorFindsWhatIsMissing(t *testing.T) {
	findings, code := report(t, func() (string, int) {
		// In a mount namespace without any cgroup file system.
		out, _, code := bed.RunProgram(t, nil, "unshare", "--mount", "--propagation", "private", "sh", "-c",
			`umount -l -R /sys/fs/cgroup 2>/dev/null; exec "$0" doctor --json`, bed.Rockpool(t))
		return out, code
	})
	if code != 1 {
		t.Errorf("exit %d: %+v", code, findings)
	}
	told := ""
	for _, f := range findings {
		if f.Status == "FAIL" {
			told += f.Message + f.Advice + "\n"
			if f.Advice == "" {
				t.Errorf("no advice: %+v", f)
			}
		}
	}
	if !strings.Contains(told, "cgroup") {
		t.Errorf("%s", told)
	}
	if statusOf(findings, "network access") != "" {
		t.Errorf("where there is no sandbox, a network was tried: %+v", findings)
	}
}
