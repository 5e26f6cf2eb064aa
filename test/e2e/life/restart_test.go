package life

import (
	"database/sql"
	"errors"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EKilledServersRunnersLiveOn kills the server many times while runners are made and removed.
// Every third time it also kills the next one, while it adopts them.
func TestE2EKilledServersRunnersLiveOn(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.ServeBinary(t, data)
	runner := p.ClaimUnreleased(t, "shell")
	if got := p.Shell(t, runner, "echo kept > file; cat file"); got.Stream("STDOUT") != "kept\n" {
		t.Fatalf("%+v", got)
	}
	before := p.Full(t, "shell", 2)
	hit := map[runtime.RunnerState]int{} // runners by their state at a kill
	for i := range bed.Thorough(12, 24) {
		size := 1 + i%6
		if i%4 == 0 {
			size = 16 // about two start concurrently, so that most are starting at the kill
		}
		p.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
			object{"in": object{"id": "churn", "poolSize": size, "resources": object{"memoryMiB": 64}}}, nil)
		if i%4 == 0 {
			wait.For(t, "half of them start, or have started", func() bool {
				states := map[string]int{}
				for _, r := range p.RunnersOf(t, "churn") {
					states[r.State]++
				}
				return states["STARTING"] >= size/2 || states["IDLE"] > size/2
			})
		} else {
			bed.AtSomeMoment(120 * time.Millisecond)
		}
		p.End(t, syscall.SIGKILL, false)
		recorded(t, data, func(r runtime.Runner) { hit[r.State]++ })
		if i%3 == 2 {
			killWhileItStarts(t, data, p.Cgroups)
		}
		p = bed.ServeBinary(t, data)
		after := p.RunnersOf(t, "shell")
		if want := slices.Sorted(maps.Keys(before)); !slices.Equal(slices.Sorted(maps.Keys(after)), want) {
			t.Fatalf("kill %d: the runners are %v, not %v\n%s", i, slices.Sorted(maps.Keys(after)), want, p.Stderr.String())
		}
		for id, was := range before {
			is := after[id]
			if is.State != was.State || (is.Claim == nil) != (was.Claim == nil) {
				t.Errorf("kill %d: runner %s is %+v, and was %+v", i, id, is, was)
			} else if is.Claim != nil && (!is.Claim.ClaimedAt.Equal(was.Claim.ClaimedAt) || is.Claim.Epoch != was.Claim.Epoch || is.Claim.ExpiresAt.Before(was.Claim.ExpiresAt)) {
				t.Errorf("kill %d: the claim of %s is %+v, and was %+v", i, id, *is.Claim, *was.Claim)
			}
		}
		all := p.Full(t, "churn", size)
		maps.Copy(all, after)
		for _, other := range []string{"python", "node", "c"} {
			maps.Copy(all, p.Full(t, other, 2))
		}
		wantOnly(t, p, all)
	}
	t.Logf("kills hit %v", hit)
	if hit[runtime.RunnerStarting] == 0 {
		t.Error("no kill hit a start, so this shows less than it says")
	}
	if got := p.Shell(t, runner, "cat file"); got.Stream("STDOUT") != "kept\n" {
		t.Errorf("what the runner had is %q", got.Stream("STDOUT"))
	}
	var released struct{ ReleaseRunner struct{ Released bool } }
	p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, &released)
	if !released.ReleaseRunner.Released {
		t.Error("the runner could not be released")
	}
	p.End(t, syscall.SIGTERM, false) // the server has --on-stop remove
	p.WantNothingLeft(t)
}

// recorded calls each for the runners in the store of a dead server.
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

// killWhileItStarts starts a server and kills it before it is ready, or soon after.
func killWhileItStarts(t testing.TB, data, cgroups string) {
	t.Helper()
	cmd := exec.Command(bed.Rockpool(t), "serve", "--data", data, "--listen", "127.0.0.1:0", "--cgroup-parent", cgroups)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	bed.AtSomeMoment(250 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // always an error: it was killed
}

// TestE2EStopKeepsRunners checks the default of serve.
func TestE2EStopKeepsRunners(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--on-stop", "keep")
	runner := p.ClaimUnreleased(t, "shell")
	p.Shell(t, runner, "echo kept > file")
	before := p.Full(t, "shell", 2)
	p.End(t, syscall.SIGTERM, false)
	p = bed.ServeBinary(t, data)
	after := p.RunnersOf(t, "shell")
	if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) || after[runner].State != "CLAIMED" {
		t.Errorf("the runners are %+v, and were %+v", after, before)
	}
	if got := p.Shell(t, runner, "cat file"); got.Stream("STDOUT") != "kept\n" {
		t.Errorf("what the runner had is %q", got.Stream("STDOUT"))
	}
	// An idle runner that dies is replaced, like any other.
	for id, r := range after {
		if r.State != "IDLE" {
			continue
		}
		bed.KillAgent(t, p.Cgroups, id)
		wait.For(t, "another runner takes its place", func() bool {
			now := p.Full(t, "shell", 2)
			_, still := now[id]
			return !still
		})
		break
	}
	p.End(t, syscall.SIGTERM, false)
	p.WantNothingLeft(t)
}

// TestE2EUnreadableRecordsAreReported spoils the records of an environment and of a runner. The
// others are served.
func TestE2EUnreadableRecordsAreReported(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--on-stop", "keep")
	p.Call(t, `mutation { putEnvironment(input: {id: "spoiled", poolSize: 0}) { created } }`, nil, nil)
	good, bad := p.ClaimUnreleased(t, "shell"), p.ClaimUnreleased(t, "shell")
	p.End(t, syscall.SIGTERM, false)
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

	p = bed.ServeBinary(t, data)
	after := p.RunnersOf(t, "shell")
	if _, there := after[bad]; there || after[good].State != "CLAIMED" {
		t.Errorf("the runners are %+v", after)
	}
	health := func() (status, message string) {
		var out struct {
			Health struct {
				Components []struct{ Name, Status, Message string }
			}
		}
		p.Call(t, `{ health { components { name status message } } }`, nil, &out)
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
	p.Call(t, `mutation { putEnvironment(input: {id: "spoiled", poolSize: 0}) { created } }`, nil, nil)
	if _, message := health(); strings.Contains(message, "spoiled") {
		t.Errorf("the environment was put again, but the cluster says: %s", message)
	}
	p.End(t, syscall.SIGTERM, false)
	p.WantNothingLeft(t)
}
