package local

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
)

// openImages opens the image cache, and starts pulling the images of all environments. Without
// root, or with a listening helper, it uses a worker that may give files to other users.
func (c *Cluster) openImages() (err error) {
	config := c.config.Images
	config.Dir = filepath.Join(c.config.Dir, "images")
	config.Logger = c.config.Logger.Named("images")
	config.Skeleton.Home = runtime.Home
	config.Skeleton.Directories, config.Skeleton.Files = spec.ImageRoot()
	config.Image.Entries = 1 << 20 // files of one image
	config.Used, config.Changed = c.usedImages, c.imageChanged
	switch {
	case c.host.Direct == nil:
		config.Worker = launch.Remote{Socket: c.config.HelperSocket}.Work
	case c.host.Rootless():
		users := c.host.Direct.Users
		config.Worker, config.Alone = c.host.Direct.Work, users.Count == 0
		config.Owners = fmt.Sprintf("%d users from %d and %d", min(users.Count, spec.UIDs), users.UID, users.GID)
	}
	if c.images, err = image.Open(config); err != nil {
		return err
	}
	if c.host.Direct != nil { // the helper follows no link
		if c.host.Direct.Config.Images, err = filepath.EvalSymlinks(config.Dir); err != nil {
			return err
		}
	}
	for _, env := range c.allEnvironments() {
		c.wantImage(env)
	}
	return nil
}

// PinImage implements environments.Images.
func (c *Cluster) PinImage(ctx context.Context, reference string) (runtime.ImagePin, error) {
	if reference == runtime.DefaultImage {
		return runtime.ImagePin{}, nil
	}
	return c.images.Resolve(ctx, reference)
}

// ImageStatus implements environments.Images.
func (c *Cluster) ImageStatus(pin runtime.ImagePin) runtime.ImageStatus {
	if pin.Digest == "" {
		return runtime.ImageStatus{}
	}
	return c.images.Status(pin.Digest)
}

func (c *Cluster) wantImage(env runtime.Environment) {
	if env.Pin.Digest != "" {
		c.images.Want(env.Image, env.Pin.Digest)
	}
}

// usedImages returns the digests of the images that environments and runners use. It returns nil
// while the environment of a restored runner is unknown: then no image may be deleted.
func (c *Cluster) usedImages() map[string]bool {
	used := map[string]bool{}
	var awaited []runtime.Environment
	for _, env := range c.allEnvironments() { // before the runners: a new runner's environment is one of these
		used[env.Pin.Digest] = true
		if env.Previous != nil {
			awaited = append(awaited, env)
		}
	}
	c.mu.Lock()
	known := c.restored
	for _, e := range c.entries {
		used[e.info.Environment.Pin.Digest] = true
		known = known && e.info.Environment.ID != ""
	}
	c.mu.Unlock()
	if !known {
		return nil
	}
	for _, env := range awaited { // until the new image is ready, runners are made from the previous revision
		if c.images.Status(env.Pin.Digest).State != runtime.ImageReady {
			used[env.Previous.Pin.Digest] = true
		}
	}
	return used
}

// imageChanged sends a hint for each environment whose runners are made from an image.
func (c *Cluster) imageChanged(digest string) {
	for _, env := range c.allEnvironments() {
		if env.Pin.Digest == digest {
			c.changes.Send(env.ID)
		}
	}
}

// RemoveImages deletes all images of a cluster that ran without root. Files of images may belong to
// subordinate ids, so removing the directory isn't enough. dir is the cluster's Config.Dir, and
// worker its ImageWorker. No server may be using dir.
func RemoveImages(ctx context.Context, dir, worker string) error {
	users, _ := launch.FindSubordinate() // without any, all files belong to this user
	direct := launch.Direct{Users: users, Worker: worker, Working: new(sync.WaitGroup)}
	defer direct.Working.Wait()
	return image.Remove(ctx, image.Config{Dir: filepath.Join(dir, "images"), Worker: direct.Work})
}
