package image

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// TestFullDisk pulls to a disk without enough space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	need.Sandboxes(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", reserve+4<<20)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	b := newBox(t, dir, nil)
	registry := imagetest.NewRegistry(t, nil)
	image := small(t, "fits")
	if s := b.want(registry.Push(image, "fits:1")); s.State != runtime.ImageReady {
		t.Fatalf("%+v", s)
	}
	if err := os.WriteFile(filepath.Join(dir, "ballast"), bytes.Repeat([]byte("x"), 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := b.want(registry.Push(small(t, "doesn't"), "full:1"))
	if s.State != runtime.ImageFailed || !strings.Contains(s.Reason, "disk is full") {
		t.Errorf("%+v", s)
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	b.await(s.Digest, runtime.ImageReady)
	b.clean(imagetest.Digest(t, image), s.Digest)
}

// pullUntilKilled is another process, which pulls and is killed.
func pullUntilKilled(dir string) {
	used := map[string]bool{os.Getenv("ROCKPOOL_TEST_DIGEST"): true}
	c, err := Open(Config{
		Dir: dir, Image: tree.Limits{Bytes: 1 << 30, Entries: 1000}, Bytes: 1 << 30, Within: time.Minute, Logger: zap.NewNop(),
		Used: func() map[string]bool { return used }, Changed: func(string) {},
	})
	if err != nil {
		panic(err)
	}
	c.Want(os.Getenv("ROCKPOOL_TEST_REFERENCE"), os.Getenv("ROCKPOOL_TEST_DIGEST"))
	c.Run(context.Background())
}

// TestKilledPullLeavesNothing kills a process while it unpacks, after several parts of a layer. The
// registry holds the rest back.
func TestKilledPullLeavesNothing(t *testing.T) {
	need.Sandboxes(t)
	big := imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("a", strings.Repeat("a", 3<<20)), imagetest.File("b", strings.Repeat("b", 3<<20))), imagetest.Layer(t, imagetest.File("c", "c")))
	layers, err := big.Layers()
	if err != nil {
		t.Fatal(err)
	}
	first, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	const parts = 6
	var part, held atomic.Int64 // how many parts are sent; how many requests wait for the rest
	part.Store(parts)
	registry := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || part.Load() == parts || !strings.HasSuffix(r.URL.Path, first.String()) {
				next.ServeHTTP(w, r)
				return
			}
			whole := httptest.NewRecorder()
			next.ServeHTTP(whole, r)
			w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()))
			_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()*int(part.Load())/parts])
			w.(http.Flusher).Flush()
			held.Add(1)
			<-r.Context().Done()
		})
	})
	reference, digest := registry.Push(big, "big:1"), imagetest.Digest(t, big)
	dir := t.TempDir()
	for i := range int64(parts) {
		part.Store(i)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "ROCKPOOL_TEST_PULL="+dir, "ROCKPOOL_TEST_REFERENCE="+reference, "ROCKPOOL_TEST_DIGEST="+digest)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "it has unpacked all sent parts", func() bool {
			begun, _ := filepath.Glob(filepath.Join(dir, tempName, "pull-*", rootName, map[bool]string{true: "a", false: "b"}[i <= parts/2]))
			return held.Load() > i && (i == 0 || len(begun) > 0)
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if left, _ := filepath.Glob(filepath.Join(dir, tempName, "pull-*")); len(left) == 0 {
			t.Errorf("after %d of %d parts there is nothing to clean up", i, parts)
		}
	}
	part.Store(parts)
	b := newBox(t, dir, nil)
	if s := b.want(reference); s.State != runtime.ImageReady {
		t.Fatalf("%+v", s)
	}
	root, _ := b.Root(digest)
	if text, err := os.ReadFile(filepath.Join(root, "b")); err != nil || len(text) != 3<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	b.clean(digest)
}

// An unused pull is cancelled immediately, and one that waits for a slot doesn't start.
func TestUnusedPullIsCancelled(t *testing.T) {
	var hangs, third atomic.Int64
	registry := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case hangs.Load() < 0:
			case strings.Contains(r.URL.Path, "/x3/"):
				third.Add(1)
			case strings.Contains(r.URL.Path, "/blobs/"):
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				hangs.Add(1)
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	hangs.Store(-1)
	b := newBox(t, t.TempDir(), nil)
	var references, digests []string
	for i := range 3 {
		name := fmt.Sprintf("x%d", i+1)
		references = append(references, registry.Push(small(t, name), name+":1"))
		pin, err := b.Resolve(t.Context(), references[i])
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, pin.Digest)
	}
	hangs.Store(0)
	for i := range 3 {
		b.use(digests[i], true)
		b.Want(references[i], digests[i])
		wait.For(t, "the registry holds the pulls", func() bool { return hangs.Load() == int64(min(i+1, pullsAtOnce)) })
	}
	for _, digest := range digests {
		b.use(digest, false)
	}
	b.Review()
	wait.For(t, "no pull goes on", func() bool { b.Cache.mu.Lock(); defer b.Cache.mu.Unlock(); return len(b.pulls) == 0 })
	if n := third.Load(); n > 0 {
		t.Errorf("%d requests for an unwanted image", n)
	}
	b.clean()
}

// An image that comes into use while room is made keeps its files: a runner may use them already.
func TestImageUsedDuringCollectionIsKept(t *testing.T) {
	registry := imagetest.NewRegistry(t, nil)
	var asks atomic.Int64 // below 0: not counted
	asks.Store(-1)
	b := newBox(t, t.TempDir(), func(c *Config) {
		used := c.Used
		c.Used = func() map[string]bool {
			if n := asks.Load(); n >= 0 && asks.Add(1) == 1 {
				return map[string]bool{}
			}
			return used()
		}
	})
	s := b.want(registry.Push(imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("a", strings.Repeat("x", 1<<20)))), "x:1"))
	b.stop()
	root, err := b.Root(s.Digest)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(root)
	if err != nil {
		t.Fatal(err)
	}
	b.config.Bytes = 1
	asks.Store(0)
	b.collect(t.Context())
	if after, err := os.Stat(root); err != nil || !os.SameFile(before, after) || b.Status(s.Digest).State != runtime.ImageReady {
		t.Errorf("%+v, %v", b.Status(s.Digest), err)
	}
	if asks.Load() < 2 {
		t.Error("no image was about to be deleted")
	}
	b.clean(s.Digest)
}

// Other files in the cache's directory are removed, and don't prevent the server's start.
func TestStrayFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sha256-half"), 0o700); err != nil {
		t.Fatal(err)
	}
	newBox(t, dir, nil).clean()
}
