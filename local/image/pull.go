package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A pull is a wanted image that isn't stored yet.
type pull struct {
	digest string
	again  syncs.Hint // try immediately
	review syncs.Hint // it may be unused now

	reference string              // guarded by Cache.mu
	status    runtime.ImageStatus // guarded by Cache.mu; without BytesDone
	arrived   atomic.Int64        // bytes received of its layers
	taken     atomic.Int64        // bytes on the disk
}

// Want causes an image to be stored: it is pulled, with retries, until it is stored or unused. If a
// pull has failed, Want retries it immediately. After an error that retrying can't fix, only
// another Want retries. It doesn't wait.
func (c *Cache) Want(reference, digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.images[digest] != nil {
		return
	}
	p := c.pulls[digest]
	if p == nil {
		p = &pull{digest: digest, again: syncs.NewHint(), review: syncs.NewHint()}
		p.status = runtime.ImageStatus{Digest: digest, State: runtime.ImagePulling}
		c.pulls[digest] = p
		c.added = append(c.added, p)
	}
	p.reference = reference
	p.retry()
	c.wake.Send()
}

// retry restarts a failed pull: the image was just found at its registry.
func (c *Cache) retry(digest string) {
	defer c.config.Changed(digest)
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pulls[digest]; p != nil {
		p.retry()
	}
}

// retry resets a failed status and restarts the pull. The caller holds Cache.mu.
func (p *pull) retry() {
	if p.status.State == runtime.ImageFailed {
		p.status = runtime.ImageStatus{Digest: p.digest, State: runtime.ImagePulling}
	}
	p.again.Send()
}

// Review re-evaluates which pulls are wanted, after the result of Config.Used has changed.
func (c *Cache) Review() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pulls {
		p.review.Send()
	}
}

// Run pulls wanted images until ctx ends, and waits for its goroutines. It is called once.
func (c *Cache) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer c.registries.close()
	defer work.Wait()
	work.Go(func() {
		for _, path := range c.leftovers {
			if err := c.remove(ctx, path); err != nil {
				c.config.Logger.Warn("an image that an earlier server left incomplete couldn't be deleted", zap.Error(err))
			}
		}
		c.collect(ctx) // the limit may have changed
	})
	for {
		c.mu.Lock()
		added := c.added
		c.added = nil
		c.mu.Unlock()
		for _, p := range added {
			work.Go(func() { c.lead(ctx, p) })
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			c.storeUse()
			return
		}
	}
}

// Pauses of a failing pull: they grow from firstPause to lastPause.
const (
	firstPause = 2 * time.Second
	lastPause  = 5 * time.Minute
)

// lead pulls an image, with retries, until it is stored, unused, or ctx ends.
func (c *Cache) lead(ctx context.Context, p *pull) {
	for pauses := (backoff.Backoff{First: firstPause, Last: lastPause}); ; {
		p.again.Take() // this try serves the hint
		if c.unused(p) {
			return
		}
		err := c.slots.Do(ctx, func() error {
			if c.unused(p) { // it may be unused by now
				return nil
			}
			return c.try(ctx, p)
		})
		if err == nil || ctx.Err() != nil || c.forgotten(p) {
			return
		}
		c.fail(p, err)
		pause := pauses.Next()
		var later <-chan time.Time // stays nil if retrying can't help
		pausing, paused := errors.AsType[*pauseError](err)
		switch {
		case paused:
			later = time.After(max(pause, time.Until(pausing.Until)))
		case errors.Is(err, errLogin): // many failed logins can lock an account
			later = time.After(lastPause)
		case runtime.CodeOf(err) != runtime.CodeInvalidInput:
			later = time.After(pause)
		}
		if !c.pause(ctx, p, later) {
			return
		}
		c.change(p, func(s *runtime.ImageStatus) { *s = runtime.ImageStatus{Digest: p.digest, State: runtime.ImagePulling} })
	}
}

