package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/test/executable"
)

func TestDoctorJudgesWhatASandboxShows(t *testing.T) {
	tight := func() map[string][]string {
		facts := map[string][]string{
			"uid": {"1000"}, "CapEff": {"0000000000000000"}, "CapBnd": {"0000000000000000"}, "NoNewPrivs": {"1"}, "Seccomp": {"2"},
			"map": {"0 1000065536 65536"}, "interface": {"lo"}, "workspace": {"writable"}, "processes": {"2"},
		}
		for _, kind := range namespaces {
			facts["ns-"+kind] = []string{kind + ":[2]"}
		}
		return facts
	}
	host := map[string]string{}
	for _, kind := range namespaces {
		host[kind] = kind + ":[1]"
	}
	for _, f := range judgeInside(tight(), host) {
		if f.Status != verdictOK {
			t.Errorf("%+v", f)
		}
	}
	for _, test := range []struct {
		name  string
		spoil map[string][]string
	}{
		{"namespaces", map[string][]string{"ns-net": {"net:[1]"}}},
		{"namespaces", map[string][]string{"ns-user": nil}},
		{"users", map[string][]string{"uid": {"0"}}},
		{"users", map[string][]string{"map": {"0 0 4294967295"}}},
		{"users", map[string][]string{"map": {"0 1000065536 65536", "65536 1000 1"}}},
		{"users", map[string][]string{"map": nil}},
		{"privileges", map[string][]string{"CapEff": {"0000000000000001"}}},
		{"privileges", map[string][]string{"CapBnd": {"000001ffffffffff"}}},
		{"privileges", map[string][]string{"CapBnd": nil}},
		{"privileges", map[string][]string{"NoNewPrivs": {"0"}}},
		{"seccomp", map[string][]string{"Seccomp": {"0"}}},
		{"network", map[string][]string{"interface": {"lo", "eth0"}}},
		{"network", map[string][]string{"interface": nil}},
		{"files", map[string][]string{"usr": {"writable"}}},
		{"files", map[string][]string{"shadow": {"readable"}}},
		{"files", map[string][]string{"workspace": nil}},
		{"processes", map[string][]string{"processes": {"214"}}},
	} {
		facts := tight()
		for key, value := range test.spoil {
			facts[key] = value
		}
		for _, f := range judgeInside(facts, host) {
			if wrong := f.Status == verdictFail; wrong != (f.Name == test.name) || wrong && f.Advice == "" {
				t.Errorf("%v: %+v", test.spoil, f)
			}
		}
	}
}

func TestDoctorJudgesTheMachine(t *testing.T) {
	gone := errors.New("gone")
	for _, test := range []struct {
		name string
		got  finding
		want verdict
	}{
		{"kernel", judgeKernel("6.18.44-x"), verdictOK},
		{"first kernel", judgeKernel("5.6"), verdictOK},
		{"old kernel", judgeKernel("5.4.0-150-generic"), verdictFail},
		{"very old kernel", judgeKernel("4.19.0"), verdictFail},
		{"odd kernel", judgeKernel("x"), verdictFail},
		{"room", judgeRoom("/x", 10<<30), verdictOK},
		{"little room", judgeRoom("/x", 500<<20), verdictWarn},
		{"no room", judgeRoom("/x", 5<<20), verdictFail},
		{"limit", judgeLimit("memory", "memory.max", "67108864", 64<<20, 1, nil), verdictOK},
		{"quota with its period", judgeLimit("cpu", "cpu.max", "19260 100000", 1<<30, 1, nil), verdictOK},
		{"no limit", judgeLimit("memory", "memory.max", "max", 64<<20, 1, nil), verdictFail},
		{"no limit in version 1", judgeLimit("memory", "memory.limit_in_bytes", "9223372036854771712", 64<<20, 1, nil), verdictFail},
		{"no quota in version 1", judgeLimit("cpu", "cpu.cfs_quota_us", "-1", 1<<30, 1, nil), verdictFail},
		{"nobody in it", judgeLimit("memory", "memory.max", "67108864", 64<<20, 0, nil), verdictFail},
		{"unreadable", judgeLimit("memory", "memory.max", "", 64<<20, 1, gone), verdictFail},
	} {
		if test.got.Status != test.want || (test.got.Advice == "") != (test.want == verdictOK) {
			t.Errorf("%s: %+v", test.name, test.got)
		}
	}
	if found := disk("/proc/nonesuch/data"); found[0].Status != verdictFail {
		t.Errorf("a data directory without room: %+v", found)
	}
}

