package groups

import "testing"

// Lines of /proc/locks are parsed.
func TestHolderOf(t *testing.T) {
	for line, want := range map[string]int{
		"1: POSIX  ADVISORY  WRITE 12 00:1b:1201 0 0\n":    12,
		"1: -> POSIX  ADVISORY  WRITE 13 00:1b:1201 0 0\n": 0,
		"2: OFDLCK ADVISORY  WRITE -1 00:1b:1201 2 2\n":    -1,
		"3:\n": 0,
	} {
		if got := holderOf([]byte(line)); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}
