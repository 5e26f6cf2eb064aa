// Package wait is how tests wait: for a condition, or for a value of a channel.
// Its one time limit only ends a test that would hang. No test asserts it.
package wait

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Limit is far above what any condition takes on a busy machine: what isn't true by
// then never will be.
const Limit = 2 * time.Minute

// The pauses between two looks grow from first to last.
const (
	first = time.Millisecond
	last  = 50 * time.Millisecond
)

// For returns when ok is true. It ends the test when that isn't so within [Limit].
// What names the condition. For calls ok in the test's own goroutine.
func For(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(Limit)
	for pause := first; !ok(); pause = min(2*pause, last) {
		if time.Now().After(end) {
			t.Fatalf("not after %s: %s (%s)", Limit, what, Load())
		}
		<-time.After(pause)
	}
}

// Receive returns the next value of a channel, or the zero value once it is closed.
// It ends the test when neither happens within [Limit]. What names the value.
func Receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	limit := time.NewTimer(Limit)
	defer limit.Stop()
	select {
	case value := <-from:
		return value
	case <-limit.C:
		t.Fatalf("not received after %s: %s (%s)", Limit, what, Load())
		panic("unreachable")
	}
}

// Load returns how busy the machine is, for the message of a failed test: the load
// averages and, where the kernel counts them, the shares of time in which
// processes waited for a processor.
func Load() string {
	load, _ := os.ReadFile("/proc/loadavg")
	pressure, _ := os.ReadFile("/proc/pressure/cpu")
	waited, _, _ := strings.Cut(string(pressure), "\n")
	return strings.TrimSpace("load " + strings.TrimSpace(string(load)) + " " + waited)
}