// report runs the doctor, who must leave nothing.
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

func statusOf(findings []finding, name string) verdict {
	i := slices.IndexFunc(findings, func(f finding) bool { return f.Name == name })
	if i < 0 {
		return ""
	}
	return findings[i].Status
}

func TestE2EDoctor(t *testing.T) {
	b := e2e(t)
	findings, code := report(t, func() (string, int) {
		var out, errs bytes.Buffer
		code := execute([]string{"doctor", "--json", "--server", b.url}, nil, &out, &errs)
		return out.String(), code
	})
	if code != 0 {
		t.Errorf("exit %d: %+v", code, findings)
	}
	for _, name := range []string{"open files", "data"} { // how much there is is the machine's own
		if got := statusOf(findings, name); got != verdictOK && got != verdictWarn {
			t.Errorf("%s is %q: %+v", name, got, findings)
		}
	}
	for _, name := range []string{"kernel", "server", "root", "kernel parts", "landlock", "packet filters", "network access", "gVisor", "sandbox", "namespaces", "users", "privileges", "seccomp", "network", "files", "images", "processes",
		"memory", "pids", "cpu", "memory limit", "process limit"} {
		if got := statusOf(findings, name); got != verdictOK {
			t.Errorf("%s is %q: %+v", name, got, findings)
		}
	}
	var out, errs bytes.Buffer
	if code := execute([]string{"doctor", "--server", "http://127.0.0.1:1"}, nil, &out, &errs); code != 0 || !strings.Contains(out.String(), "WARN  server") ||
		!strings.Contains(out.String(), "-> start one: rockpool serve") || !strings.HasSuffix(out.String(), "can isolate programs.\n") {
		t.Errorf("%d %s", code, out.String())
	}
}

// asNobody runs the program as a user who may do nothing.
func asNobody(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rockpool-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	own := filepath.Join(dir, "rockpool")
	executable.Copy(t, rockpool(t), own)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), own, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME=", "HOME="+dir) // so that its state is below that
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
	if code != 1 || statusOf(findings, "limits") != verdictFail || statusOf(findings, "without root") != verdictWarn || statusOf(findings, "users") != verdictWarn {
		t.Errorf("exit %d: %+v", code, findings)
	}
	for _, name := range []string{"kernel", "root", "kernel parts", "sandbox", "namespaces", "privileges", "seccomp", "network", "files", "images", "processes"} {
		if statusOf(findings, name) != verdictOK {
			t.Errorf("%s is %q: %+v", name, statusOf(findings, name), findings)
		}
	}
}

