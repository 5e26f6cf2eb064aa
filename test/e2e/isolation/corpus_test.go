package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doctor"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/doctor/attack/world"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// attackedBed runs a server with these programs while use runs. nil are the embedded programs.
func attackedBed(t *testing.T, name string, programs *server.Programs, permit []string, use func(ctx context.Context, srv *server.Server, around *world.World)) {
	t.Helper()
	settings := attackedConfig(t, name)
	around, err := doctor.OfferWorld(t.Context(), &settings)
	if err != nil {
		t.Fatal(err)
	}
	defer around.Close()
	settings.Networks.Permit = permit
	attackedServer(t, settings, programs, func(ctx context.Context, srv *server.Server) { use(ctx, srv, around) })
}

// attackedConfig returns the settings of a server whose runners may read from disks more slowly
// than any disk.
func attackedConfig(t *testing.T, name string) config.Config {
	c := bed.Settings(bed.DataDir(t), bed.Cgroups+"-"+name)
	c.Disk.Read = 4
	return c
}

// attackedServer runs a server with these settings while use runs.
func attackedServer(t *testing.T, settings config.Config, programs *server.Programs, use func(ctx context.Context, srv *server.Server)) {
	t.Helper()
	if err := settings.Check(); err != nil {
		t.Fatal(err)
	}
	log := new(bed.KeptLog)
	bed.Explain(t, log)
	srv := server.New(settings, log.Logger())
	srv.Programs = programs
	if err := srv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left := bed.Leftovers(settings.Data, settings.CgroupParent); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}()
	<-srv.Engine.Restored()
	use(t.Context(), srv)
}

// attackedByDoctor makes the doctor run all attacks for a tier. All defences must hold. It returns
// the report and the data directory that has it.
func attackedByDoctor(t *testing.T, tier runtime.Isolation) (report attack.Report, data string) {
	t.Helper()
	data, group := bed.DataDir(t), bed.Cgroups+"-attacks"
	t.Setenv("ROCKPOOL_CGROUP_PARENT", group)
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "doctor", "--attack", "--json", "--isolation", string(tier), "--data", data)
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Results) != len(attack.Corpus()) {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	others := 0
	for i, row := range attack.Corpus() {
		if !row.In(tier) {
			others++
		} else if r := report.Results[i]; !r.Held {
			t.Errorf("%s %q (%s): %s%s\n%s", r.Class, r.Name, r.Defence, r.Why, r.Skipped, r.Seen)
		}
	}
	if code != 0 || errs != "" || !report.OK() || report.Tried != len(attack.Corpus())-others || report.Skipped != others {
		t.Errorf("exit %d: %d of %d held, %d weren't tried: %s", code, report.Held, report.Tried, report.Skipped, errs)
	}
	if left := bed.Leftovers(data, group); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	t.Logf("%d of %d held in %.1f s", report.Held, report.Tried, report.Seconds)
	return report, data
}

// TestE2EAttacksWithGVisor runs the corpus in gVisor. Attacks that gVisor doesn't promise to stop
// are listed; all others must fail.
func TestE2EAttacksWithGVisor(t *testing.T) {
	need.Sandboxes(t)
	need.Machine(t)
	t.Setenv("ROCKPOOL_GVISOR_RUNTIME", sandboxtest.GVisor(t))
	attackedByDoctor(t, runtime.IsolationGVisor)
}

