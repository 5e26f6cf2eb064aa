package groups

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/serve"
)

// The kernel estimates user and system time by timer interrupts, and a program can work in between.
// The missed time must not count for the next command. The files imitate a kernel with either
// version of cgroups, so the test runs on every machine.
func TestUntickedTimeCountsForItsCommand(t *testing.T) {
	for name, version := range map[string]struct {
		tree  string
		files func(all, user, system time.Duration) map[string]string
	}{
		"version 1": {"cpuacct", func(all, user, system time.Duration) map[string]string {
			return map[string]string{"cpuacct.usage": strconv.Itoa(int(all)), "cpuacct.usage_user": strconv.Itoa(int(user)), "cpuacct.usage_sys": strconv.Itoa(int(system))}
		}},
		"version 2": {unified, func(all, user, system time.Duration) map[string]string {
			return map[string]string{"cpu.stat": fmt.Sprintf("usage_usec %d\nuser_usec %d\nsystem_usec %d", all.Microseconds(), user.Microseconds(), system.Microseconds())}
		}},
	} {
		t.Run(name, func(t *testing.T) { timeThatNoTickSaw(t, version.tree, version.files) })
	}
}

func timeThatNoTickSaw(t *testing.T, controller string, files func(all, user, system time.Duration) map[string]string) {
	dir := t.TempDir()
	set := func(all, user, system time.Duration) {
		t.Helper()
		for file, text := range files(all, user, system) {
			if err := os.WriteFile(filepath.Join(dir, "x0", file), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "x0"), 0o700); err != nil {
		t.Fatal(err)
	}
	tree, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(tree) }()
	c := Counters{trees: map[string]int{controller: tree}, name: "x0", kept: newKeptFiles(), together: &refusals{}}

	set(9*time.Second, time.Second, 500*time.Millisecond)
	c.Begin()
	if got := c.CPU(); got != 0 {
		t.Errorf("a command has used %v before it began, want 0", got)
	}
	set(9900*time.Millisecond, 1200*time.Millisecond, 500*time.Millisecond)
	if got := c.CPU(); got != 900*time.Millisecond {
		t.Errorf("it has used %v", got)
	}
	for _, waited := range []struct{ user, system, wantUser, wantSystem time.Duration }{
		{0, 0, 200, 700},
		{100, 300, 200, 700},
		{500, 300, 500, 400},
		{500, 600, 500, 600},
	} {
		u := serve.Usage{User: waited.user * time.Millisecond, System: waited.system * time.Millisecond}
		c.End(&u)
		if u.User != waited.wantUser*time.Millisecond || u.System != waited.wantSystem*time.Millisecond {
			t.Errorf("%+v: user %v, system %v", waited, u.User, u.System)
		}
	}
}
