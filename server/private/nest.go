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
	"github.com/rockpool/rockpool/runtime/lockfile"
	"github.com/rockpool/rockpool/server"
)

// A nest is the directory of one private server, which holds its lock. A nest without a
// lock was left by a server that was killed, or that could not clean up; the next server
// cleans it up. A nest is deleted last, since it leads to its runners and their user ids.
type nest struct {
	config config.Config
	dir    *os.File // locked
}

// nestsOf returns the directory of all private servers' nests: beside the data,
// where there is room, and where programs can be executed.
func nestsOf(c config.Config) string { return c.Data + "-private" }

func makeNest(ctx context.Context, c config.Config, say Sayer) (*nest, error) {
	all, err := lockNests(ctx, nestsOf(c), say)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if err := sweep(ctx, c, all.Name(), say); err != nil {
		return nil, fmt.Errorf("clean up after a private server that was killed: %w", err)
	}
	path, err := os.MkdirTemp(all.Name(), "run-")
	if err != nil {
		return nil, err
	}
	dir, err := lockDirectory(path)
	if err != nil {
		return nil, err
	}
	return &nest{config: nestConfig(c, path), dir: dir}, nil
}

// socket is where its server listens: only its owner may enter the nest. The path goes by
// the descriptor, since a socket's address holds 108 bytes.
func (n *nest) socket() string { return fmt.Sprintf("/proc/self/fd/%d/api.sock", n.dir.Fd()) }

func nestConfig(c config.Config, path string) config.Config {
	c.Data, c.OnStop = path, config.StopRemoves
	c.CgroupParent += "/" + filepath.Base(path)
	return c
}

// lockNests makes the directory of all nests, and locks it. The last holder of the lock may
// remove it between the two.
func lockNests(ctx context.Context, path string, say Sayer) (*os.File, error) {
	const silence = 300 * time.Millisecond
	quiet, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	said := false
	for {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("a server for this run alone needs a directory: %w: set ROCKPOOL_DATA to a path in a directory that you may write to, for example /tmp/rockpool-$USER/data", err)
		}
		dir, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = lockfile.Wait(quiet, dir)
		if errors.Is(err, lockfile.ErrHeld) && !said {
			say("waiting for another private server, which is cleaning up in %s", path)
			said = true
		}
		if err != nil {
			err = lockfile.Wait(ctx, dir)
		}
		if err != nil {
			return nil, errors.Join(cmp.Or(context.Cause(ctx), err), dir.Close())
		}
		here, err := dir.Stat()
		there, gone := os.Stat(path)
		if err == nil && gone == nil && os.SameFile(here, there) {
			return dir, nil
		}
		_ = dir.Close()
	}
}

// lockDirectory returns [lockfile.ErrHeld] for one that is locked.
func lockDirectory(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := lockfile.Try(dir); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// sweep removes the nests that nobody holds, with their runners. It says which
// it can't remove: they stay.
func sweep(ctx context.Context, c config.Config, all string, say Sayer) error {
	paths, err := filepath.Glob(filepath.Join(all, "run-*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		dir, err := lockDirectory(path)
		if errors.Is(err, lockfile.ErrHeld) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		left := nest{nestConfig(c, path), dir}
		left.empty(ctx, false, say)
	}
	return nil
}

// remove removes the nest, and the directory of all nests with the last, or says
// what stays. Clean is whether its server's end left nothing.
func (n *nest) remove(ctx context.Context, clean bool, say Sayer) {
	all, err := lockNests(ctx, filepath.Dir(n.dir.Name()), say)
	if err != nil {
		n.stays(say, err)
		return
	}
	defer all.Close()
	n.empty(ctx, clean, say)
	_ = os.Remove(all.Name()) // there may be others
}

func (n *nest) stays(say Sayer, err error) {
	say("what a private server made could not be removed, so %s stays, and the next one tries again: %v", n.config.Data, err)
}

// empty removes what is in the nest, and the nest; where a runner can't be
// removed, it leaves both to the next. It says what stays.
func (n *nest) empty(ctx context.Context, clean bool, say Sayer) {
	defer n.dir.Close()
	var err error
	if !clean {
		err = server.New(n.config, zap.NewNop()).Discard(ctx)
	}
	if err == nil && os.Geteuid() != 0 {
		err = local.RemoveImages(ctx, server.LocalDir(n.config.Data), server.ImageWorker)
	}
	if err == nil {
		err = os.RemoveAll(n.config.Data)
	}
	if err != nil {
		n.stays(say, err)
	}
}
