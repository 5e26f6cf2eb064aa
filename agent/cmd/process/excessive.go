package process

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// A program can take much kernel memory that no control group counts within a second (package
// groups). Measuring it is expensive. So a command is measured only when it may have taken
// much since the last time: it used much processor time, or a little and a second has passed.
const (
	lookTime = 200 * time.Millisecond // processor time after which a command is always measured
	someTime = 10 * time.Millisecond  // processor time after which it is measured once lookWait has passed
	lookWait = time.Second
)

// Excessive implements serve.Process. Connections are counted for the whole runner, so every
// command that is measured then ends.
func (p *process) Excessive() bool {
	if p.starter.Guest != nil {
		return false
	}
	if p.group != nil && p.group.BuffersBeyondLimit() {
		return true
	}
	now, due := p.measurementDue()
	if !due {
		return false
	}
	connections, err := p.starter.Connections.Excessive()
	locks, lockErr := p.manyLocks()
	if err == nil && lockErr == nil { // else the next call measures again
		p.measured = now
	}
	return connections || locks
}

// A measurement is a moment at which a command was measured.
type measurement struct {
	cpu   time.Duration // its processor time
	after time.Duration // since its start
}

// measurementDue returns the current moment, and reports whether the command must be measured now.
func (p *process) measurementDue() (now measurement, due bool) {
	now = measurement{cpu: someTime + p.measured.cpu, after: time.Since(p.began)} // if processor time isn't counted
	if p.group != nil && p.group.CountsCPU() {
		if cpu := p.group.CPU(); cpu > 0 { // it is 0 if it can't be read
			now.cpu = cpu
		}
	}
	used, waited := now.cpu-p.measured.cpu, now.after-p.measured.after
	return now, used >= lookTime || used >= someTime && waited >= lookWait
}

// manyLocks reports whether p's processes hold too many locks. Without marks it is unknown which
// command holds a lock. Then all locks count as p's, in a runner that has its own PID namespace.
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
		return err == nil && s.Mark == p.mark, nil // an error means that the process has ended
	})
}
