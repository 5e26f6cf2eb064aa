package process

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// A program can take much memory that no control group counts in a second (package
// kernelmemory). Measuring it costs something. So that happens when a command could have taken
// much since the last time: it had much processor time, or some and a second has passed.
const (
	lookTime = 200 * time.Millisecond // of all processors
	someTime = 10 * time.Millisecond
	lookWait = time.Second
)

// Excessive implements serve.Process. Connections are the whole runner's: each command that is
// measured then ends.
func (p *process) Excessive() bool {
	if p.starter.Inner != nil {
		return false
	}
	if p.group != nil && p.group.BuffersBeyondLimit() {
		return true
	}
	now, due := p.lookDue()
	if !due {
		return false
	}
	connections, err := p.starter.Connections.Excessive()
	locks, lockErr := p.manyLocks()
	if err == nil && lockErr == nil { // else the next call looks again
		p.lookedAt = now
	}
	return connections || locks
}

// A look is when a command was measured.
type look struct {
	cpu   time.Duration // that it had had
	after time.Duration // since its start
}

// lookDue returns what a look now would be, and reports whether it is time for one.
func (p *process) lookDue() (now look, due bool) {
	now = look{cpu: someTime + p.lookedAt.cpu, after: time.Since(p.began)} // where processor time isn't counted
	if p.group != nil && p.group.CountsCPU() {
		if cpu := p.group.CPU(); cpu > 0 { // else it can't be read
			now.cpu = cpu
		}
	}
	used, waited := now.cpu-p.lookedAt.cpu, now.after-p.lookedAt.after
	return now, used >= lookTime || used >= someTime && waited >= lookWait
}

// manyLocks reports whether p's processes hold too many locks. Where commands aren't marked, it is
// unknown which command holds a lock: all are p's, in a runner that has processes of its own.
func (p *process) manyLocks() (bool, error) {
	if !p.starter.marking {
		if os.Getpid() != 1 {
			return false, nil
		}
		return p.starter.Locks.Excessive(func(int) (bool, error) { return true, nil })
	}
	return p.starter.Locks.Excessive(func(pid int) (bool, error) {
		s, err := proc.ReadStatus(pid)
		if err == unix.EMFILE || err == unix.ENFILE {
			return false, err
		}
		return err == nil && s.Mark == p.mark, nil // others have ended
	})
}
