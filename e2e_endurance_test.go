package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/test/wait"
)

// cycle is all that a client does with a runner, cut short: it claims, uploads,
// runs, watches, cancels while the program runs, and releases.
func (b bed) cycle(ctx context.Context, i int) error {
	var claimed struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	if err := b.Ask(ctx, `mutation { claimRunner(input: {environmentId: "endurance", waitFor: 120}) { runner { id } } }`, nil, &claimed); err != nil {
		return err
	}
	runner := claimed.ClaimRunner.Runner.ID
	text := fmt.Sprintf("cycle %d\n", i)
	var err error
	if i/2%2 == 0 {
		err = b.Ask(ctx, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`,
			object{"in": object{"runnerId": runner, "write": []object{{"path": "file", "text": text}}}}, nil)
	} else { // as a multipart request
		err = b.Upload(ctx, `mutation($runner: ID!, $file: Upload!) { uploadFile(runnerId: $runner, path: "file", file: $file) { file { size } } }`,
			object{"runner": runner}, -1, strings.NewReader(text), nil)
	}
	if err != nil {
		return err
	}
	var started struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	if err := b.Ask(ctx, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`,
		object{"in": object{"runnerId": runner, "shell": "cat file; sleep 100 & exec sleep 100", "stdin": true}}, &started); err != nil {
		return err
	}
	execution := started.StartExecution.Execution.ID
	watching, leave := context.WithCancel(ctx)
	defer leave()
	printed := ""
	err = b.follow(watching, execution, nil, func(e executionEvent) {
		if printed += string(e.Base64); printed == text && i%2 == 0 {
			leave()
		} else if printed == text {
			go func() { // and watches to the end
				_ = b.Ask(ctx, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": execution}, nil)
			}()
		}
	})
	if err != nil && watching.Err() == nil || printed != text {
		return fmt.Errorf("printed %q: %w", printed, errors.Join(err, errors.New("not all was seen")))
	}
	if err := b.Ask(ctx, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": execution}, nil); err != nil {
		return err
	}
	return b.Ask(ctx, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
}

// held is what a leak would make grow.
type held struct{ goroutines, descriptors, mounts, cgroups, heapMiB int }

// within reports whether nothing grew, but for what comes and goes.
func (h held) within(before held) bool {
	return h.goroutines <= before.goroutines+10 && h.descriptors <= before.descriptors+10 &&
		h.mounts <= before.mounts && h.cgroups <= before.cgroups && h.heapMiB <= before.heapMiB+16
}

func holding(b bed) held {
	b.CloseIdle()
	goruntime.GC()
	var memory goruntime.MemStats
	goruntime.ReadMemStats(&memory)
	descriptors, _ := os.ReadDir("/proc/self/fd")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	h := held{
		goroutines: goruntime.NumGoroutine(), descriptors: len(descriptors),
		mounts: strings.Count(string(mounts), b.data), heapMiB: int(memory.HeapAlloc >> 20),
	}
	for _, tree := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		groups, _ := filepath.Glob(tree + e2eCgroups + "/*/cgroup.procs")
		h.cgroups += len(groups)
	}
	return h
}

func TestE2ECyclesLeaveNothing(t *testing.T) {
	b := e2e(t)
	b.put(t, object{"id": "endurance", "poolSize": 4, "resources": object{"memoryMiB": 64}})
	cycles := func(n int) {
		t.Helper()
		var group sync.WaitGroup
		turns := make(chan int)
		for range 8 {
			group.Go(func() {
				for i := range turns {
					if err := b.cycle(t.Context(), i); err != nil {
						t.Errorf("cycle %d: %v", i, err)
					}
				}
			})
		}
		for i := range n {
			turns <- i
		}
		close(turns)
		group.Wait()
		wait.For(t, "the pool is full and at rest", func() bool {
			var out struct {
				Environment struct {
					Pool struct{ Idle, Starting, Claimed, Stopping int }
				}
			}
			b.call(t, `{ environment(id: "endurance") { pool { idle starting claimed stopping } } }`, nil, &out)
			p := out.Environment.Pool
			return p.Idle == 4 && p.Starting+p.Claimed+p.Stopping == 0
		})
	}
	cycles(50) // what is made once and kept
	before := holding(b)
	cycles(thorough(200, 1000))
	after := held{}
	defer func() { t.Logf("before %+v, after %+v", before, after) }()
	wait.For(t, "nothing is held any more", func() bool {
		after = holding(b)
		return after.within(before)
	})
}
