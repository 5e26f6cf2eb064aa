package main

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/wait"
)

// seen is a runner as the API shows it.
type seen struct {
	ID, EnvironmentID, State, GoneReason string
	Claim                                *struct {
		ClaimedAt, ExpiresAt time.Time
		Epoch                int
	}
}

func (b bed) runnersOf(t testing.TB, environment string) map[string]seen {
	t.Helper()
	var out struct {
		Runners struct{ Edges []struct{ Node seen } }
	}
	b.call(t, `query($id: ID) { runners(environmentId: $id, first: 1000) { edges { node { id environmentId state goneReason claim { claimedAt expiresAt epoch } } } } }`,
		object{"id": environment}, &out)
	all := map[string]seen{}
	for _, e := range out.Runners.Edges {
		all[e.Node.ID] = e.Node
	}
	return all
}

// full waits until an environment has just its idle runners, beside claimed ones.
func (b bed) full(t testing.TB, environment string, idle int) map[string]seen {
	t.Helper()
	var all map[string]seen
	wait.For(t, fmt.Sprintf("%s has %d idle runners", environment, idle), func() bool {
		all = b.runnersOf(t, environment)
		n := 0
		for _, r := range all {
			switch r.State {
			case "IDLE":
				n++
			case "CLAIMED":
			default:
				return false
			}
		}
		return n == idle
	})
	return all
}

// wantOnly fails the test unless the machine has what these runners are, and
// nothing else: what is removed may take a moment.
func (p *process) wantOnly(t testing.TB, runners map[string]seen) {
	t.Helper()
	var wrong []string
	defer func() {
		if len(wrong) > 0 {
			t.Logf("wrong: %q", wrong)
		}
	}()
	wait.For(t, "only what is listed is there", func() bool {
		wrong = nil
		directories := map[string]bool{}
		for _, left := range leftovers(p.data, p.cgroups) {
			kind, path, _ := strings.Cut(left, " ")
			if id := filepath.Base(path); kind == "directory" || kind == "cgroup" {
				if _, known := runners[id]; !known {
					wrong = append(wrong, left)
				}
				directories[id] = directories[id] || kind == "directory"
			}
		}
		slots := 0
		links, _ := filepath.Glob("/run/rockpool/uids/*")
		for _, link := range links {
			if holder, err := os.Readlink(link); err == nil && strings.HasPrefix(holder, p.data+"/") {
				slots++
			}
		}
		for id := range runners {
			if !directories[id] {
				wrong = append(wrong, "no directory of "+id)
			}
		}
		if slots != len(runners) {
			wrong = append(wrong, fmt.Sprintf("%d ranges of user ids for %d runners", slots, len(runners)))
		}
		return len(wrong) == 0
	})
}

// TestE2EKilledServersRunnersLiveOn kills the server many times, while runners are
// made and removed, and every third time the next one too, while it takes over.
func TestE2EKilledServersRunnersLiveOn(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serveBinary(t, data)
	runner := p.claimLoosely(t, "shell")
	if got := p.shell(t, runner, "echo kept > file; cat file"); got.stream("STDOUT") != "kept\n" {
		t.Fatalf("%+v", got)
	}
	before := p.full(t, "shell", 2)
	hit := map[runtime.RunnerState]int{} // runners by their state at a kill
	for i := range thorough(12, 24) {
		size := 1 + i%6
		if i%4 == 0 {
			size = 16 // they start two at a time or so: most are starting at the kill
		}
		p.call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
			object{"in": object{"id": "churn", "poolSize": size, "resources": object{"memoryMiB": 64}}}, nil)
		if i%4 == 0 {
			wait.For(t, "half of them start, or have started", func() bool {
				states := map[string]int{}
				for _, r := range p.runnersOf(t, "churn") {
					states[r.State]++
				}
				return states["STARTING"] >= size/2 || states["IDLE"] > size/2
			})
		} else {
			atSomeMoment(120 * time.Millisecond)
		}
		p.end(t, syscall.SIGKILL, false)
		recorded(t, data, func(r runtime.Runner) { hit[r.State]++ })
		if i%3 == 2 {
			killWhileItStarts(t, data, p.cgroups)
		}
		p = serveBinary(t, data)
		after := p.runnersOf(t, "shell")
		if want := slices.Sorted(maps.Keys(before)); !slices.Equal(slices.Sorted(maps.Keys(after)), want) {
			t.Fatalf("kill %d: the runners are %v, not %v\n%s", i, slices.Sorted(maps.Keys(after)), want, p.stderr.String())
		}
		for id, was := range before {
			is := after[id]
			if is.State != was.State || (is.Claim == nil) != (was.Claim == nil) {
				t.Errorf("kill %d: runner %s is %+v, and was %+v", i, id, is, was)
			} else if is.Claim != nil && (!is.Claim.ClaimedAt.Equal(was.Claim.ClaimedAt) || is.Claim.Epoch != was.Claim.Epoch || is.Claim.ExpiresAt.Before(was.Claim.ExpiresAt)) {
				t.Errorf("kill %d: the claim of %s is %+v, and was %+v", i, id, *is.Claim, *was.Claim)
			}
		}
		all := p.full(t, "churn", size)
		maps.Copy(all, after)
		for _, other := range []string{"python", "node", "c"} {
			maps.Copy(all, p.full(t, other, 2))
		}
		p.wantOnly(t, all)
	}
	t.Logf("kills hit %v", hit)
	if hit[runtime.RunnerStarting] == 0 {
		t.Error("no kill hit a start, so this shows less than it says")
	}
	if got := p.shell(t, runner, "cat file"); got.stream("STDOUT") != "kept\n" {
		t.Errorf("what the runner had is %q", got.stream("STDOUT"))
	}
	var released struct{ ReleaseRunner struct{ Released bool } }
	p.call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, &released)
	if !released.ReleaseRunner.Released {
		t.Error("the runner could not be released")
	}
	p.end(t, syscall.SIGTERM, false) // with --on-stop remove
	p.wantNothingLeft(t)
}

