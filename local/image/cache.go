// Package image turns container images into root file systems. It pulls images from registries, and
// reads OCI layouts and archives in one directory, through google/go-containerregistry. A stored
// image is complete and never changes.
//
// [Cache.Resolve] pins a reference to a digest. [Cache.Want] stores the image. It is pulled once,
// however many callers want it, and every byte is checked against the digest. It is unpacked
// beneath an os.Root with owners, modes and links, synced to the disk, and only then renamed to its
// final name. Incomplete pulls are deleted. A stored image is deleted only when it is unused and
// room is needed.
//
// Layers are untrusted. Nothing in them can reach outside the image's directory, make a device,
// give privileges, or exceed the limits of bytes, files and time.
package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// Config configures a Cache: its directory, its limits, and how it reaches registries.
type Config struct {
	Dir      string        // directory of everything that the cache keeps
	Files    string        // directory that file: references are relative to
	Image    tree.Limits   // limits of one image
	Bytes    int64         // limit of all images together on the disk
	Within   time.Duration // limit of one attempt to pull an image
	Skeleton tree.Skeleton

	Plain      []string      // registries to use without TLS; loopback ones are always allowed
	Registries []string      // allowed hosts, also for redirects of registries, or "*." and a domain; all hosts if there are none
	CACert     string        // file of certificate authorities, in addition to the machine's; may be empty
	Stall      time.Duration // longest time for 64 KiB of a registry's answer; 0 means DefaultStall

	// Worker starts a process that may give files to any user of a range, and that works on a
	// directory (see Work). Without one this process may do so itself.
	Worker func(ctx context.Context, dir *os.File) (*net.UnixConn, error)
	// Owners names the range of users of Worker, if there can be several.
	Owners string
	// Alone: the range of Worker is a single user, who owns all files.
	Alone  bool
	Logger *zap.Logger
	// Used returns the digests of the images that environments or runners use. It is nil while
	// that is unknown, so nothing may be deleted. It is called without the Cache's lock.
	Used func() map[string]bool
	// Changed is called when the status of an image has changed. It must not block.
	Changed func(digest string)
}

// A Cache stores images, and pulls wanted ones while Run runs. It is safe for concurrent use.
type Cache struct {
	config     Config
	registries *registries
	leftovers  []string        // incomplete or old directories, which Run deletes
	wake       syncs.Hint      // a pull was added
	slots      fairqueue.Slots // for pulls

	mu     sync.Mutex // guards the fields below; held across renames, but no other I/O
	images map[string]*storedImage
	pulls  map[string]*pull
	added  []*pull // pulls that Run hasn't started yet
}

// storedImage is a stored image, and its record on the disk.
type storedImage struct {
	Pin       runtime.ImagePin `json:"pin"`
	Reference string           `json:"reference"` // the reference that it was pulled by
	Layers    int              `json:"layers"`
	Transfer  int64            `json:"transfer"`          // bytes of its layers as transferred
	Bytes     int64            `json:"bytes"`             // bytes on the disk
	Shifted   bool             `json:"shifted,omitempty"` // its files belong to users of Config.Worker's range
	Owners    string           `json:"owners,omitempty"`  // Config.Owners when it was pulled
	used      time.Time        // when it was last seen in use
}

// Names in Config.Dir, and in an image's directory there.
const (
	tempName   = "tmp"
	rootName   = "root"
	recordName = "image.json"
)

const pullsAtOnce = 2

