package process

import (
	"bytes"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// A process that is reaped while its execution is measured doesn't count twice. That could end the
// execution by its CPU limit too early.
func TestMeasureCountsOnce(t *testing.T) {
	need.Sandboxes(t)
	const mark = proc.FirstMark + proc.Marks - 1
	child := exec.Command("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; echo; read x; exit 0")
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{mark}}}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p := &process{mark: mark, starter: &Starter{marking: true, reaper: newReaper()}}
	p.starter.reaper.mu.Lock() // as the reaper does
	measured := make(chan time.Duration, 1)
	go func() { measured <- p.Measure().CPU }()
	wait.For(t, "it waits for the reaper", func() bool {
		stacks := make([]byte, 1<<20)
		for one := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
			if bytes.Contains(one, []byte("(*process).Measure")) && bytes.Contains(one, []byte("[sync.Mutex.Lock")) {
				return true
			}
		}
		return false
	})
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	rusage := child.ProcessState.SysUsage().(*syscall.Rusage)
	p.usage.User, p.usage.System = time.Duration(rusage.Utime.Nano()), time.Duration(rusage.Stime.Nano())
	used := p.usage.User + p.usage.System
	p.starter.reaper.mu.Unlock()
	if got := wait.Receive(t, measured, "it is measured"); got != used || used < 50*time.Millisecond {
		t.Errorf("%v, though it used %v", got, used)
	}
}
