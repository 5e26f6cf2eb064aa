package groups

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/serve"
)

// Since Linux 6.11, version 2 counts forks that the limit of all commands refused without the group
// that forked. They are charged to the largest group permanently, and never to its neighbour after
// it has ended. The files imitate such a kernel, so the test runs on every machine.
// TestTheOneThatTakesTheProcessesIsNamed in package local tests real groups.
func TestRefusedForksAreChargedOnce(t *testing.T) {
	dir := t.TempDir()
	set := func(file string, text string) {
		t.Helper()
		at := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kernel := func(refused, own, neighbours int) {
		t.Helper()
		set("pids.events.local", fmt.Sprint("max ", refused))
		set("pids.current", fmt.Sprint(own+neighbours))
		set("x0/pids.current", fmt.Sprint(neighbours))
		set("x1/pids.current", fmt.Sprint(own))
	}
	set("pids.max", "48")
	set("rest/pids.current", "0")
	for _, group := range []string{"x0", "x1"} {
		set(group+"/pids.events", "max 0")
	}
	tree, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(tree) }()
	together := &refusals{by: map[string]int64{}}
	open := func(name string) *Counters {
		return &Counters{trees: map[string]int{unified: tree}, name: name, kept: newKeptFiles(), together: together}
	}
	neighbour, bomb := open("x0"), open("x1")
	expect := func(when string, ofNeighbour, ofBomb int64) {
		t.Helper()
		for range 2 { // the first look counts, the second must not
			if n, b := neighbour.Refused(), bomb.Refused(); n != ofNeighbour || b != ofBomb {
				t.Errorf("%s: %d are the neighbour's and %d the bomb's, want %d and %d", when, n, b, ofNeighbour, ofBomb)
			}
		}
	}
	kernel(0, 1, 1)
	neighbour.Begin()
	bomb.Begin()
	kernel(3, 47, 1)
	expect("while the bomb is there", 0, 3)
	kernel(3, 0, 1)
	expect("when it has ended", 0, 3)
	kernel(5, 0, 1)
	expect("when one ended before a look", 0, 3)
	var u serve.Usage
	neighbour.End(&u)
	if u.Refused != 0 {
		t.Errorf("the neighbour ends with %d, want 0", u.Refused)
	}
	bomb.End(&u)
	if u.Refused != 3 {
		t.Errorf("the bomb ends with %d, want 3", u.Refused)
	}
	bomb.Begin()
	expect("for the next command in the bomb's group", 0, 0)
	kernel(6, 40, 1)
	if b := bomb.Refused(); b != 1 {
		t.Errorf("%d are the next bomb's, want 1", b)
	}
	kernel(6, 0, 20)
	expect("when its neighbour has grown", 0, 1)
	kernel(7, 0, 20)
	expect("when one ended before a look, beside a neighbour of 20", 0, 1)
	kernel(9, 24, 24)
	if n, b := neighbour.Refused(), bomb.Refused(); n+b != 3 {
		t.Errorf("of two of a size, %d and %d are named", n, b)
	}
}
