package image

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"
)

// A filler makes an image's root directory.
type filler interface {
	layer(ctx context.Context, content io.Reader) error // applies one, read to its end
	finish(ctx context.Context, user, workingDirectory string) error
	disk() int64  // about what the image takes there by now
	close() error // may be called again
}

// filler returns one that makes rootName in dir. It asks, every so often, whether
// there is room for what is there by then.
func (c *Cache) filler(ctx context.Context, dir string, room func(taken int64) error) (filler, error) {
	if c.config.Worker != nil {
		return c.farFiller(ctx, dir, room)
	}
	return newNearFiller(dir, c.config.Image, c.config.Skeleton, room)
}

// A nearFiller works in this process, which may give files to any user.
type nearFiller struct {
	*unpacker
	skeleton Skeleton
}

func newNearFiller(dir string, limits Limits, skeleton Skeleton, room func(taken int64) error) (*nearFiller, error) {
	at := filepath.Join(dir, rootName)
	if err := os.Mkdir(at, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	if err := root.Chmod(".", 0o755); err != nil { // whatever the umask
		return nil, errors.Join(err, root.Close())
	}
	f := &nearFiller{skeleton: skeleton}
	f.unpacker = newUnpacker(root, limits, func() error { return room(f.disk()) })
	return f, nil
}

func (f *nearFiller) finish(ctx context.Context, user, workingDirectory string) error {
	if err := f.prepare(ctx, f.skeleton, user, workingDirectory); err != nil {
		return err
	}
	return f.endTimes()
}

func (f *nearFiller) disk() int64 { return f.written + int64(f.entries)<<10 }

func (f *nearFiller) close() error { return f.root.Close() }

const (
	goneWithin  = 5 * time.Second // a worker that was left may go on with a file for so long
	leaveWithin = time.Second     // a server that ends goes on deleting for so long
)

// remove deletes a directory of the cache's, whoever its files belong to; once ctx
// ends only for a moment more. It gives up what is left once nobody may be at work
// there any more: it belongs to users that the server doesn't have now.
func (c *Cache) remove(ctx context.Context, dir string) error {
	return c.removeAfter(ctx, dir, goneWithin)
}

// removeAfter is remove where who was left works for no longer than gone.
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
		select {
		case <-time.After(50 * time.Millisecond): // its end can't be waited for otherwise
		case <-within.Done():
			return err
		}
	}
	return err
}

// Remove deletes the images below config.Dir, whoever their files belong to, that
// no Cache has any more.
func Remove(ctx context.Context, config Config) error {
	c := &Cache{config: config}
	var err error
	for _, pattern := range []string{"*", tempName + "/*", tempName + "/*/*"} {
		roots, _ := filepath.Glob(filepath.Join(config.Dir, pattern, rootName)) // the pattern is right
		for _, root := range roots {
			err = errors.Join(err, c.remove(ctx, filepath.Dir(root)))
		}
	}
	return err
}