func (c *Cache) pause(ctx context.Context, p *pull, later <-chan time.Time) bool {
	for {
		select {
		case <-later:
			return true
		case <-p.again:
			return true
		case <-p.review:
			if c.unused(p) {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// unused drops a pull that is no longer wanted, and reports whether it did.
func (c *Cache) unused(p *pull) bool {
	used := c.config.Used()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p.again) > 0 || used == nil || used[p.digest] { // with a hint it was wanted again meanwhile
		return false
	}
	delete(c.pulls, p.digest)
	return true
}

func (c *Cache) forgotten(p *pull) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pulls[p.digest] != p
}

func (c *Cache) change(p *pull, change func(*runtime.ImageStatus)) {
	c.mu.Lock()
	change(&p.status)
	c.mu.Unlock()
	c.config.Changed(p.digest)
}

// fail records a pull's failure, with a reason for clients that names no path.
func (c *Cache) fail(p *pull, err error) {
	c.config.Logger.Warn("an image couldn't be pulled", zap.String("digest", p.digest), zap.Error(err))
	reason := "the server's log says why"
	known, explained := errors.AsType[*runtime.Error](err)
	switch {
	case tree.IsFull(err) && !explained:
		reason = "the server's disk is full: free some space in its data directory"
	case errors.Is(err, errSlow):
		reason = fmt.Sprintf("it took longer than %v, the limit of --image-timeout", c.config.Within)
	case explained:
		reason = known.Message
	}
	c.change(p, func(s *runtime.ImageStatus) { s.State, s.Reason = runtime.ImageFailed, reason })
}

const progressEvery = 250 * time.Millisecond

// try pulls an image once. A goroutine reports progress meanwhile; try waits for it.
func (c *Cache) try(ctx context.Context, p *pull) error {
	// Files are removed under run, since ctx may have timed out or been cancelled before that.
	run := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Within, errSlow)
	var reporting sync.WaitGroup
	defer reporting.Wait()
	defer cancel()
	reporting.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for seen := int64(0); ; {
			select {
			case <-tick.C:
				if now := p.arrived.Load(); now != seen {
					seen = now
					c.config.Changed(p.digest)
				}
			case <-p.review:
				if c.unused(p) {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	})
	began := time.Now()
	p.arrived.Store(0)
	dir, err := os.MkdirTemp(c.temp(), "pull-*")
	if err != nil {
		return err
	}
	defer p.taken.Store(0)
	s, err := c.fill(ctx, p, dir)
	if err == nil {
		err = c.keep(dir, s)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return errors.Join(err, c.remove(run, dir))
	}
	if err := c.remove(run, dir); err != nil { // it remains if the image was stored already
		return err
	}
	c.config.Logger.Info("an image was pulled", zap.String("reference", s.Reference), zap.String("digest", p.digest),
		zap.Int64("bytes", s.Bytes), zap.Duration("took", time.Since(began)))
	c.config.Changed(p.digest)
	c.collect(ctx)
	return nil
}

func (c *Cache) fill(ctx context.Context, p *pull, dir string) (*storedImage, error) {
	c.mu.Lock()
	reference := p.reference
	c.mu.Unlock()
	ref, err := parse(reference, c.config.Plain)
	if err != nil {
		return nil, err
	}
	source, err := c.open(ctx, ref, p.digest)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if source.digest != p.digest {
		return nil, tree.Invalid("the reference means another image than when the environment was put: put it again", nil)
	}
	pin, err := source.pin(c.config.Skeleton.Home, c.config.Skeleton.Directories)
	if err != nil {
		return nil, err
	}
	c.change(p, func(s *runtime.ImageStatus) { s.Layers, s.Bytes = len(source.layers), source.size() })
	room := func(taken int64) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.taken.Store(taken)
		return c.room(ctx)
	}
	if err := room(0); err != nil {
		return nil, err
	}
	f, err := c.unpacker(ctx, dir, source.config.Config.User, pin.WorkingDirectory, room)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for _, l := range source.layers {
		if err := unpack(ctx, f, l, &p.arrived); err != nil {
			return nil, err
		}
		c.change(p, func(s *runtime.ImageStatus) { s.LayersDone++ })
	}
	if err := f.Finish(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(f.Close(), room(f.Disk())); err != nil {
		return nil, err
	}
	s := &storedImage{Pin: pin, Reference: reference, Layers: len(source.layers), Transfer: source.size(), Bytes: f.Disk(), Shifted: c.config.Worker != nil, Owners: c.config.Owners, used: time.Now()}
	return s, s.write(dir)
}

func (s *storedImage) write(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, recordName), text, 0o600); err != nil {
		return err
	}
	return syncAll(dir, unix.Syncfs)
}

func syncAll(dir string, sync func(fd int) error) error {
	open, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer open.Close()
	return sync(int(open.Fd()))
}

func (c *Cache) keep(dir string, s *storedImage) error {
	if err := c.publish(dir, s); err != nil {
		return err
	}
	// An image whose rename is lost in a power failure is pulled again.
	if err := syncAll(c.config.Dir, unix.Fsync); err != nil {
		c.config.Logger.Warn("an image may be lost in a power failure, and would be pulled again", zap.String("digest", s.Pin.Digest), zap.Error(err))
	}
	return nil
}

// publish gives the image in dir its final name, and ends the pull. The image's contents are
// already on the disk, so an image with a final name is complete after a power failure.
func (c *Cache) publish(dir string, s *storedImage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.images[s.Pin.Digest] == nil {
		if err := os.Rename(dir, filepath.Join(c.config.Dir, directoryName(s.Pin.Digest))); err != nil {
			return err
		}
		c.images[s.Pin.Digest] = s
	}
	delete(c.pulls, s.Pin.Digest)
	return nil
}

func unpack(ctx context.Context, f unpacker, l layer, arrived *atomic.Int64) error {
	raw, err := l.open()
	if err != nil {
		return err
	}
	defer raw.Close()
	content, end, err := decompressed(bufio.NewReaderSize(&transfer{raw, arrived}, 64<<10))
	if err != nil {
		return tree.Explain(ctx, "", err)
	}
	defer end()
	sum := sha256.New()
	if err := f.Layer(ctx, io.TeeReader(content, sum)); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); l.diffID.Algorithm != "sha256" || got != l.diffID.Hex {
		return mismatch("layer", "sha256:"+got, l.diffID.String())
	}
	return nil
}

const maxWindow = 64 << 20

func decompressed(r *bufio.Reader) (content io.Reader, end func(), err error) {
	head, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	// A frame of zstd, or a skippable frame.
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.HasSuffix(head, []byte{0x2a, 0x4d, 0x18}):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return r, func() {}, nil
}

// A transfer counts the received bytes of a layer, and marks its errors as the source's.
type transfer struct {
	from    io.Reader
	arrived *atomic.Int64
}

func (t *transfer) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	t.arrived.Add(int64(n))
	if err != nil && err != io.EOF && !tree.HasMessage(err) {
		err = runtime.Wrap(runtime.CodeClusterUnavailable, err, "the transfer of a layer broke off, or the layer doesn't match its digest")
	}
	return n, err
}