// TestE2EPrivateServerWithoutRoot: it works, and what is lost is said in one line.
func TestE2EPrivateServerWithoutRoot(t *testing.T) {
	privately(t)
	out, errs, code := asNobody(t, "run", "--env", "shell", "--", "sh", "-c", "echo ran; exit 7")
	if code != 7 || out != "ran\n" || strings.Count(errs, "without root") != 1 || !strings.Contains(errs, "rockpool: without root there is less: no limits of memory, processes, processor time") {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// TestE2EDoctorTriesANetwork: without the programs and namespaces that the try
// needs it says which.
func TestE2EDoctorTriesANetwork(t *testing.T) {
	for _, test := range []struct{ path, in, says string }{
		{"/nonesuch", "--net", "install iproute2"},
		{os.Getenv("PATH"), "--ipc", "somebody's"}, // which it doesn't touch
	} {
		findings, code := report(t, func() (string, int) {
			out, _, code := runProgram(t, nil, "unshare", test.in, "env", "PATH="+test.path, rockpool(t), "doctor", "--apart", "--json")
			return out, code
		})
		if code != 0 || len(findings) != 1 || statusOf(findings, networkAccess) != verdictWarn || !strings.Contains(findings[0].Message, test.says) || findings[0].Advice == "" {
			t.Errorf("exit %d: %+v", code, findings)
		}
	}
	for seen, want := range map[string]verdict{
		"tcp a answered\ntcp b answered\ntcp c ECONNREFUSED\ntcp d EACCES\n": verdictOK,
		"tcp a answered\ntcp b answered\ntcp c answered\ntcp d EACCES\n":     verdictFail,
		"tcp a answered\ntcp b silence\ntcp c silence\ntcp d silence\n":      verdictWarn,
		"": verdictWarn,
	} {
		if got := judgeNetwork(seen, 2); got.Status != want {
			t.Errorf("%q: %+v", seen, got)
		}
	}
}

// TestE2EDoctorFindsWhatIsMissing takes something away that a sandbox needs.
func TestE2EDoctorFindsWhatIsMissing(t *testing.T) {
	findings, code := report(t, func() (string, int) {
		// In a mount namespace of its own, without any cgroup file system.
		out, _, code := runProgram(t, nil, "unshare", "--mount", "--propagation", "private", "sh", "-c",
			`umount -l -R /sys/fs/cgroup 2>/dev/null; exec "$0" doctor --json`, rockpool(t))
		return out, code
	})
	if code != 1 {
		t.Errorf("exit %d: %+v", code, findings)
	}
	told := ""
	for _, f := range findings {
		if f.Status == verdictFail {
			told += f.Message + f.Advice + "\n"
			if f.Advice == "" {
				t.Errorf("no advice: %+v", f)
			}
		}
	}
	if !strings.Contains(told, "cgroup") {
		t.Errorf("%s", told)
	}
	if statusOf(findings, networkAccess) != "" {
		t.Errorf("where there is no sandbox, a network was tried: %+v", findings)
	}
}

// TestJudgeShared: what would let runners take what others need.
func TestJudgeShared(t *testing.T) {
	for options, want := range map[string]int{
		"quiet cgroup.memory=nokmem,nosocket": 1, "cgroup.memory=nosocket": 1, "cgroup.memory=swapaccount ro": 0, "": 0,
	} {
		if got := judgeBoot(options); len(got) != want {
			t.Errorf("%q: %+v", options, got)
		}
	}
	for _, test := range []struct {
		pattern string
		most    uint64
		want    verdict // "": nothing is said
	}{
		{"core", 0, ""},
		{"/var/crash/%e", 1 << 40, ""},
		{"|/usr/lib/systemd/systemd-coredump %P", 1 << 40, verdictOK},
		{"|/usr/lib/systemd/systemd-coredump %P", 0, verdictWarn}, // with 0 the kernel still pipes cores to it
		{"@/run/cores", 1 << 40, verdictWarn},
		{"|", 1, verdictOK},
	} {
		got := judgeCores(test.pattern, test.most)
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || got[0].Status != test.want) {
			t.Errorf("%q with %d: %+v", test.pattern, test.most, got)
		}
	}
	text, err := os.ReadFile("packaging/rockpool-sysctl.conf")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("its processes, and %d more.\n", spec.AgentRoomThreads+4); !strings.Contains(string(text), want) {
		t.Errorf("the file for sysctl doesn't say %q", want)
	}
	if !strings.Contains(string(text), "\nnet.core.high_order_alloc_disable = 1\n") {
		t.Error("the file for sysctl lets a byte hold 32 KiB")
	}
	for _, a := range accountsShared() {
		_, value, _ := strings.Cut(string(text), "\n"+a.setting+" = ")
		value, _, _ = strings.Cut(value, "\n")
		if has, err := strconv.ParseInt(value, 10, 64); err != nil || a.each <= 0 || (has-a.reserved)/a.each < fewRunners {
			t.Errorf("%s: a runner takes %d, and the file for sysctl has %q", a.setting, a.each, value)
		}
	}
}
