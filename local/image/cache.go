package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/fault"
	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// Config says where a Cache is, and what it may take.
type Config struct {
	Dir      string        // all that it keeps
	Files    string        // where file: references lead to
	Image    tree.Limits   // of one image
	Bytes    int64         // that all images together take on the disk
	Within   time.Duration // how long one try to pull an image may take
	Skeleton tree.Skeleton

	Plain      []string      // registries that are asked without TLS; loopback ones always may be
	Registries []string      // hosts that may be asked, also where a registry leads to, or "*." and their domain; none: all
	CACert     string        // file of authorities whose certificates registries may have, beside the machine's; "": none
	Stall      time.Duration // how long 64 KiB of a registry's answer may take; 0: DefaultStall

	// Worker starts a process that may give files to any user of a range, and has it
	// work on a directory (see Work); nil: this process may itself, and does.
	Worker func(ctx context.Context, dir *os.File) (*net.UnixConn, error)
	// Owners names the range that Worker has, where there can be several.
	Owners string
	// Alone says that Worker has no range but one user, to whom it gives all files.
	Alone  bool
	Logger *zap.Logger
	// Used returns the digests of the images that something is, or is to be, made
	// from; nil where that isn't known now.
	Used func() map[string]bool
	// Changed is called when the status of an image has changed.
	Changed func(digest string)
}

// A Cache keeps images, and gets those that are wanted while Run runs. Its methods
// may be called at once.
type Cache struct {
	config     Config
	registries *registries
	leftovers  []string      // what an earlier process left half done
	wake       chan struct{} // capacity 1: a pull was added
	slots      chan struct{} // a token for each pull at work

	mu     sync.Mutex // guards all below; held across renames, and no other I/O
	images map[string]*stored
	pulls  map[string]*pull
	added  []*pull // that Run is to lead
}

// stored is an image that is there. It is its record, too.
type stored struct {
	Pin       runtime.ImagePin `json:"pin"`
	Reference string           `json:"reference"` // that it was pulled by
	Layers    int              `json:"layers"`
	Transfer  int64            `json:"transfer"`          // bytes that its layers were
	Bytes     int64            `json:"bytes"`             // that it takes
	Shifted   bool             `json:"shifted,omitempty"` // its files' owners are those of Config.Worker's range
	Owners    string           `json:"owners,omitempty"`  // and which range that is
	used      time.Time        // when it was seen in use last
}

// Names in Config.Dir, and in an image's directory there.
const (
	tempName   = "tmp"
	rootName   = "root"
	recordName = "image.json"
)

// pullsAtOnce bounds the images that are unpacked together.
const pullsAtOnce = 2

// Open opens the cache at config.Dir. What is half done there is not looked at;
// Run deletes it.
func Open(config Config) (*Cache, error) {
	registries, err := newRegistries(config)
	if err != nil {
		return nil, err
	}
	c := &Cache{
		config: config, registries: registries,
		wake: make(chan struct{}, 1), slots: make(chan struct{}, pullsAtOnce),
		images: map[string]*stored{}, pulls: map[string]*pull{},
	}
	if err := os.MkdirAll(c.temp(), 0o700); err != nil {
		return nil, err
	}
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
		if e.Name() == tempName {
			continue
		}
		if err := c.load(e.Name()); err != nil {
			config.Logger.Warn("an image isn't whole, and is pulled again where it is wanted", zap.String("directory", e.Name()), zap.Error(err))
			if err := c.discard(e.Name()); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// load takes in an image that is there.
func (c *Cache) load(name string) error {
	at := filepath.Join(c.config.Dir, name, recordName)
	text, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if directoryName(s.Pin.Digest) != name {
		return fmt.Errorf("it says that it is %q", s.Pin.Digest)
	}
	if s.Shifted != (c.config.Worker != nil) || s.Owners != c.config.Owners {
		return errors.New("its owners are those of another way to run the server, as root or not, or of other users")
	}
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	s.used = info.ModTime()
	c.images[s.Pin.Digest] = &s
	return nil
}

// discard makes an image's directory one that is to be deleted.
func (c *Cache) discard(name string) error {
	to, err := os.MkdirTemp(c.temp(), "old-*")
	if err != nil {
		return err
	}
	c.leftovers = append(c.leftovers, to)
	return os.Rename(filepath.Join(c.config.Dir, name), filepath.Join(to, name)) // it may be a file
}

// directoryName is where an image lies below Config.Dir.
func directoryName(digest string) string { return strings.Replace(digest, ":", "-", 1) }

func (c *Cache) temp() string { return filepath.Join(c.config.Dir, tempName) }

// Resolve returns what a reference means now. It asks nobody where that is an
// image by its digest that is there. INVALID_INPUT names the field image;
// CLUSTER_UNAVAILABLE means that the registry can't tell now.
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
	s, closer, err := c.open(ctx, ref, "")
	if err != nil {
		return runtime.ImagePin{}, err
	}
	defer closer.Close()
	c.retry(s.digest)
	return s.pin(c.config.Skeleton.Home, c.config.Skeleton.Directories)
}

// resolveWithin bounds what a client waits for.
const resolveWithin = 30 * time.Second

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

// open opens what a reference means; the registry's one by its digest, unless
// that is "".
func (c *Cache) open(ctx context.Context, ref reference, digest string) (*source, io.Closer, error) {
	if ref.registry == nil {
		return openFile(ctx, c.config.Files, ref)
	}
	s, err := c.registries.open(ctx, ref.registry, digest)
	return s, nothing{}, err
}

type nothing struct{}

func (nothing) Close() error { return nil }

// Root returns the directory of an image that is there.
func (c *Cache) Root(digest string) (string, error) {
	c.mu.Lock()
	s, ok := c.images[digest]
	if ok {
		s.used = time.Now()
	}
	c.mu.Unlock()
	dir := filepath.Join(c.config.Dir, directoryName(digest), rootName)
	if !ok {
		return "", fmt.Errorf("the image %s isn't here", digest)
	}
	_, err := os.Lstat(dir)
	return dir, err
}

// Status says how far the cache is with an image.
func (c *Cache) Status(digest string) runtime.ImageStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.images[digest]; ok {
		return runtime.ImageStatus{
			Digest: digest, State: runtime.ImageReady, Layers: s.Layers, LayersDone: s.Layers, Bytes: s.Transfer, BytesDone: s.Transfer,
		}
	}
	if p, ok := c.pulls[digest]; ok {
		return p.shown()
	}
	return runtime.ImageStatus{Digest: digest, State: runtime.ImagePulling}
}