// recorded calls each for the runners in the store of a server that is dead.
func recorded(t testing.TB, data string, each func(runtime.Runner)) {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(data, "rockpool.db"))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Runners(t.Context(), func(r runtime.Runner, _ []byte, unreadable error) error {
		each(r)
		return unreadable
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// killWhileItStarts starts a server and kills it before, or soon after, it is
// ready.
func killWhileItStarts(t testing.TB, data, cgroups string) {
	t.Helper()
	cmd := exec.Command(rockpool(t), "serve", "--data", data, "--listen", "127.0.0.1:0", "--cgroup-parent", cgroups)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	atSomeMoment(250 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its end is the kill
}

// TestE2EStopKeepsRunners is what serve does unless it is told otherwise.
func TestE2EStopKeepsRunners(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, data, rockpool(t), "serve", "--data", data, "--on-stop", "keep")
	runner := p.claimLoosely(t, "shell")
	p.shell(t, runner, "echo kept > file")
	before := p.full(t, "shell", 2)
	p.end(t, syscall.SIGTERM, false)
	p = serveBinary(t, data)
	after := p.runnersOf(t, "shell")
	if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) || after[runner].State != "CLAIMED" {
		t.Errorf("the runners are %+v, and were %+v", after, before)
	}
	if got := p.shell(t, runner, "cat file"); got.stream("STDOUT") != "kept\n" {
		t.Errorf("what the runner had is %q", got.stream("STDOUT"))
	}
	// An idle one that dies is replaced, as any.
	for id, r := range after {
		if r.State != "IDLE" {
			continue
		}
		killAgent(t, p.cgroups, id)
		wait.For(t, "another runner takes its place", func() bool {
			now := p.full(t, "shell", 2)
			_, still := now[id]
			return !still
		})
		break
	}
	p.end(t, syscall.SIGTERM, false)
	p.wantNothingLeft(t)
}

// killAgent kills a runner's first process.
func killAgent(t testing.TB, cgroups, runner string) {
	t.Helper()
	for _, file := range groupFiles(cgroups, runner) {
		text, _ := os.ReadFile(file)
		var pid int
		if n, _ := fmt.Sscan(string(text), &pid); n == 1 && pid > 1 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("runner %s has no process", runner)
}

// groupFiles returns the lists of processes of a runner's groups: on version 2 the agent
// has one of its own, and the runner's is empty.
func groupFiles(cgroups, runner string) (files []string) {
	for _, trees := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		for _, group := range []string{"", "/agent"} {
			found, _ := filepath.Glob(trees + cgroups + "/*" + runner + "*" + group + "/cgroup.procs")
			files = append(files, found...)
		}
	}
	return files
}

// TestE2EWhatCantBeReadIsTold spoils the records of an environment and of a
// runner: the others are served.
func TestE2EWhatCantBeReadIsTold(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, data, rockpool(t), "serve", "--data", data, "--on-stop", "keep")
	p.call(t, `mutation { putEnvironment(input: {id: "spoiled", poolSize: 0}) { created } }`, nil, nil)
	good, bad := p.claimLoosely(t, "shell"), p.claimLoosely(t, "shell")
	p.end(t, syscall.SIGTERM, false)
	db, err := sql.Open("sqlite", filepath.Join(data, "rockpool.db"))
	if err != nil {
		t.Fatal(err)
	}
	for table, id := range map[string]string{"environments": "spoiled", "runners": bad} {
		if result, err := db.Exec("UPDATE "+table+" SET value = CAST('{' AS BLOB) WHERE id = ?", id); err != nil {
			t.Fatal(err)
		} else if n, _ := result.RowsAffected(); n != 1 {
			t.Fatalf("%d rows of %s", n, table)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	p = serveBinary(t, data)
	after := p.runnersOf(t, "shell")
	if _, there := after[bad]; there || after[good].State != "CLAIMED" {
		t.Errorf("the runners are %+v", after)
	}
	health := func() (status, message string) {
		var out struct {
			Health struct {
				Components []struct{ Name, Status, Message string }
			}
		}
		p.call(t, `{ health { components { name status message } } }`, nil, &out)
		for _, c := range out.Health.Components {
			if c.Name == "cluster" {
				return c.Status, c.Message
			}
		}
		return "", ""
	}
	if status, message := health(); status != "DEGRADED" || !strings.Contains(message, "runner "+bad) || !strings.Contains(message, "environment spoiled") {
		t.Errorf("the cluster is %s: %s", status, message)
	}
	p.call(t, `mutation { putEnvironment(input: {id: "spoiled", poolSize: 0}) { created } }`, nil, nil)
	if _, message := health(); strings.Contains(message, "spoiled") {
		t.Errorf("the environment was put again, but the cluster says: %s", message)
	}
	p.end(t, syscall.SIGTERM, false)
	p.wantNothingLeft(t)
}
