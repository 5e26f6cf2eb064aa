package image

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// An unpacker makes an image's root directory. One goroutine uses it.
type unpacker interface {
	Layer(ctx context.Context, content io.Reader) error // applies a layer, and reads it to its end
	Finish(ctx context.Context) error
	Disk() int64  // about the bytes that the image takes on the disk by now
	Close() error // may be called again
}

// unpacker returns an unpacker that makes rootName in dir for the image's user. From time to time it
// calls room with the bytes that are on the disk; an error of room ends the work.
func (c *Cache) unpacker(ctx context.Context, dir, user, workingDirectory string, room func(taken int64) error) (unpacker, error) {
	spec := tree.Spec{Limits: c.config.Image, Skeleton: c.config.Skeleton, User: user, WorkingDirectory: workingDirectory}
	if c.config.Worker == nil {
		return tree.Make(filepath.Join(dir, rootName), spec, room)
	}
	spec.Alone = c.config.Alone
	f, err := c.start(ctx, dir, room)
	if err != nil {
		return nil, err
	}
	if err := f.request(ctx, beginPacket, spec); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Bounds of a removal.
const (
	goneWithin  = 5 * time.Second // how long an abandoned worker may continue with a file
	leaveWithin = time.Second     // how long an ending server continues to delete
)

// remove deletes a directory of the cache, regardless of its files' owners. When ctx ends, it
// continues for at most leaveWithin. It gives up on what is left after no other worker can be
// active there: those files belong to users that the server no longer has.
func (c *Cache) remove(ctx context.Context, dir string) error {
	return c.removeAfter(ctx, dir, goneWithin)
}

// removeAfter is remove with another bound for abandoned workers.
func (c *Cache) removeAfter(ctx context.Context, dir string, gone time.Duration) error {
	err := os.RemoveAll(dir)
	if c.config.Worker == nil {
		return err
	}
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveWithin, cancel) })()
	for until := time.Now().Add(gone); err != nil; {
		last := time.Now().After(until)
		if failed := c.clear(within, dir); failed != nil {
			return failed
		}
		if err = os.RemoveAll(dir); err == nil || last {
			break
		}
		if backoff.Sleep(within, 50*time.Millisecond) != nil { // there is no other way to wait for the abandoned worker
			return err
		}
	}
	return err
}

// Remove deletes all images below config.Dir, with files of any owner. No Cache may be open there.
func Remove(ctx context.Context, config Config) error {
	c := &Cache{config: config}
	var err error
	for _, pattern := range []string{"*", tempName + "/*", tempName + "/*/*"} {
		roots, _ := filepath.Glob(filepath.Join(config.Dir, pattern, rootName)) // the pattern is valid
		for _, root := range roots {
			err = errors.Join(err, c.remove(ctx, filepath.Dir(root)))
		}
	}
	return err
}