// TestE2EAttacks runs the whole corpus through the doctor, and checks what a server reports of it.
func TestE2EAttacks(t *testing.T) {
	need.Attacks(t)
	need.Machine(t)
	report, data := attackedByDoctor(t, runtime.IsolationNamespaces)
	if report.Skipped > 0 {
		t.Errorf("%d attacks are for no tier that everybody has", report.Skipped)
	}

	p := bed.ServeBinary(t, data)
	told := toldAttacks(t, p.Bed)
	if told.Status != "OK" || told.Attacks == nil || told.Attacks.Tried != report.Tried || told.Attacks.Held != report.Held || len(told.Attacks.Failed) > 0 ||
		!told.Attacks.At.Equal(report.At) || told.Attacks.Isolation != "NAMESPACES" || !strings.Contains(told.part("attacks"), "OK all") {
		t.Errorf("health is %+v", told)
	}
	clean := report
	clean.Tier, clean.At = runtime.IsolationGVisor, report.At.Add(time.Hour)
	report.Held--
	report.Results[0].Held = false
	for _, r := range []attack.Report{report, clean} {
		if err := doctor.Record(r).Store(data); err != nil {
			t.Fatal(err)
		}
		told = toldAttacks(t, p.Bed)
		if told.Status != "DEGRADED" || told.Attacks.Isolation != "NAMESPACES" || len(told.Attacks.Failed) != 1 || !strings.Contains(told.part("attacks"), report.Results[0].Name) {
			t.Errorf("after one wasn't held off, and a report of %s, health is %+v", r.Tier, told)
		}
	}
	if err := os.WriteFile(filepath.Join(data, "attacks-namespaces.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if told = toldAttacks(t, p.Bed); told.Attacks != nil || !strings.Contains(told.part("attacks"), "DEGRADED") {
		t.Errorf("with half a report, health is %+v", told)
	}
	p.End(t, syscall.SIGTERM, false)
}

// A reportedHealth is what a server reports of its attacks.
type reportedHealth struct {
	Status     string
	Components []struct{ Name, Status, Message string }
	Attacks    *struct {
		At          time.Time
		Isolation   string
		Tried, Held int
		Failed      []string
	}
}

func (h reportedHealth) part(name string) string {
	for _, c := range h.Components {
		if c.Name == name {
			return c.Status + " " + c.Message
		}
	}
	return ""
}

func toldAttacks(t *testing.T, b bed.Bed) reportedHealth {
	t.Helper()
	var out struct{ Health reportedHealth }
	b.Call(t, `{ health { status components { name status message } attacks { at version isolation tried held failed } } }`, nil, &out)
	return out.Health
}

// TestE2EAccountsAreBounded runs the attacks on the machine's shared accounts, except those of
// networks. The phase vm repeats them on cgroup v2.
func TestE2EAccountsAreBounded(t *testing.T) {
	need.Sandboxes(t)
	need.Machine(t)
	rows := slices.DeleteFunc(attack.Corpus(), func(a attack.Attack) bool { return a.Class != attack.Accounts || a.Reach != attack.Offline })
	attackedServer(t, attackedConfig(t, "accounts"), nil, func(ctx context.Context, srv *server.Server) {
		report, err := doctor.AttackServer(ctx, srv.Config(), srv.Client(), nil, runtime.IsolationNamespaces, rows, attack.Target{}, func(r attack.Result) {
			if r.Skipped != "" {
				need.Lacks(t, "%q isn't tried: %s", r.Name, r.Skipped)
			}
			if !r.Held {
				t.Errorf("%q (%s): %s; it saw %q", r.Name, r.Defence, r.Why, r.Seen)
			}
		})
		if err != nil || report.Tried != len(rows) {
			t.Errorf("%d of %d were tried: %v", report.Tried, len(rows), err)
		}
	})
}

// A removedDefence is a defence that a test removes, and an attack that then succeeds.
type removedDefence struct {
	defence   string
	without   string // the name in sandboxtest.Without; "" means it is a limit
	row       string
	seen      string // a regular expression for the evidence, in why it didn't hold or in what was seen
	limits    map[string]any
	unlimited bool
	networks  map[string]any // of the environment, with a wider network
	permit    []string       // the operator's
}

func removedDefences() []removedDefence {
	type limits = map[string]any
	return []removedDefence{
		{defence: byFilter, without: "filter", row: "call keyctl", seen: `^keyctl done$`},
		{defence: byFilter, without: "filter", row: "call clone-user", seen: `^clone-user done$`},
		{defence: byFilter, without: "filter", row: "calls of 32-bit programs", seen: `^int80 done$`},
		{defence: byCapabilities, without: "bounding", row: "capabilities of a program", seen: `^CapBnd:.0*[1-9a-f]`},
		{defence: byNoPrivileges, without: "privileges", row: "a set-user-id program", seen: `^0$`},
		{defence: byOtherUser, without: "user", row: "killing the agent", seen: `^kill-agent done$`},
		{defence: byHiddenAgent, without: "hidden", row: "the agent's files as root", seen: `^got (environ|mem|maps)$`},
		{defence: byDescriptors, without: "descriptors", row: "inherited descriptors", seen: `^inherited [1-9]`},
		{defence: byMarked, without: "mark", row: "leaving the session", seen: `^left [1-9]`},
		{defence: byOwnUsers, without: "users", row: "uids of another runner", seen: `the same was seen twice`},
		{defence: byOwnNetwork, without: "network", row: "the machine's abstract sockets", seen: `^unix \S+ done$`},
		{defence: byOwnIPC, without: "ipc", row: "shared memory of another runner", seen: `^segment done\n=> EXITED 0\nsegment done$`},
		{defence: byOwnName, without: "name", row: "the machine's name", seen: `^it succeeded$`},
		{defence: byOwnGroups, without: "groups", row: "control groups", seen: `^sees `},
		{defence: byOwnClock, without: "clock", row: "the machine's uptime", seen: `^the machine is old`},
		{defence: byOwnFiles, without: "files", row: "a path with ..", seen: `^a secret of the machine was seen$`},
		{defence: byMasked, without: "masked", row: "the kernel's secrets in /proc", seen: `^got `},
		{defence: byMounts, without: "mounts", row: "unsafe mounts", seen: `^power `},
		{defence: byUserLimits, without: "accounts", row: "queued signals", seen: `^queued 5000 done$`},
		{defence: byFilter, without: "filter", row: "call filter-packets", seen: `^filter-packets done$`},
		{defence: byFilter, without: "filter", row: "call io_setup", seen: `^io_setup done$`},
		{defence: byFilter, without: "filter", row: "core dumps", seen: `^cores done 0 0$`},
		{defence: byFilter, without: "filter", row: "the page cache", seen: `^forgotten`},
		{defence: byOpenFiles, without: "openfiles", row: "open files of many processes", seen: `^opened (1[7-9]|[2-9]\d)\d{3} `},
		{defence: byTerminals, without: "terminals", row: "terminals", seen: `^took 64 done$`},
		{defence: byWatchers, without: "inotify", row: "watchers of files", seen: `^took 64 done$`},
		{defence: byNetlink, without: "netlink", row: "netlink sockets", seen: `^took 64 done$`},
		{defence: byUncounted, without: "uncounted", row: "memory of locks", seen: `^made 400000 held\n=> TIME_LIMIT`},
		{defence: byUncounted, without: "uncounted", row: "memory of connections", seen: `^made 12000 held\n=> TIME_LIMIT`},
		{defence: byUncounted, without: "uncounted", row: "memory of small segments", seen: `^holds [3-9]\d MiB\n=> TIME_LIMIT`},
		{defence: byBuffers, without: "buffers", row: "buffers of tcp", seen: `^holds 9\d MiB\n=> TIME_LIMIT`, limits: limits{"memoryMiB": 400}},
		{defence: byBuffers, without: "buffers", row: "buffers of udp", seen: `^holds 9\d MiB\n=> TIME_LIMIT`, limits: limits{"memoryMiB": 400}},
		{defence: byEnded, without: "segments", row: "semaphores of the previous execution", seen: `^semaphore done\n=> EXITED 0\nsemaphore done$`},
		{defence: byZygoteUser, without: "zygote", row: "the loaded interpreter", seen: `^signalled 9$`},
		{defence: byChecked, without: "checked", row: "privileges of a warm program", seen: `^CapEff:.0*[1-9a-f]`},
		{defence: byDescriptors, without: "descriptors", row: "descriptors of the loaded interpreter", seen: `^inherited \['`},
		{defence: byFallback, without: "fallback", row: "a killed interpreter", seen: `^=> it doesn't end$`},
		{defence: byForked, without: "forked", row: "random numbers of the previous execution", seen: `the same was seen twice`},
		{defence: byDiskReads, without: "disks", row: "a flood of reads", seen: `beyond its share`},
		{defence: byMemoryLimit, row: "much memory", seen: `^took 192 MiB`, limits: limits{"memoryMiB": 300}},
		{defence: byProcessLimit, row: "many processes", seen: `^made 200 processes`, limits: limits{"processes": 400}},
		{defence: byCPULimit, row: "CPU time", seen: `beyond its share`, limits: limits{"cpuMHz": 20_000}},
		{defence: byRoom, row: "a full workspace", seen: `^wrote 48 MiB done$`, limits: limits{"workspaceMiB": 64, "memoryMiB": 256}},
		{defence: byOutputLimit, row: "a flood of output", seen: "^=> EXITED 0\nlives$", limits: limits{"outputLimit": 64 << 20}},
		{defence: byTimeLimit, row: "an endless program", seen: `^=> it doesn't end$`, unlimited: true},
		{defence: byFileLimits, row: "a large file", seen: `^wrote 4 MiB done$`, unlimited: true},
		{defence: byDenied, without: "denied", row: "private networks, online", seen: `^tcp 192.168.77.2:7777 answered$`},
		{defence: byMachine, without: "machine", row: "the machine's addresses", seen: `^tcp 20.0.0.1:7777 answered$`},
		{defence: byMachine, without: "machine", row: "another runner's exposed port", seen: `^open [1-9]`},
		{defence: byRunners, without: "runners", row: "another runner, online", seen: `^tcp 10.213.\d+.\d+:7777 answered$`},
		{defence: byOwnAddress, without: "source", row: "spoofed addresses", seen: `^=> it came$`},
		{defence: byProtocols, without: "protocols", row: "another protocol", seen: `^=> it came$`},
		{defence: byAnswers, without: "answers", row: "connections from an exposed port", seen: `^tcp \S+ answered$`},
		{defence: byNoNeighbours, without: "neighbours", row: "the neighbour table", seen: `^knows \d\d+ done`},
		{defence: byConnections, without: "connections", row: "many connections", seen: `^followed all`},
		{defence: byBandwidth, row: "a flood of packets", seen: `^(drain|flood) fast`, networks: limits{"bandwidthMbit": 100}},
		{defence: byNarrowed, row: "addresses that aren't allowed", seen: `^tcp 20.0.0.3:7777 answered$`, networks: limits{"allow": []string{"20.0.0.0/8"}}},
		{defence: byRebinding, row: "names that resolve to denied addresses", seen: `^tcp lan.example:7777 answered$`, permit: []string{"192.168.77.0/24"}},
	}
}

// TestE2EAttacksSucceedWithoutTheirDefence removes each defence once and checks that an attack that
// it stopped succeeds. None of them endangers the machine: instead of removing a limit, the test
// raises it. The attack's use of resources is then bounded in itself, and by the limits of all
// runners.
func TestE2EAttacksSucceedWithoutTheirDefence(t *testing.T) {
	need.Attacks(t)
	if !networktest.Alone(t) {
		return
	}
	need.Machine(t)
	for _, test := range removedDefences() {
		t.Run(fmt.Sprintf("%s/%s", test.defence, test.row), func(t *testing.T) {
			rows := attack.Corpus()
			rows = rows[slices.IndexFunc(rows, func(a attack.Attack) bool { return a.Name == test.row }):][:1]
			if rows[0].Defence != test.defence {
				t.Errorf("%q is held off by %s, want %s", test.row, rows[0].Defence, test.defence)
			}
			var with *server.Programs
			if test.without != "" {
				with = new(server.Programs)
				with.Agent, with.Helper = sandboxtest.Without(t, test.without)
			}
			attackedBed(t, "without", with, test.permit, func(ctx context.Context, srv *server.Server, around *world.World) {
				if test.defence == byOwnIPC {
					defer removeSegments(t)
				}
				target := attack.Target{Limits: test.limits, Unlimited: test.unlimited, Networks: test.networks}
				if test.defence == byCPULimit {
					target.Bait.Share = "12" // as if a twentieth of a core had been promised: a busy machine has little to give
				}
				var last attack.Result
				succeeded := regexp.MustCompile("(?m)" + test.seen)
				succeeds := func() bool {
					report, err := doctor.AttackServer(ctx, srv.Config(), srv.Client(), around, runtime.IsolationNamespaces, rows, target, func(r attack.Result) {
						last = r
						t.Logf("held %v: %s\n%s", r.Held, r.Why, r.Seen)
					})
					if err != nil {
						t.Fatal(err)
					}
					return !report.OK() && last.Judged && succeeded.MatchString(last.Why+"\n"+last.Seen)
				}
				switch {
				case test.defence == byCPULimit, test.defence == byBandwidth: // a busy machine has little to give
					wait.For(t, "more than its share", succeeds)
				case test.row == "the page cache": // the kernel keeps pages that it uses itself, sometimes for seconds
					wait.For(t, "a file that nothing else uses", succeeds)
				case succeeds():
				case test.row == "calls of 32-bit programs" && last.Held && !offers32BitCalls(t):
					t.Log("this kernel offers no 32-bit calls, to any program")
				default:
					t.Errorf("without %s %q still doesn't succeed: %+v", test.defence, test.row, last)
				}
			})
		})
	}
}

// offers32BitCalls makes such a call outside of any runner, in a user namespace: with the machine's
// own rights the prober refuses to run.
func offers32BitCalls(t *testing.T) bool {
	t.Helper()
	program, err := attack.Prober()
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "prober")
	if err := os.WriteFile(at, program, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(at, "call", "int80")
	self := []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: self, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}
	said, err := cmd.CombinedOutput()
	t.Logf("outside of runners: %v, %.200s", err, said)
	return err == nil
}