// Open opens the cache in config.Dir. It deletes nothing: Run deletes incomplete images.
func Open(config Config) (*Cache, error) {
	registries, err := newRegistries(config)
	if err != nil {
		return nil, err
	}
	c := &Cache{
		config: config, registries: registries,
		wake: syncs.NewHint(), slots: make(fairqueue.Slots, pullsAtOnce),
		images: map[string]*storedImage{}, pulls: map[string]*pull{},
	}
	if err := os.MkdirAll(c.temp(), 0o700); err != nil {
		return nil, err
	}
	// Everything in there is left of an interrupted pull or deletion.
	left, err := os.ReadDir(c.temp())
	if err != nil {
		return nil, err
	}
	for _, e := range left {
		c.leftovers = append(c.leftovers, filepath.Join(c.temp(), e.Name()))
	}
	entries, err := os.ReadDir(config.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() == tempName || e.Name() == pausesName {
			continue
		}
		if err := c.load(e.Name()); err != nil {
			config.Logger.Warn("an image is incomplete; it is pulled again if it is wanted", zap.String("directory", e.Name()), zap.Error(err))
			if err := c.discard(e.Name()); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (c *Cache) load(name string) error {
	at := filepath.Join(c.config.Dir, name, recordName)
	text, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	var s storedImage
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if directoryName(s.Pin.Digest) != name {
		return fmt.Errorf("its record is of %q", s.Pin.Digest)
	}
	if s.Shifted != (c.config.Worker != nil) || s.Owners != c.config.Owners {
		return errors.New("its files belong to other users: the server was started as another user or with other subordinate ids")
	}
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	s.used = info.ModTime()
	c.images[s.Pin.Digest] = &s
	return nil
}

// discard moves an image's directory to where Run deletes it.
func (c *Cache) discard(name string) error {
	to, err := os.MkdirTemp(c.temp(), "old-*")
	if err != nil {
		return err
	}
	c.leftovers = append(c.leftovers, to)
	// Into a new directory, because name may be a file.
	return os.Rename(filepath.Join(c.config.Dir, name), filepath.Join(to, name))
}

func directoryName(digest string) string { return strings.Replace(digest, ":", "-", 1) }

func (c *Cache) temp() string { return filepath.Join(c.config.Dir, tempName) }

// Resolve returns the image that a reference refers to now. For the digest of a stored image it
// sends no request. INVALID_INPUT names the field image. It returns CLUSTER_UNAVAILABLE
// if the registry can't answer now. It takes at most 30 s.
func (c *Cache) Resolve(ctx context.Context, text string) (runtime.ImagePin, error) {
	ref, err := parse(text, c.config.Plain)
	if err != nil {
		return runtime.ImagePin{}, err
	}
	if pin, ok := c.pinned(ref); ok {
		return pin, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, resolveWithin, errSlow)
	defer cancel()
	s, err := c.open(ctx, ref, "")
	if err != nil {
		return runtime.ImagePin{}, err
	}
	defer s.Close()
	c.retry(s.digest)
	return s.pin(c.config.Skeleton.Home, c.config.Skeleton.Directories)
}

const resolveWithin = 30 * time.Second

// errSlow is the cause of a context whose time for resolving or pulling is used up.
var errSlow = errors.New("it took too long")

func (c *Cache) pinned(ref reference) (runtime.ImagePin, bool) {
	if ref.registry == nil {
		return runtime.ImagePin{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.images[ref.registry.Identifier()]
	if !ok {
		return runtime.ImagePin{}, false
	}
	return s.Pin, true
}

// open opens the source of a reference, or of a digest unless that is "". The caller closes it.
func (c *Cache) open(ctx context.Context, ref reference, digest string) (*source, error) {
	if ref.registry == nil {
		return openFile(ctx, c.config.Files, ref)
	}
	return c.registries.open(ctx, ref.registry, digest)
}

// Root returns the root directory of a stored image, and marks the image as used.
func (c *Cache) Root(digest string) (string, error) {
	c.mu.Lock()
	s, ok := c.images[digest]
	if ok {
		s.used = time.Now()
	}
	c.mu.Unlock()
	dir := filepath.Join(c.config.Dir, directoryName(digest), rootName)
	if !ok {
		return "", fmt.Errorf("the image %s isn't stored here", digest)
	}
	_, err := os.Lstat(dir)
	return dir, err
}

// Status returns an image's state. One that is neither stored nor wanted counts as being pulled.
func (c *Cache) Status(digest string) runtime.ImageStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.images[digest]; ok {
		return runtime.ImageStatus{
			Digest: digest, State: runtime.ImageReady, Layers: s.Layers, LayersDone: s.Layers, Bytes: s.Transfer, BytesDone: s.Transfer,
		}
	}
	if p, ok := c.pulls[digest]; ok {
		s := p.status
		s.BytesDone = p.arrived.Load()
		return s
	}
	return runtime.ImageStatus{Digest: digest, State: runtime.ImagePulling}
}

// reserve is how many bytes of disk pulls leave free for the server's other data.
const reserve = 64 << 20

// room deletes unused images to make room. It returns STORAGE_FULL or ENOSPC if that isn't enough.
func (c *Cache) room(ctx context.Context) error {
	c.collect(ctx)
	c.mu.Lock()
	over := c.taken() - c.config.Bytes
	c.mu.Unlock()
	if over > 0 {
		return runtime.Errorf(runtime.CodeStorageFull, "the images in use and this one exceed the limit of %s for images: raise --image-cache-bytes, or delete environments", tree.FormatSize(c.config.Bytes))
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(c.config.Dir, &disk); err != nil {
		return err
	}
	// Files is 0 on file systems without a limit of inodes.
	if int64(disk.Bavail)*disk.Bsize < reserve || disk.Files > 0 && disk.Ffree < 1024 {
		return unix.ENOSPC
	}
	return nil
}

func (c *Cache) taken() (total int64) {
	for _, s := range c.images {
		total += s.Bytes
	}
	for _, p := range c.pulls {
		total += p.taken.Load()
	}
	return total
}

// collect deletes unused images, least recently used ones first, until the others are within the limit.
func (c *Cache) collect(ctx context.Context) {
	for {
		used := c.config.Used() // again for each image: deleting takes a while
		if used == nil {
			return
		}
		c.mu.Lock()
		victim := c.victim(used)
		var away string
		if victim != nil {
			var err error
			// Under the lock it is only renamed, because deleting takes a while.
			if away, err = c.expel(victim); err != nil {
				c.config.Logger.Warn("an image couldn't be deleted", zap.String("digest", victim.Pin.Digest), zap.Error(err))
				victim = nil
			}
		}
		c.mu.Unlock()
		if victim == nil {
			return
		}
		if used := c.config.Used(); used == nil || used[victim.Pin.Digest] { // used since then, perhaps by a runner
			if err := c.restore(victim, away); err == nil {
				continue
			}
			c.Want(victim.Reference, victim.Pin.Digest)
		}
		c.config.Logger.Info("an unused image was deleted to make room", zap.String("reference", victim.Reference), zap.String("digest", victim.Pin.Digest))
		if err := c.remove(ctx, away); err != nil {
			c.config.Logger.Warn("an unused image couldn't be deleted completely; the next start retries", zap.Error(err))
		}
	}
}

// victim returns the image to delete next, if there is one. The caller holds mu.
func (c *Cache) victim(used map[string]bool) *storedImage {
	var unused []*storedImage
	now := time.Now()
	for digest, s := range c.images {
		if used[digest] {
			s.used = now
		} else {
			unused = append(unused, s)
		}
	}
	if len(unused) == 0 || c.taken() <= c.config.Bytes {
		return nil
	}
	return slices.MinFunc(unused, func(a, b *storedImage) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.Pin.Digest, b.Pin.Digest))
	})
}

// expel moves an image to where it can be deleted. The caller holds mu.
func (c *Cache) expel(s *storedImage) (away string, err error) {
	away = filepath.Join(c.temp(), fmt.Sprintf("old-%d", time.Now().UnixNano()))
	if err := os.Rename(filepath.Join(c.config.Dir, directoryName(s.Pin.Digest)), away); err != nil {
		return "", err
	}
	delete(c.images, s.Pin.Digest)
	return away, nil
}

func (c *Cache) restore(s *storedImage, away string) error {
	defer c.config.Changed(s.Pin.Digest)
	c.mu.Lock()
	defer c.mu.Unlock()
	err := os.Rename(away, filepath.Join(c.config.Dir, directoryName(s.Pin.Digest)))
	if err == nil {
		c.images[s.Pin.Digest] = s
	}
	return err
}

// storeUse stores when images were last used, as the modification times of their records.
func (c *Cache) storeUse() {
	times := map[string]time.Time{}
	c.mu.Lock()
	for digest, s := range c.images {
		times[digest] = s.used
	}
	c.mu.Unlock()
	for digest, at := range times {
		// An error only affects the order of deletion.
		_ = os.Chtimes(filepath.Join(c.config.Dir, directoryName(digest), recordName), at, at)
	}
}
