package life

import (
	"sync"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EHoldersKeepTheirRunner, with its files, although the server is killed. Concurrent callers
// with one holder get the same runner.
func TestE2EHoldersKeepTheirRunner(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	session := func() (runner string, resumed bool) {
		t.Helper()
		input := client.ClaimRunnerInput{EnvironmentId: "shell", Holder: new("ada/exercise 3"), WaitFor: new(int(wait.Limit.Seconds()))}
		runner, resumed, err := client.ClaimOrResume(t.Context(), p.Bed, input)
		if err != nil {
			t.Error(err)
		}
		return runner, resumed
	}
	var mu sync.Mutex
	made, runners := 0, map[string]bool{}
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			runner, resumed := session()
			mu.Lock()
			defer mu.Unlock()
			if runners[runner] = true; !resumed {
				made++
			}
		})
	}
	callers.Wait()
	first, resumed := session()
	if len(runners) != 1 || !runners[first] || made != 1 || !resumed {
		t.Fatalf("%d claims were made, of %v; resumed: %v", made, runners, resumed)
	}
	p.Shell(t, first, "echo mine >f")
	p.End(t, syscall.SIGKILL, false)
	p = bed.ServeBinary(t, p.Data)
	again, resumed := session()
	if again != first || !resumed {
		t.Errorf("%s, then %s, resumed: %v", first, again, resumed)
	}
	if got := p.Shell(t, again, "cat f"); got.Stream("STDOUT") != "mine\n" {
		t.Errorf("%+v", got)
	}
	if err := client.Release(t.Context(), p.Bed, again); err != nil {
		t.Error(err)
	}
	next, resumed := session()
	if next == first || resumed {
		t.Errorf("%s, then %s, resumed: %v", first, next, resumed)
	}
	if got := p.Shell(t, next, "ls"); got.Stream("STDOUT") != "" {
		t.Errorf("%+v", got)
	}
	p.Finish(t)
}
