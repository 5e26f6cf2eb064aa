package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/attack"
	"github.com/rockpool/rockpool/local/sandbox/sandboxtest"
	"github.com/rockpool/rockpool/runtime"
)

// attackedBed runs a server of its own, whose programs are these, while use
// runs; nil are those that were built in.
func attackedBed(t *testing.T, name string, programs *programs, use func(ctx context.Context, server *Server)) {
	t.Helper()
	config := Config{Listen: "127.0.0.1:0", Data: dataDir(t), MaxBody: 32 << 20, CPUOvercommit: 250, MemoryOvercommit: 8, KeepEvaluations: 300, KeepAllocations: 300, AlertThreshold: 0.5, AlertTimeout: 1, CgroupParent: e2eCgroups + "-" + name, LogLevel: "warn", LogFormat: "console"}
	if err := config.Check(); err != nil {
		t.Fatal(err)
	}
	server := NewServer(config, zap.NewNop())
	server.programs = programs
	if err := server.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left := leftovers(config.Data, config.CgroupParent); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}()
	<-server.Engine.Restored()
	use(t.Context(), server)
}

// TestE2EAttacks has the doctor carry out the whole corpus, and a server tell of
// it.
func TestE2EAttacks(t *testing.T) {
	data, group := dataDir(t), e2eCgroups+"-attacks"
	t.Setenv("ROCKPOOL_CGROUP_PARENT", group)
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := execute([]string{"doctor", "--attack", "--json", "--data", data}, nil, &out, &errs)
	var report attack.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, out.String(), errs.String())
	}
	for _, r := range report.Results {
		if !r.Held {
			t.Errorf("%s %q (%s): %s%s\n%s", r.Class, r.Name, r.Defence, r.Why, r.Skipped, r.Seen)
		}
	}
	if code != 0 || errs.Len() > 0 || !report.OK() || report.Tried != len(attack.Corpus()) || report.Skipped != 0 {
		t.Errorf("exit %d: %d of %d held, %d weren't tried: %s", code, report.Held, report.Tried, report.Skipped, errs.String())
	}
	if left := leftovers(data, group); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	t.Logf("%d of %d held in %.1f s", report.Held, report.Tried, report.Seconds)

	p := serveBinary(t, data)
	told := toldAttacks(t, p.bed)
	if told.Status != "OK" || told.Attacks == nil || told.Attacks.Tried != report.Tried || told.Attacks.Held != report.Held || len(told.Attacks.Failed) > 0 ||
		!told.Attacks.At.Equal(report.At) || told.Attacks.Isolation != "NAMESPACES" || !strings.Contains(told.part("attacks"), "OK all") {
		t.Errorf("health is %+v", told)
	}
	report.Held--
	report.Results[0].Held = false
	if err := keepReport(data, report); err != nil {
		t.Fatal(err)
	}
	told = toldAttacks(t, p.bed)
	if told.Status != "DEGRADED" || len(told.Attacks.Failed) != 1 || !strings.Contains(told.part("attacks"), report.Results[0].Name) {
		t.Errorf("after one wasn't held off, health is %+v", told)
	}
	if err := os.WriteFile(filepath.Join(data, reportFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if told = toldAttacks(t, p.bed); told.Attacks != nil || !strings.Contains(told.part("attacks"), "DEGRADED") {
		t.Errorf("with half a report, health is %+v", told)
	}
	p.end(t, syscall.SIGTERM, false)
}

// A toldHealth is what a server tells of its attacks.
type toldHealth struct {
	Status     string
	Components []struct{ Name, Status, Message string }
	Attacks    *struct {
		At          time.Time
		Isolation   string
		Tried, Held int
		Failed      []string
	}
}

func (h toldHealth) part(name string) string {
	for _, c := range h.Components {
		if c.Name == name {
			return c.Status + " " + c.Message
		}
	}
	return ""
}

func toldAttacks(t *testing.T, b bed) toldHealth {
	t.Helper()
	var out struct{ Health toldHealth }
	b.call(t, `{ health { status components { name status message } attacks { at version isolation tried held failed } } }`, nil, &out)
	return out.Health
}

// TestE2EAttacksSucceedWithoutTheirDefence takes each defence away once, and
// sees an attack succeed that it held off. None of them harms the machine:
// where a limit is taken away, it is by a higher one, and what is then taken has
// an end of its own, inside the limits of all runners.
func TestE2EAttacksSucceedWithoutTheirDefence(t *testing.T) {
	type limits = map[string]any
	for _, test := range []struct {
		defence   attack.Defence
		without   string // as sandboxtest.Without calls it; "": it is a limit
		row       string
		limits    limits
		unlimited bool
	}{
		{defence: attack.Filter, without: "filter", row: "call keyctl"},
		{defence: attack.Filter, without: "filter", row: "call unshare"},
		{defence: attack.Filter, without: "filter", row: "calls of 32-bit programs"},
		{defence: attack.Capabilities, without: "bounding", row: "what could be gained"},
		{defence: attack.NoPrivileges, without: "privileges", row: "a set-user-id program"},
		{defence: attack.OtherUser, without: "user", row: "killing the agent"},
		{defence: attack.HiddenAgent, without: "hidden", row: "the agent's files as root"},
		{defence: attack.Descriptors, without: "descriptors", row: "inherited descriptors"},
		{defence: attack.Marked, without: "mark", row: "leaving the session"},
		{defence: attack.OwnUsers, without: "users", row: "another runner's users"},
		{defence: attack.OwnNetwork, without: "network", row: "the machine's abstract sockets"},
		{defence: attack.OwnIPC, without: "ipc", row: "shared memory of another"},
		{defence: attack.OwnName, without: "name", row: "the machine's name"},
		{defence: attack.OwnGroups, without: "groups", row: "control groups"},
		{defence: attack.OwnClock, without: "clock", row: "the machine's age"},
		{defence: attack.OwnFiles, without: "files", row: "a path that goes up"},
		{defence: attack.Masked, without: "masked", row: "the kernel's secrets in /proc"},
		{defence: attack.Mounts, without: "mounts", row: "mounts that give power"},
		{defence: attack.Accounts, without: "accounts", row: "queued signals"},
		{defence: attack.MemoryLimit, row: "much memory", limits: limits{"memoryMiB": 300}},
		{defence: attack.ProcessLimit, row: "many processes", limits: limits{"processes": 400}},
		{defence: attack.CPULimit, row: "processor time", limits: limits{"cpuMHz": 20_000}},
		{defence: attack.Room, row: "a full workspace", limits: limits{"workspaceMiB": 64, "memoryMiB": 256}},
		{defence: attack.OutputLimit, row: "a flood of output", limits: limits{"outputLimit": 64 << 20}},
		{defence: attack.TimeLimit, row: "an endless program", unlimited: true},
		{defence: attack.FileLimits, row: "a large file", unlimited: true},
	} {
		t.Run(fmt.Sprintf("%s/%s", test.defence, test.row), func(t *testing.T) {
			rows := attack.Corpus()
			rows = rows[slices.IndexFunc(rows, func(a attack.Attack) bool { return a.Name == test.row }):][:1]
			if rows[0].Defence != test.defence {
				t.Errorf("%q is held off by %s", test.row, rows[0].Defence)
			}
			var with *programs
			if test.without != "" {
				with = new(programs)
				with.agent, with.helper = sandboxtest.Without(t, test.without)
			}
			attackedBed(t, "without", with, func(ctx context.Context, server *Server) {
				if test.defence == attack.OwnIPC {
					defer removeSegments(t)
				}
				place := attack.Place{Limits: test.limits, Unlimited: test.unlimited}
				if test.defence == attack.CPULimit {
					place.Bait.Share = "12" // as if a twentieth of a core had been promised: a busy machine has little to give
				}
				var last attack.Result
				succeeds := func() bool {
					report, err := attackServer(ctx, server.config, server.Client(), runtime.IsolationNamespaces, rows, place, func(r attack.Result) {
						last = r
						t.Logf("held %v: %s\n%s", r.Held, r.Why, r.Seen)
					})
					if err != nil {
						t.Fatal(err)
					}
					return !report.OK() && last.Judged && last.Seen != ""
				}
				if test.defence == attack.CPULimit {
					eventually(t, time.Minute, "more than its share", succeeds)
				} else if !succeeds() {
					t.Errorf("without %s %q still doesn't succeed: %+v", test.defence, test.row, last)
				}
			})
		})
	}
}

// removeSegments removes what runners left on the machine that had no shared
// memory of their own.
func removeSegments(t *testing.T) {
	t.Helper()
	for _, key := range attack.Segments {
		if id, err := unix.SysvShmGet(key, 0, 0); err == nil {
			if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCorpusIsWhole: what every row must have, and that each defence has a test
// that takes it away.
func TestCorpusIsWhole(t *testing.T) {
	rows := attack.Corpus()
	if len(rows) < 60 {
		t.Errorf("%d attacks", len(rows))
	}
	names := map[string]bool{}
	for _, row := range rows {
		if names[row.Name] || row.Name == "" || row.Tries == "" || row.Defence == "" || row.Held == "" || len(row.Steps) == 0 || !slices.Contains(attack.Classes(), row.Class) {
			t.Errorf("%q isn't whole, or there twice", row.Name)
		}
		names[row.Name] = true
	}
}
