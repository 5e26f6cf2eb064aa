package private

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/server"
)

// A directory is the data directory of one private server, which holds its lock. An unlocked
// directory is from a server that was killed or couldn't clean up; the next server cleans it up.
// The directory is deleted last, because it has the data about its runners and their uids.
type directory struct {
	config config.Config
	dir    *os.File // locked
}

// parentOf returns the parent of all private servers' directories. It is next to the data
// directory, which has enough space and isn't mounted noexec.
func parentOf(c config.Config) string { return c.Data + "-private" }

// newDirectory returns a new locked directory. It first cleans up after servers that were killed.
// Meanwhile, the parent's lock keeps other servers out.
func newDirectory(ctx context.Context, c config.Config, say Sayer) (*directory, error) {
	all, err := lockParent(ctx, parentOf(c), say)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if _, err := sweep(ctx, c, all.Name(), true, say); err != nil {
		return nil, fmt.Errorf("clean up after a killed private server: %w", err)
	}
	path, err := os.MkdirTemp(all.Name(), "run-")
	if err != nil {
		return nil, err
	}
	dir, err := lockDirectory(path)
	if err != nil {
		return nil, err
	}
	return &directory{config: configIn(c, path), dir: dir}, nil
}

// socket returns the path of the server's socket. Only the owner can enter the directory. The path
// uses the directory's descriptor, because a socket's path is limited to 108 bytes.
func (d *directory) socket() string { return fmt.Sprintf("/proc/self/fd/%d/api.sock", d.dir.Fd()) }

// configIn returns c for a server in the directory at path, which removes its runners at its end.
func configIn(c config.Config, path string) config.Config {
	c.Caches = c.Data + "-caches" // on the same file system
	c.Data, c.OnStop = path, config.StopRemoves
	c.CgroupParent += "/" + filepath.Base(path)
	return c
}

// lockParent creates and locks the parent directory. It retries if the previous holder of the lock
// removes the directory in between.
func lockParent(ctx context.Context, path string, say Sayer) (*os.File, error) {
	const silence = 300 * time.Millisecond
	quiet, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	reported := false
	for {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("a temporary server needs a directory: %w; set ROCKPOOL_DATA to a path in a directory that you can write to, for example /tmp/rockpool-$USER/data", err)
		}
		dir, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = disk.Lock(quiet, dir)
		// Only a wait that is longer than silence is reported.
		if errors.Is(err, disk.ErrLocked) && !reported {
			say("waiting for another temporary server, which is cleaning up in %s", path)
			reported = true
		}
		if err != nil {
			err = disk.Lock(ctx, dir)
		}
		if err != nil {
			return nil, errors.Join(cmp.Or(context.Cause(ctx), err), dir.Close())
		}
		// The previous holder may have removed this directory, and the path may have a new one.
		here, err := dir.Stat()
		there, gone := os.Stat(path)
		if err == nil && gone == nil && os.SameFile(here, there) {
			return dir, nil
		}
		_ = dir.Close()
	}
}

// lockDirectory opens and locks a directory. It returns [disk.ErrLocked] if another process holds the lock.
func lockDirectory(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := disk.TryLock(dir); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// sweep removes unlocked directories and their runners. It reports those that it can't remove. Unless
// wait is set, it leaves those whose helpers still run, and returns whether there are any.
func sweep(ctx context.Context, c config.Config, all string, wait bool, say Sayer) (busy bool, err error) {
	paths, err := filepath.Glob(filepath.Join(all, "run-*"))
	if err != nil {
		return false, err
	}
	for _, path := range paths {
		if ctx.Err() != nil {
			return busy, context.Cause(ctx)
		}
		dir, err := lockDirectory(path)
		if errors.Is(err, disk.ErrLocked) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return busy, err
		}
		left := directory{configIn(c, path), dir}
		if !wait && left.helped() {
			busy = true
			_ = dir.Close()
			continue
		}
		left.empty(ctx, false, say)
	}
	return busy, nil
}

// remove removes the directory, and the parent if it is then empty. It reports what it can't
// remove. clean means that the server ended without leaving runners.
func (d *directory) remove(ctx context.Context, clean bool, say Sayer) {
	all, err := lockParent(ctx, filepath.Dir(d.dir.Name()), say)
	if err != nil {
		d.reportRest(say, err)
		return
	}
	defer all.Close()
	d.empty(ctx, clean, say)
	_ = os.Remove(all.Name()) // fails if other servers use it
}

// reportRest reports that the directory stays, and why.
func (d *directory) reportRest(say Sayer, err error) {
	say("a temporary server's files or runners couldn't be removed: %[2]v. %[1]s stays; the next temporary server tries again", d.config.Data, err)
}

// empty removes the directory with its runners and files. If a runner can't be removed, it keeps
// everything for the next server and reports that.
func (d *directory) empty(ctx context.Context, clean bool, say Sayer) {
	defer d.dir.Close()
	var err error
	if !clean {
		err = server.New(d.config, zap.NewNop()).Discard(ctx)
	}
	if err != nil && !d.helped() && d.withoutSandboxes() {
		err = nil
	}
	if err == nil && !uids.Root() {
		err = local.RemoveImages(ctx, server.LocalDir(d.config.Data), server.ImageWorker)
	}
	if err == nil {
		err = os.RemoveAll(d.config.Data)
	}
	if err != nil {
		d.reportRest(say, err)
	}
}

// helped reports whether helpers of the killed server still run. They have its lock, and may still make or
// remove a sandbox.
func (d *directory) helped() bool {
	lock, err := os.Open(filepath.Join(server.LocalDir(d.config.Data), "lock"))
	if err != nil {
		return false // the server made no runner
	}
	defer lock.Close()
	return errors.Is(disk.TryLock(lock), disk.ErrLocked)
}

// withoutSandboxes reports whether no sandbox of the server can exist, because each has cgroups below the
// server's. A machine on which none can be made can't remove any either.
func (d *directory) withoutSandboxes() bool {
	trees, err := cgroup.Mounted()
	if err != nil || !uids.Root() {
		return false
	}
	there, err := trees.Exists("/" + d.config.CgroupParent)
	return err == nil && !there
}
