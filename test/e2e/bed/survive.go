package bed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// Killed kills the server with SIGKILL and starts the next one.
func (p *Process) Killed(t *testing.T) *Process {
	t.Helper()
	p.End(t, syscall.SIGKILL, false)
	return ServeBinary(t, p.Data)
}

// AtSomeMoment waits for a random time of at most most. A kill must be able to hit every step, and
// most steps show nothing to wait for.
func AtSomeMoment(most time.Duration) { <-time.After(rand.N(most)) }

// Finish stops the last server of a test and removes all runners.
func (p *Process) Finish(t *testing.T) {
	t.Helper()
	p.End(t, syscall.SIGTERM, false)
	p.WantNothingLeft(t)
}

// InHalves returns a shell script and its output. It prints this many numbered lines, the second
// half after [Process.Wake], and exits with 7.
func InHalves(lines int) (script, output string) {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintln(&b, i)
	}
	return fmt.Sprintf("seq 0 %d; sleep 1000; seq %d %d; exit 7", lines/2-1, lines/2, lines-1), b.String()
}

// Wake continues this many sleeping programs in runners, as soon as they sleep.
func (p *Process) Wake(t *testing.T, programs int) {
	t.Helper()
	var sleeping []int
	wait.For(t, fmt.Sprint("programs sleep: ", programs), func() bool {
		sleeping = Running(p.Cgroups, "sleep")
		return len(sleeping) == programs
	})
	for _, pid := range sleeping {
		if err := syscall.Kill(pid, syscall.SIGPIPE); err != nil { // shells print nothing about this signal
			t.Error(err)
		}
	}
}

// CountingTo returns a shell script and its output. It prints this many numbered lines in about
// this many seconds, and exits with 7.
func CountingTo(lines int, seconds float64) (script, output string) {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintln(&b, i)
	}
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); [ $((i %% 20)) = 0 ] && sleep %f; done; exit 7", lines, seconds*20/float64(lines)), b.String()
}

// Reader is a client that follows one execution over several servers.
type Reader struct {
	ID     string
	cursor *string
	Got    strings.Builder
	Lost   int64
	End    *client.Ending
}

// Read reads until the end, or until the server is gone.
func (r *Reader) Read(ctx context.Context, b Bed) {
	if r.End != nil {
		return
	}
	_ = b.Follow(ctx, r.ID, r.cursor, func(e client.Event) error {
		r.cursor = &e.Cursor
		r.Got.Write(e.Base64)
		r.Lost += e.Bytes
		if e.Type == "ExecutionFinished" {
			r.End = &e.Execution
		}
		return nil
	})
}

// Running returns the processes with this name in runners below cgroups.
func Running(cgroups, name string) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range found {
		text, _ := os.ReadFile(path)
		group, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup"))
		if strings.TrimSpace(string(text)) == name && sandboxtest.Within(string(group), cgroups) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}
