package files

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// silent are runners whose agents never answer.
type silent struct{ unreachable }

func (s *silent) Use(context.Context, runtime.RunnerID) (func(), error) { return func() {}, nil }

func (s *silent) Dial(context.Context, runtime.RunnerID) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		buf := make([]byte, 4096)
		for {
			if _, err := theirs.Read(buf); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

// TestConcurrentSearchesAreLimited checks that one runner gets few of all places, and that an agent
// has its whole time once a place is free.
func TestConcurrentSearchesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(&silent{})
		began := time.Now()
		type ended struct {
			err   error
			after time.Duration
		}
		search := func(ctx context.Context, id string) chan ended {
			done := make(chan ended, 1)
			go func() {
				_, err := a.SearchFiles(ctx, runtime.RunnerID(id), Search{Name: "*"})
				done <- ended{err, time.Since(began)}
			}()
			return done
		}
		want := func(what string, got ended, code runtime.Code, text string, after time.Duration) {
			t.Helper()
			if runtime.CodeOf(got.err) != code || !strings.Contains(fmt.Sprint(got.err), text) || got.after != after {
				t.Errorf("%s: %v after %v", what, got.err, got.after)
			}
		}
		first, second := search(t.Context(), "slow"), search(t.Context(), "slow")
		synctest.Wait()
		third := search(t.Context(), "slow")
		var others []chan ended
		for i := range maxSearches - 2 {
			others = append(others, search(t.Context(), fmt.Sprint(i)))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		full := search(t.Context(), "another")
		want("a third of one runner", <-third, runtime.CodeLimitExceeded, "2 searches are already running in runner slow: try again later", searchWait)
		want("one too many", <-full, runtime.CodeLimitExceeded, "64 searches are already running on this server: try again later", searchWait+time.Second)
		time.Sleep(searchWithin - searchWait - 2*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		left := search(ctx, "slow")
		late := search(t.Context(), "late")
		synctest.Wait()
		cancel()
		if got := <-left; got.err != context.Canceled {
			t.Error(got.err)
		}
		for _, done := range append(others, first, second) {
			want("a search", <-done, runtime.CodeClusterUnavailable, "took longer than 30s", searchWithin)
		}
		want("one that waited", <-late, runtime.CodeClusterUnavailable, "took longer than 30s", 2*searchWithin)
		if len(a.searches.of) > 0 || len(a.searches.all) > 0 {
			t.Errorf("%d runners, %d places are held", len(a.searches.of), len(a.searches.all))
		}
	})
}
