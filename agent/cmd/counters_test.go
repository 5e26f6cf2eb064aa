package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/serve"
)

// TestTimeThatNoTickSaw: the kernel counts user and system by its timer's
// interrupts, and a program can work in between. What that misses isn't the next
// command's.
func TestTimeThatNoTickSaw(t *testing.T) {
	dir := t.TempDir()
	set := func(all, user, system string) {
		t.Helper()
		for file, text := range map[string]string{"usage": all, "usage_user": user, "usage_sys": system} {
			if err := os.WriteFile(filepath.Join(dir, "x0", "cpuacct."+file), []byte(text+"\n"), 0o600); err != nil {
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
	c := counters{trees: map[string]int{"cpuacct": tree}, name: "x0", kept: newKeptFiles()}

	set("9000000000", "1000000000", "500000000")
	c.begin()
	if got := c.cpu(); got != 0 {
		t.Errorf("a command has used %v before it began", got)
	}
	set("9900000000", "1200000000", "500000000")
	if got := c.cpu(); got != 900*time.Millisecond {
		t.Errorf("it has used %v", got)
	}
	for _, waited := range []struct{ user, system, wantUser, wantSystem time.Duration }{
		{0, 0, 200, 700},
		{100, 300, 200, 700},
		{500, 300, 500, 400},
		{500, 600, 500, 600},
	} {
		u := serve.Usage{User: waited.user * time.Millisecond, System: waited.system * time.Millisecond}
		c.end(&u)
		if u.User != waited.wantUser*time.Millisecond || u.System != waited.wantSystem*time.Millisecond {
			t.Errorf("%+v: user %v, system %v", waited, u.User, u.System)
		}
	}
}
