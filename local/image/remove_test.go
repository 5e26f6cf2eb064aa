package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

const ordinary = 61_236 // an unused user id

// asUser runs do on a thread with a user's id.
func asUser(uid int, do func()) {
	proc.OnThread(func() {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			panic(errno)
		}
		do()
	})
}

// removable returns a directory of an ordinary user, and a cache whose workers have another user's
// id.
func removable(t *testing.T, worker int) (dir string, c *Cache) {
	t.Helper()
	need.Sandboxes(t)
	above, err := os.MkdirTemp("", "rp-image-") // t.TempDir can't be entered by others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(above) })
	dir = filepath.Join(above, "image")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, ordinary, -1), os.Chown(above, ordinary, -1)); err != nil {
		t.Fatal(err)
	}
	var workers sync.WaitGroup
	t.Cleanup(workers.Wait)
	return dir, &Cache{config: Config{Worker: func(_ context.Context, dir *os.File) (*net.UnixConn, error) {
		return startWorker(&workers, dir, func(do func()) { asUser(worker, do) })
	}}}
}

// An image is removed whose files belong to many users, and none to the server's user.
func TestImagesOfManyUsersAreRemoved(t *testing.T) {
	t.Parallel()
	dir, c := removable(t, 0)
	add := func(path string, owner int, mode os.FileMode, do func(path string) error) {
		t.Helper()
		path = filepath.Join(dir, rootName, path)
		err := errors.Join(do(path), os.Lchown(path, owner, owner))
		if err == nil && mode != 0 {
			err = os.Chmod(path, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	directory := func(path string) error { return os.Mkdir(path, 0o700) }
	empty := func(path string) error { return os.WriteFile(path, nil, 0) }
	add("", 200_000, 0o555, directory)
	for i := range 10 {
		own := fmt.Sprintf("of %d\n\xff", i)
		add(own, 200_000+i, os.ModeSticky|0o111, directory)
		for j := range 50 {
			add(filepath.Join(own, fmt.Sprint("-rf ", j)), i*j, 0, empty)
		}
		add(filepath.Join(own, "link"), 65_534, 0, func(path string) error { return os.Symlink("/etc/passwd", path) })
		add(filepath.Join(own, "pipe"), 1, 0, func(path string) error { return unix.Mkfifo(path, 0) })
	}
	add("deep", 300_000, 0o555, directory)
	for n := 1; n < 50; n++ {
		add("deep"+strings.Repeat("/d", n), 300_000+n, 0o555, directory)
	}
	asUser(ordinary, func() {
		if err := os.RemoveAll(dir); err == nil {
			t.Error("an ordinary user could delete all of it")
		}
		if err := c.remove(t.Context(), dir); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: got %v, want %v", err, os.ErrNotExist)
	}
}

// Files of users that neither the server nor its workers have now stay, and don't block anything.
func TestUnremovableFilesAreGivenUp(t *testing.T) {
	dir, c := removable(t, ordinary+1)
	for name, owner := range map[string]int{"first": ordinary + 1, "foreign": ordinary + 2, "last": ordinary + 1} {
		at := filepath.Join(dir, name)
		err := errors.Join(os.Mkdir(at, 0o700), os.WriteFile(filepath.Join(at, "file"), nil, 0o600), os.Lchown(filepath.Join(at, "file"), owner, -1), os.Lchown(at, owner, -1))
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	asUser(ordinary, func() {
		if err := c.removeAfter(ctx, dir, 100*time.Millisecond); !errors.Is(err, os.ErrPermission) || ctx.Err() != nil {
			t.Errorf("%v (%v)", err, ctx.Err())
		}
	})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "foreign" {
		t.Errorf("left are %v, %v", left, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory stays open to everybody: %v, %v", info.Mode(), err)
	}
}
