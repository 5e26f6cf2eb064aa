package timing

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

// A Clock shows the wall time of its start plus the time since then, so a later step of the wall clock moves
// nothing that is compared with it. It is for times that leave the process, or were stored before it began.
type Clock struct{ Began time.Time } // from time.Now

// NewClock returns a clock that shows the wall time now.
func NewClock() Clock { return Clock{time.Now()} }

// Now returns the time. Its monotonic reading is that of time.Now.
func (c Clock) Now() time.Time { return c.Began.Add(time.Since(c.Began)) }

// Anchor adds a monotonic reading to a time that was stored.
func (c Clock) Anchor(stored time.Time) time.Time {
	if stored.IsZero() {
		return stored
	}
	now := c.Now()
	return now.Add(stored.Sub(now))
}

// A Boot is the present boot of the machine. It converts between times of this process and [runtime.Moment]. The
// zero Boot knows no moments.
type Boot struct {
	id  string
	now time.Time     // a time of this process,
	at  time.Duration // and the monotonic clock at that time
}

// ReadBoot returns the present boot, or the zero Boot if the kernel doesn't tell.
func ReadBoot() Boot {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var at unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &at) != nil {
		return Boot{}
	}
	return Boot{id: strings.TrimSpace(string(id)), now: time.Now(), at: time.Duration(at.Nano())}
}

// Moment returns the moment of t, which must come from time.Now of this process.
func (b Boot) Moment(t time.Time) runtime.Moment {
	if b.id == "" || t.IsZero() {
		return runtime.Moment{}
	}
	return runtime.Moment{Boot: b.id, At: b.at + t.Sub(b.now)}
}

// Time returns a stored time with a monotonic reading. In m's boot it is exact, whatever was done to the wall
// clock. In another boot it is the stored wall time.
func (b Boot) Time(m runtime.Moment, stored time.Time) time.Time {
	if stored.IsZero() {
		return stored
	}
	if b.id != "" && m.Boot == b.id {
		stored = b.now.Add(m.At - b.at)
	}
	return NewClock().Anchor(stored)
}
