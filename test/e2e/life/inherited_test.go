package life

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

// careless starts a server as a careless person or supervisor could: with ignored signals, low priorities, one
// CPU, a umask, small limits and without randomized addresses.
const careless = `
trap '' HUP INT QUIT PIPE USR1 TSTP TTIN TTOU CONT RTMIN
umask 077
ulimit -S -s 1024
ulimit -S -l 0
ulimit -S -i 100
ulimit -S -f 4000000
ulimit -S -t 100000
ulimit -S -v 90000000
exec setarch --addr-no-randomize ionice -c 3 nice -n 5 chrt --batch 0 taskset -c 0 "$0" "$@"`

// inside prints what a program has from its parent.
const inside = `
grep -E '^(Sig(Q|Blk|Ign)|Umask|Groups|NoNewPrivs|Cap|Cpus_allowed|Mems_allowed|THP|Speculation|Seccomp)' /proc/self/status | sed 's,^SigQ:.*/,,'
cat /proc/self/limits
cut -d ' ' -f 18,19,40,41 /proc/self/stat
cat /proc/self/oom_score_adj /proc/self/personality /proc/self/coredump_filter 2>&1
ls /proc/self/fd
env | sort`

// insidePython is the same of a Python program, which may have been started from a loaded interpreter.
const insidePython = `import os, signal, resource
print([s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN], signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([(n, resource.getrlimit(getattr(resource, n))) for n in sorted(dir(resource)) if n.startswith('RLIMIT_')])
print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0), os.umask(0))`

// TestE2EProgramsStartClean compares programs of a server that was started with many properties that a process
// inherits with those of one that was started in the usual way. The programs are started cold, on a terminal, and
// from a loaded interpreter.
func TestE2EProgramsStartClean(t *testing.T) {
	t.Parallel()
	usual := bed.ServeBinary(t, bed.DataDir(t))
	data := bed.DataDir(t)
	inheriting := bed.Serve(t, data, "bash", "-c", careless, bed.Rockpool(t), "serve", "--data", data)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", inheriting.Cmd.Process.Pid))
	if err != nil || !regexp.MustCompile(`(?m)^Max stack size +1048576 `).Match(limits) {
		t.Fatalf("the server itself inherited nothing: %v, %s", err, limits)
	}
	runners := map[*bed.Process]map[string]string{}
	for _, b := range []*bed.Process{usual, inheriting} {
		b.Put(t, object{"id": "warm", "poolSize": 1, "warm": object{"interpreter": "PYTHON"}})
		runners[b] = map[string]string{"shell": b.Claim(t, "shell"), "warm": b.Claim(t, "warm")}
	}
	for name, test := range map[string]struct {
		environment string
		input       object
	}{
		"cold":        {"shell", object{"command": []string{"bash", "-c", inside}}},
		"terminal":    {"shell", object{"command": []string{"bash", "-c", inside}, "terminal": object{"columns": 80, "rows": 24}}},
		"warm":        {"warm", object{"command": []string{"python3", "-c", insidePython}}},
		"hang-up":     {"shell", object{"command": []string{"sh", "-c", "kill -HUP $$; echo alive"}}},
		"broken pipe": {"shell", object{"command": []string{"sh", "-c", "kill -PIPE $$; echo alive"}}},
	} {
		run := func(b *bed.Process) client.Result {
			test.input["runnerId"] = runners[b][test.environment]
			return b.Run(t, test.input)
		}
		want, got := run(usual), run(inheriting)
		want.Ending.Id, got.Ending.Id = "", ""
		if diff := cmp.Diff([]any{want.Ending, want.Stream("STDOUT")}, []any{got.Ending, got.Stream("STDOUT")}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if strings.Contains(got.Stream("STDOUT"), "alive") {
			t.Errorf("%s: the program ignores the signal", name)
		}
		if testing.Verbose() {
			t.Logf("%s: %+v %s", name, got.Ending, got.Stream("STDOUT"))
		}
	}
}
