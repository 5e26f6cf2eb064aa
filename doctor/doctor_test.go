package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime/health"
)

func TestDoctorJudgesASandbox(t *testing.T) {
	tight := func() map[string][]string {
		facts := map[string][]string{
			"uid": {"1000"}, "CapEff": {"0000000000000000"}, "CapBnd": {"0000000000000000"}, "NoNewPrivs": {"1"}, "Seccomp": {"2"},
			"map": {"0 1000065536 65536"}, "interface": {"lo"}, "workspace": {"writable"}, "processes": {"2"},
		}
		for _, kind := range ownNamespaces {
			facts["ns-"+kind] = []string{kind + ":[2]"}
		}
		return facts
	}
	host := map[string]string{}
	for _, kind := range ownNamespaces {
		host[kind] = kind + ":[1]"
	}
	for _, f := range judgeInside(tight(), host) {
		if f.Status != health.OK {
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
			if wrong := f.Status == health.Fail; wrong != (f.Name == test.name) || wrong && f.Advice == "" {
				t.Errorf("%v: %+v", test.spoil, f)
			}
		}
	}
}

func TestDoctorJudgesTheMachine(t *testing.T) {
	gone := errors.New("gone")
	for _, test := range []struct {
		name string
		got  health.Finding
		want health.Status
	}{
		{"kernel", judgeKernel("6.18.44-x"), health.OK},
		{"first kernel", judgeKernel("5.6"), health.OK},
		{"old kernel", judgeKernel("5.4.0-150-generic"), health.Fail},
		{"very old kernel", judgeKernel("4.19.0"), health.Fail},
		{"odd kernel", judgeKernel("x"), health.Fail},
		{"room", judgeRoom("/x", 10<<30), health.OK},
		{"little room", judgeRoom("/x", 500<<20), health.Warn},
		{"no room", judgeRoom("/x", 5<<20), health.Fail},
		{"limit", judgeLimit("memory", "memory.max", "67108864", 64<<20, 1, nil), health.OK},
		{"quota with its period", judgeLimit("cpu", "cpu.max", "19260 100000", 1<<30, 1, nil), health.OK},
		{"no limit", judgeLimit("memory", "memory.max", "max", 64<<20, 1, nil), health.Fail},
		{"no limit in version 1", judgeLimit("memory", "memory.limit_in_bytes", "9223372036854771712", 64<<20, 1, nil), health.Fail},
		{"no quota in version 1", judgeLimit("cpu", "cpu.cfs_quota_us", "-1", 1<<30, 1, nil), health.Fail},
		{"nobody in it", judgeLimit("memory", "memory.max", "67108864", 64<<20, 0, nil), health.Fail},
		{"unreadable", judgeLimit("memory", "memory.max", "", 64<<20, 1, gone), health.Fail},
	} {
		if test.got.Status != test.want || (test.got.Advice == "") != (test.want == health.OK) {
			t.Errorf("%s: %+v", test.name, test.got)
		}
	}
	if found := disk("/proc/nonesuch/data"); found[0].Status != health.Fail {
		t.Errorf("a data directory without room: %+v", found)
	}
}

// TestJudgeShared checks the findings about resources that all runners share.
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
		want    health.Status // "" means no finding
	}{
		{"core", 0, ""},
		{"/var/crash/%e", 1 << 40, ""},
		{"|/usr/lib/systemd/systemd-coredump %P", 1 << 40, health.OK},
		{"|/usr/lib/systemd/systemd-coredump %P", 0, health.Warn}, // with 0 the kernel still pipes cores to it
		{"@/run/cores", 1 << 40, health.Warn},
		{"|", 1, health.OK},
	} {
		got := judgeCores(test.pattern, test.most)
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || got[0].Status != test.want) {
			t.Errorf("%q with %d: %+v", test.pattern, test.most, got)
		}
	}
	text, err := os.ReadFile("../packaging/rockpool-sysctl.conf")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("its process limit plus %d.\n", spec.AgentRoomThreads+4); !strings.Contains(string(text), want) {
		t.Errorf("the sysctl file lacks %q", want)
	}
	if !strings.Contains(string(text), "\nnet.core.high_order_alloc_disable = 1\n") {
		t.Error("the sysctl file lets a byte hold 32 KiB")
	}
	for _, a := range accountsShared() {
		_, value, _ := strings.Cut(string(text), "\n"+a.setting+" = ")
		value, _, _ = strings.Cut(value, "\n")
		if has, err := strconv.ParseInt(value, 10, 64); err != nil || a.each <= 0 || (has-a.reserved)/a.each < fewRunners {
			t.Errorf("%s: a runner can take %d, but the sysctl file has %q", a.setting, a.each, value)
		}
	}
}

func TestDoctorJudgesANetwork(t *testing.T) {
	for seen, want := range map[string]health.Status{
		"tcp a answered\ntcp b answered\ntcp c ECONNREFUSED\ntcp d EACCES\n": health.OK,
		"tcp a answered\ntcp b answered\ntcp c answered\ntcp d EACCES\n":     health.Fail,
		"tcp a answered\ntcp b silence\ntcp c silence\ntcp d silence\n":      health.Warn,
		"": health.Warn,
	} {
		if got := judgeNetwork(seen, 2); got.Status != want {
			t.Errorf("%q: %+v", seen, got)
		}
	}
}

func TestDoctorChecksTheServerOfItsSettings(t *testing.T) {
	t.Setenv("ROCKPOOL_SERVER", "")
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "cluster: nomad\nnomad-address: http://127.0.0.1:1\nadvertise-url: http://rockpool.example.org\n"
	for _, test := range []struct{ listen, server, says string }{
		{"127.0.0.1:2", "", "no server listens at http://127.0.0.1:2"},
		{"127.0.0.1:2", "http://127.0.0.1:3", "no server listens at http://127.0.0.1:3"},
		{"127.0.0.1:0", "", "port"},
	} {
		if err := os.WriteFile(path, []byte(text+"listen: "+test.listen+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := (&Command{Config: path, Server: test.server}).Run(command.Streams{Out: &out})
		if code := command.ExitError(1); !errors.Is(err, code) || !strings.Contains(out.String(), "WARN  server") || !strings.Contains(out.String(), test.says) {
			t.Errorf("%+v: %v\n%s", test, err, out.String())
		}
	}
}

func TestUnstoredReportsNameTheFlag(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "data")
	err := Record(attack.Report{}).Store(missing)
	if says := notKept(missing, err); err == nil || !strings.Contains(says, "give the one of your server with --data (or ROCKPOOL_DATA)") {
		t.Error(says, err)
	}
}
