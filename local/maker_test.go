package local

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// Runners survive the kill of their maker, and another maker makes the next one.
func TestRunnersOutliveTheirMaker(t *testing.T) {
	t.Parallel()
	b := running(t)
	first := b.begin(hostEnvironment())
	_, makers := b.processesAndMakers()
	if len(makers) != 1 {
		t.Fatalf("makers are %v", makers)
	}
	pid, err := strconv.Atoi(makers[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the maker is dead", func() bool {
		_, makers := b.processesAndMakers()
		return len(makers) == 0
	})
	b.expect(first, "echo hi", "hi")
	second := b.begin(hostEnvironment())
	b.expect(second, "echo there", "there")
	for _, id := range []runtime.RunnerID{first, second} {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	b.noRunnerLeft()
}

// Runners that are made concurrently get no descriptors of each other or of the maker.
func TestConcurrentRunnersShareNoDescriptors(t *testing.T) {
	t.Parallel()
	b := running(t)
	first := b.begin(hostEnvironment()) // before all others
	const count = 6
	ids := make([]runtime.RunnerID, count)
	var making sync.WaitGroup
	for i := range ids {
		ids[i] = runtime.NewRunnerID()
		making.Go(func() {
			if err := b.Start(t.Context(), ids[i], hostEnvironment(), runtime.PriorityRefill); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	for _, id := range ids {
		if r := b.await(id, runtime.RunnerIdle); r.State != runtime.RunnerIdle {
			t.Fatalf("the runner is %s: %s", r.State, r.Message)
		}
	}
	// An agent has some more for a moment, for example for a connection. A leaked descriptor stays.
	var all []string
	defer func() { t.Log(all) }()
	wait.For(t, "all have the same descriptors", func() bool {
		all = all[:0]
		for _, id := range slices.Concat(ids, []runtime.RunnerID{first}) {
			all = append(all, descriptorsOf(t, b.agentOf(id)))
		}
		return len(slices.Compact(slices.Clone(all))) == 1
	})
}

// descriptorsOf returns a process's open descriptors by kind, without names that differ between
// sandboxes.
func descriptorsOf(t *testing.T, pid int) string {
	t.Helper()
	links, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	if err != nil || len(links) == 0 {
		t.Fatalf("descriptors %v, %v", links, err)
	}
	kinds := map[string]int{}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil { // closed meanwhile
			continue
		}
		kind, _, _ := strings.Cut(to, ":")
		if strings.HasPrefix(to, "/") && to != "/dev/null" {
			kind = "file"
		}
		kinds[kind]++
	}
	var all []string
	for _, kind := range []string{"/dev/null", "socket", "file", "anon_inode", "pipe"} {
		all = append(all, kind+" "+strconv.Itoa(kinds[kind]))
		delete(kinds, kind)
	}
	for kind, n := range kinds {
		all = append(all, kind+" "+strconv.Itoa(n))
	}
	return strings.Join(all, ", ")
}
