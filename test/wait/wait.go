// Package wait waits in tests: for a condition, or for a value of a channel. Its only time limit
// ends tests that would hang; no test asserts it.
package wait

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Limit is far longer than any condition takes on a busy machine. A condition that isn't true
// within it never will be.
const Limit = 2 * time.Minute

// The pauses between two checks grow from first to last.
const (
	first = time.Millisecond
	last  = 50 * time.Millisecond
)

// For returns when ok returns true, and ends the test if that doesn't happen within [Limit]. The
// failure message names the condition with what. For calls ok in the test's own goroutine.
func For(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(Limit)
	for pause := first; !ok(); pause = min(2*pause, last) {
		if time.Now().After(end) {
			t.Fatalf("still not true after %s: %s (%s)", Limit, what, Load())
		}
		<-time.After(pause)
	}
}

// Receive returns the next value of a channel, or the zero value once it is closed. It ends the
// test if neither happens within [Limit]. The failure message names the value with what.
func Receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	limit := time.NewTimer(Limit)
	defer limit.Stop()
	select {
	case value := <-from:
		return value
	case <-limit.C:
		t.Fatalf("nothing received after %s: %s (%s)", Limit, what, Load())
		panic("unreachable")
	}
}

// Load describes how busy the machine is, for the message of a failed test. It has the load
// averages and, if the kernel counts it, the share of time in which processes waited for a
// processor.
func Load() string {
	load, _ := os.ReadFile("/proc/loadavg")
	pressure, _ := os.ReadFile("/proc/pressure/cpu")
	waited, _, _ := strings.Cut(string(pressure), "\n")
	return strings.TrimSpace("load " + strings.TrimSpace(string(load)) + " " + waited)
}