// reserve is what pulls leave free on the disk, for what else the server
// writes there.
const reserve = 64 << 20

// room makes room for what pulls have yet to write, and returns STORAGE_FULL
// where there is none.
func (c *Cache) room(ctx context.Context) error {
	c.collect(ctx)
	c.mu.Lock()
	over := c.taken() - c.config.Bytes
	c.mu.Unlock()
	if over > 0 {
		return runtime.Errorf(runtime.CodeStorageFull, "the images that are in use leave no room for it in the %s that images may take: let it be more (--image-cache-bytes), or delete environments", fault.Size(c.config.Bytes))
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(c.config.Dir, &disk); err != nil {
		return err
	}
	if int64(disk.Bavail)*disk.Bsize < reserve || disk.Files > 0 && disk.Ffree < 1024 {
		return unix.ENOSPC
	}
	return nil
}

// taken is what images and pulls take now. The caller holds mu.
func (c *Cache) taken() (total int64) {
	for _, s := range c.images {
		total += s.Bytes
	}
	for _, p := range c.pulls {
		total += p.taken.Load()
	}
	return total
}

// collect deletes images that nobody uses until the others fit, those first that
// nobody has used for longest.
func (c *Cache) collect(ctx context.Context) {
	for {
		used := c.config.Used() // what is deleted takes a while
		if used == nil {
			return
		}
		c.mu.Lock()
		victim := c.victim(used)
		var away string
		if victim != nil {
			var err error
			if away, err = c.expel(victim); err != nil {
				c.config.Logger.Warn("an image could not be deleted", zap.String("digest", victim.Pin.Digest), zap.Error(err))
				victim = nil
			}
		}
		c.mu.Unlock()
		if victim == nil {
			return
		}
		if used := c.config.Used(); used == nil || used[victim.Pin.Digest] { // since just now, perhaps by a runner
			if err := c.giveBack(victim, away); err == nil {
				continue
			}
			c.Want(victim.Reference, victim.Pin.Digest)
		}
		c.config.Logger.Info("an image that nobody uses was deleted, to make room", zap.String("reference", victim.Reference), zap.String("digest", victim.Pin.Digest))
		if err := c.remove(ctx, away); err != nil {
			c.config.Logger.Warn("what is left of an image could not be deleted; the next start tries again", zap.Error(err))
		}
	}
}

// victim returns the image to be deleted next; nil: none. The caller holds mu.
func (c *Cache) victim(used map[string]bool) *stored {
	var unused []*stored
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
	return slices.MinFunc(unused, func(a, b *stored) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.Pin.Digest, b.Pin.Digest))
	})
}

// expel forgets an image, and moves it to where it can be deleted. The caller
// holds mu.
func (c *Cache) expel(s *stored) (away string, err error) {
	away = filepath.Join(c.temp(), fmt.Sprintf("old-%d", time.Now().UnixNano()))
	if err := os.Rename(filepath.Join(c.config.Dir, directoryName(s.Pin.Digest)), away); err != nil {
		return "", err
	}
	delete(c.images, s.Pin.Digest)
	return away, nil
}

// giveBack undoes expel.
func (c *Cache) giveBack(s *stored, away string) error {
	defer c.config.Changed(s.Pin.Digest)
	c.mu.Lock()
	defer c.mu.Unlock()
	err := os.Rename(away, filepath.Join(c.config.Dir, directoryName(s.Pin.Digest)))
	if err == nil {
		c.images[s.Pin.Digest] = s
	}
	return err
}

// note writes down when images were used last.
func (c *Cache) note() {
	c.mu.Lock()
	all := maps.Clone(c.images)
	times := map[string]time.Time{}
	for digest, s := range all {
		times[digest] = s.used
	}
	c.mu.Unlock()
	for digest, at := range times {
		_ = os.Chtimes(filepath.Join(c.config.Dir, directoryName(digest), recordName), at, at) // then another goes first
	}
}
