package jobe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/need"
)

// javaHello greets a number.
const javaHello = `public class Hi { public static void main(String[] a) { System.out.println("Hi " + new java.util.Scanner(System.in).nextInt()); } }`

// TestE2EJobeCrowd: many programs that arrive together run in turns, two for each CPU. None fails
// because of the others: no compiler, and no program within its processor time.
func TestE2EJobeCrowd(t *testing.T) {
	m := serve(t, nil, python, object{"id": "java", "resources": object{"memoryMiB": 768, "processes": 512}})
	m.timeout = 10 * time.Minute // most of them wait
	for _, test := range []struct {
		name, program string
		count         int
		spec          object
		stdout        string
	}{
		{"Java", "javac", 12, object{"language_id": "java", "sourcecode": javaHello}, "Hi %d\n"},
		{"two seconds of Python", "python3", 14, object{"language_id": "python3", "sourcecode": "import time\nwhile time.process_time() < 2: pass\nprint(input())", "parameters": object{"cputime": 5}}, "%d\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := exec.LookPath(test.program); err != nil {
				need.Lacks(t, "this machine has no %s; scripts/needs tests installs it", test.program)
			}
			ctx, end := context.WithCancel(t.Context())
			watched := make(chan int, 1)
			go func() { watched <- m.mostRunning(ctx) }()
			var all sync.WaitGroup
			for i := range test.count {
				spec := maps.Clone(test.spec)
				spec["input"] = fmt.Sprint(i)
				body, err := json.Marshal(object{"run_spec": spec})
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					status, answer, err := m.send(t.Context(), "POST", "runs", bytes.NewReader(body))
					if err != nil {
						t.Errorf("run %d: %v", i, err)
						return
					}
					if got, err := resultOf(status, answer); err != nil || got.Outcome != 15 || got.Stdout != fmt.Sprintf(test.stdout, i) {
						t.Errorf("run %d: %+v, %v", i, got, err)
					}
				})
			}
			all.Wait()
			end()
			if most := <-watched; most == 0 || most > 2*goruntime.NumCPU() {
				t.Errorf("%d programs ran concurrently on %d CPUs", most, goruntime.NumCPU())
			}
		})
	}
}

// mostRunning returns the largest number of executions that it sees running, until ctx ends.
func (m moodle) mostRunning(ctx context.Context) (most int) {
	looks := time.NewTicker(50 * time.Millisecond) // more often would cost the programs their CPUs
	defer looks.Stop()
	for ; ctx.Err() == nil; <-looks.C {
		var seen struct {
			Activity struct{ ExecutionsRunning, ExecutionsPending int }
		}
		if err := m.Do(ctx, `{ activity { executionsRunning executionsPending } }`, nil, &seen); err == nil {
			most = max(most, seen.Activity.ExecutionsRunning+seen.Activity.ExecutionsPending)
		}
	}
	return most
}
