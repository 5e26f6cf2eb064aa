package confinement

import "testing"

// TestSocketsOf reads a row of /proc/net/protocols.
func TestSocketsOf(t *testing.T) {
	for row, want := range map[string]int{"NETLINK   1096     12      -1   NI\n": 12, "protocol  size sockets  memory press\n": -1, "NETLINK  1096 x\n": -1, "UDP 1 2\n": -1} {
		if got, ok := socketsOf([]byte(row), "NETLINK"); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v; want %d", row, got, ok, want)
		}
	}
}