// TestE2EAttacksNeedTheFilter removes the filter of system calls. Without it the kernel must answer
// all calls of this class differently, except those that kernel and filter refuse alike.
func TestE2EAttacksNeedTheFilter(t *testing.T) {
	need.Attacks(t)
	need.Machine(t)
	rows := slices.DeleteFunc(attack.Corpus(), func(a attack.Attack) bool {
		return a.Class != attack.Accounts || !strings.HasPrefix(a.Name, "call ")
	})
	with := new(server.Programs)
	with.Agent, with.Helper = sandboxtest.Without(t, "filter")
	alike := answeredAlike()
	attackedServer(t, attackedConfig(t, "calls"), with, func(ctx context.Context, srv *server.Server) {
		_, err := doctor.AttackServer(ctx, srv.Config(), srv.Client(), nil, runtime.IsolationNamespaces, rows, attack.Target{}, func(r attack.Result) {
			switch name := strings.TrimPrefix(r.Name, "call "); {
			case !r.Judged && !r.Held:
				t.Errorf("%q: %s", r.Name, r.Why)
			case r.Held && alike[name]:
				t.Logf("this kernel answers %q as the filter does", r.Name)
			case r.Held:
				t.Errorf("without the filter %q is answered alike", r.Name)
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// answeredAlike returns the calls that some kernels answer as the filter does, and whether this
// kernel does.
func answeredAlike() map[string]bool {
	missing := func(family, kind, protocol int) bool {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err != nil
	}
	pages, _ := os.ReadFile("/proc/sys/vm/nr_hugepages")
	more, _ := os.ReadFile("/proc/sys/vm/nr_overcommit_hugepages")
	_, err := unix.PrctlRetInt(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, 0, 0, 0)
	return map[string]bool{
		"huge-memory":     string(pages)+string(more) == "0\n0\n",
		"core-scheduling": err == unix.EINVAL,
		"mptcp":           missing(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
		"udplite":         missing(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE),
		"sctp":            missing(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
		"dccp":            missing(unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP),
		// The filter gives the kernel's own answer, before the kernel runs modprobe.
		"stream-udp": true, "datagram-tcp": true, "icmp-of-other": true,
	}
}

// removeSegments removes shared memory that runners without an IPC namespace left on the machine.
func removeSegments(t *testing.T) {
	t.Helper()
	for _, key := range []int{77007, 77008} {
		if id, err := unix.SysvShmGet(key, 0, 0); err == nil {
			if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCorpusIsWhole checks each row's fields. A test removes each defence, or the row says why that
// is impossible.
func TestCorpusIsWhole(t *testing.T) {
	taken := map[string]string{
		byInputs: "the server can't be without them: the tests of graph and runtime/engine send what they refuse",
		byLayers: "os.Root can't be without: the tests of local/image unpack hostile layers",
		byFrames: "agent/frame_test.go and runtime/engine/hostile_test.go send larger ones",
	}
	for _, test := range removedDefences() {
		taken[test.defence] = test.row
	}
	rows := attack.Corpus()
	if len(rows) < 60 {
		t.Errorf("%d attacks", len(rows))
	}
	names := map[string]bool{}
	for _, row := range rows {
		if names[row.Name] || row.Name == "" || row.Tries == "" || row.Held == "" || len(row.Steps) == 0 || !slices.Contains(attack.Classes(), row.Class) {
			t.Errorf("%q isn't whole, or there twice", row.Name)
		}
		if taken[row.Defence] == "" {
			t.Errorf("%q is held off by %q, which no test takes away", row.Name, row.Defence)
		}
		names[row.Name] = true
	}
}

// TestE2EAttacksByInterpretersAreDetected: the agent doesn't trust an interpreter whose children
// keep its capabilities. It detects them, and starts their commands by exec.
func TestE2EAttacksByInterpretersAreDetected(t *testing.T) {
	need.Attacks(t)
	need.Machine(t)
	rows := slices.DeleteFunc(attack.Corpus(), func(a attack.Attack) bool { return a.Defence != byChecked })
	with := new(server.Programs)
	with.Agent, with.Helper = sandboxtest.Without(t, "obedience")
	attackedServer(t, attackedConfig(t, "checked"), with, func(ctx context.Context, srv *server.Server) {
		_, err := doctor.AttackServer(ctx, srv.Config(), srv.Client(), nil, runtime.IsolationNamespaces, rows, attack.Target{}, func(r attack.Result) {
			if !regexp.MustCompile("^warm False\nUid:.1000.1000.1000.1000\n").MatchString(r.Seen) || !regexp.MustCompile("\nCapEff:.0{16}\n").MatchString(r.Seen) || strings.Contains(r.Seen, "became") {
				t.Errorf("%q: %+v", r.Name, r)
			}
		})
		if err != nil || len(rows) == 0 {
			t.Errorf("%d rows: %v", len(rows), err)
		}
	})
}
