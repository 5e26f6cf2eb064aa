package image

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rockpool/rockpool/local/image/tree"
)

// A filler makes an image's root directory.
type filler interface {
	Layer(ctx context.Context, content io.Reader) error // applies one, read to its end
	Finish(ctx context.Context, user, workingDirectory string) error
	Disk() int64  // about what the image takes there by now
	Close() error // may be called again
}

// filler returns one that makes rootName in dir. It asks, every so often, whether
// there is room for what is there by then.
func (c *Cache) filler(ctx context.Context, dir string, room func(taken int64) error) (filler, error) {
	if c.config.Worker != nil {
		return c.farFiller(ctx, dir, room)
	}
	return tree.Make(filepath.Join(dir, rootName), c.config.Image, c.config.Skeleton, false, room)
}

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
