package image

import (
	"archive/tar"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("ROCKPOOL_TEST_PULL"); dir != "" {
		pullUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

// A box is a running cache.
type box struct {
	*Cache
	t    testing.TB
	stop func()

	mu      sync.Mutex // guards all below
	used    map[string]bool
	changes int
}

func newBox(t testing.TB, dir string, change func(*Config)) *box {
	t.Helper()
	need.Sandboxes(t)
	b := &box{t: t, used: map[string]bool{}}
	config := Config{
		Dir: dir, Files: t.TempDir(), Image: tree.Limits{Bytes: 8 << 20, Entries: 1000}, Bytes: 64 << 20, Within: wait.Limit,
		Skeleton: tree.Skeleton{Directories: []string{"/proc", "/workspace"}, Files: map[string]string{"/etc/hosts": "127.0.0.1 localhost\n"}, Home: "/workspace"},
		Logger:   zap.NewNop(),
		Used: func() map[string]bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			all := map[string]bool{}
			for digest := range b.used {
				all[digest] = true
			}
			return all
		},
		Changed: func(string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changes++
		},
	}
	if change != nil {
		change(&config)
	}
	var err error
	if b.Cache, err = Open(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(b.stop)
	return b
}

func (b *box) use(digest string, used bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if used {
		b.used[digest] = true
	} else {
		delete(b.used, digest)
	}
}

// want resolves a reference, and returns the final status of its image.
func (b *box) want(reference string) runtime.ImageStatus {
	b.t.Helper()
	pin, err := b.Resolve(b.t.Context(), reference)
	if err != nil {
		b.t.Fatal(err)
	}
	b.use(pin.Digest, true)
	b.Want(reference, pin.Digest)
	return b.await(pin.Digest, runtime.ImageReady, runtime.ImageFailed)
}

func (b *box) await(digest string, states ...runtime.ImageState) runtime.ImageStatus {
	b.t.Helper()
	wait.For(b.t, fmt.Sprintf("the image is %s", states), func() bool {
		for _, s := range states {
			if b.Status(digest).State == s {
				return true
			}
		}
		return false
	})
	return b.Status(digest)
}

// clean fails the test if there are incomplete images, or others than these.
func (b *box) clean(images ...string) {
	b.t.Helper()
	wait.For(b.t, "nothing half done is left", func() bool {
		left, err := os.ReadDir(b.temp())
		return err == nil && len(left) == 0
	})
	entries, err := os.ReadDir(b.config.Dir)
	if err != nil || len(entries) != len(images)+1 {
		b.t.Errorf("the cache has %v (%v), not %q", entries, err, images)
	}
	for _, digest := range images {
		if _, err := b.Root(digest); err != nil {
			b.t.Error(err)
		}
	}
}

// small returns an image with one file with this text.
func small(t testing.TB, text string) v1.Image {
	return imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("file", text)))
}

func TestPulledImageIsStored(t *testing.T) {
	b := newBox(t, t.TempDir(), nil)
	registry := imagetest.NewRegistry(t, nil)
	image := imagetest.Image(t, v1.Config{Env: []string{"A=b=c", "PATH=/x"}, User: "app:staff", WorkingDir: "/srv/app", Entrypoint: []string{"/nothing"}},
		imagetest.Layer(t, imagetest.File("etc/passwd", "root:x:0:0:r:/root:/bin/sh\napp:x:70:71:An App:/home/app:/bin/ash\nother:x:1000:1000::/:\n"), imagetest.File("etc/group", "staff:x:50:\n"),
			imagetest.Entry{Header: tar.Header{Name: "own", Mode: 0o600, Uid: 70, Gid: 50}}, imagetest.Kind(tar.TypeLink, "again", "own"),
			imagetest.Entry{Header: tar.Header{Name: "theirs", Mode: 0o600, Uid: 1000, Gid: 1000}}, imagetest.File("proc", "a file"), imagetest.Kind(tar.TypeSymlink, "etc/hosts", "/own"), imagetest.File("workspace/seen", "x")),
		imagetest.Layer(t, imagetest.File("two", "2")))
	reference := registry.Push(image, "some/image:v1")
	status := b.want(reference)
	digest := imagetest.Digest(t, image)
	if status.State != runtime.ImageReady || status.Layers != 2 || status.LayersDone != 2 || status.Bytes == 0 || status.BytesDone != status.Bytes || status.Digest != digest {
		t.Fatalf("%+v", status)
	}
	root, err := b.Root(digest)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"two": "2", "etc/hosts": "127.0.0.1 localhost\n",
		"etc/passwd": "app:x:1000:1000:app:/workspace:/bin/sh\nroot:x:0:0:r:/root:/bin/sh\nother:x:70:50::/:\n",
		"etc/group":  "app:x:1000:\nstaff:x:1000:\n",
	} {
		if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(text) != want {
			t.Errorf("%s is %q (%v)", name, text, err)
		}
	}
	for name, want := range map[string]uint32{"own": tree.User, "again": tree.User, "theirs": 70} {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, name), &stat); err != nil || stat.Uid != want {
			t.Errorf("%s is of %d (%v), not %d", name, stat.Uid, err, want)
		}
	}
	for _, name := range []string{"proc", "workspace", "srv/app"} {
		if info, err := os.Lstat(filepath.Join(root, name)); err != nil || !info.IsDir() {
			t.Errorf("%s is %v (%v)", name, info, err)
		}
	}
	if seen, err := os.ReadDir(filepath.Join(root, "workspace")); err != nil || len(seen) > 0 {
		t.Errorf("a path in the runner has %v (%v)", seen, err)
	}
	b.clean(digest)
	b.stop()
	registry.Stop()

	// The next process finds it, without any registry.
	again := newBox(t, b.config.Dir, nil)
	pin, err := again.Resolve(t.Context(), strings.TrimSuffix(reference, ":v1")+"@"+digest)
	want := runtime.ImagePin{Digest: digest, WorkingDirectory: "/srv/app", User: "app", Variables: []runtime.Variable{{Name: "A", Value: "b=c"}, {Name: "PATH", Value: "/x"}}}
	if err != nil || fmt.Sprint(pin) != fmt.Sprint(want) {
		t.Errorf("%+v %v", pin, err)
	}
	if s := again.Status(digest); s != status {
		t.Errorf("%+v, not %+v", s, status)
	}
	if _, err := again.Resolve(t.Context(), reference); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("a tag, without the registry: got %v, want CLUSTER_UNAVAILABLE", err)
	}
}

func TestImagesFromFiles(t *testing.T) {
	b := newBox(t, t.TempDir(), nil)
	one, two := small(t, "one"), small(t, "two")
	layoutDir := filepath.Join(b.config.Files, "layout")
	l, err := layout.Write(layoutDir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for tag, image := range map[string]v1.Image{"one": one, "two": two} {
		if err := l.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("tar", "-C", layoutDir, "-cf", filepath.Join(b.config.Files, "oci.tar"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	tag, err := name.NewTag("example.org/one:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(b.config.Files, "saved.tar"), tag, one); err != nil {
		t.Fatal(err)
	}
	for reference, text := range map[string]string{
		"file:layout#one": "one", "file:layout#two": "two", "file:oci.tar#two": "two", "file:saved.tar": "one", "file:saved.tar#example.org/one:1": "one",
	} {
		s := b.want(reference)
		if s.State != runtime.ImageReady {
			t.Errorf("%s: %+v", reference, s)
			continue
		}
		root, _ := b.Root(s.Digest)
		if got, err := os.ReadFile(filepath.Join(root, "file")); err != nil || string(got) != text {
			t.Errorf("%s: %q %v", reference, got, err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.config.Files, "junk.tar"), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(b.config.Files, "etc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.config.Files, "pipes"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, pipe := range []string{"pipe.tar", "pipes/index.json"} {
		if err := unix.Mkfifo(filepath.Join(b.config.Files, pipe), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for reference, says := range map[string]string{
		"file:pipe.tar": "pipe.tar", "file:pipes": "pipes", "file:layout": "#", "file:layout#three": "three", "file:nothing": "image-files", "file:junk.tar": "tar",
		"file:../x": "..", "file:/etc": "..", "file:": "file:", "file:saved.tar#x": "example.org/one:1", "file:etc/passwd": "etc/passwd",
	} {
		_, err := b.Resolve(t.Context(), reference)
		if refusal.Want(t, err, runtime.CodeInvalidInput, "image", reference); !strings.Contains(runtime.MessageOf(err), says) {
			t.Errorf("%s: got %v, want %q in it", reference, err, says)
		}
	}
	there := b.config.Files + "-away"
	if err := os.Rename(b.config.Files, there); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Resolve(t.Context(), "file:saved.tar"); runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(runtime.MessageOf(err), "image-files") {
		t.Errorf("without the directory: got %v, want INVALID_INPUT that names it", err)
	}
	if err := os.Rename(there, b.config.Files); err != nil {
		t.Fatal(err)
	}
	// The file has changed by the time it is pulled.
	pin, err := b.Resolve(t.Context(), "file:saved.tar")
	if err != nil {
		t.Fatal(err)
	}
	other := "sha256:" + strings.Repeat("0", 64)
	b.use(other, true)
	b.Want("file:saved.tar", other)
	if s := b.await(other, runtime.ImageFailed); !strings.Contains(s.Reason, "another image than when") || pin.Digest == other {
		t.Errorf("%+v", s)
	}
}

// Errors are reported in time, and leave nothing.
func TestPullErrorsAreReported(t *testing.T) {
	t.Parallel()
	withAndWithoutWorker(t, pullErrorsAreReported)
}

func pullErrorsAreReported(t *testing.T, worker func(*Config)) {
	var broken atomic.Value // how the registry behaves
	broken.Store("")
	registry := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			blob := r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
			switch how := broken.Load(); {
			case how == "down":
				w.WriteHeader(http.StatusServiceUnavailable)
			case how == "private":
				w.WriteHeader(http.StatusUnauthorized)
			case how == "bytes" && blob:
				w.Header().Set("Content-Length", "5")
				_, _ = w.Write([]byte("other"))
			case how == "hangs" && blob:
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	b := newBox(t, t.TempDir(), func(c *Config) { c.Image.Entries = 100; worker(c) })
	impatient := newBox(t, t.TempDir(), func(c *Config) { c.Within = 100 * time.Millisecond; worker(c) })
	fine := registry.Push(small(t, "fine"), "fine:1")
	for _, c := range []struct {
		how, reference string
		code           runtime.Code
		says           string
	}{
		{"", "no reference!", runtime.CodeInvalidInput, ""},
		{"", registry.Host + "/nothing:1", runtime.CodeInvalidInput, "/nothing:1"},
		{"", registry.Host + "/fine@sha256:" + strings.Repeat("1", 64), runtime.CodeInvalidInput, "/fine@sha256:111"},
		{"", "127.0.0.1:1/x:1", runtime.CodeClusterUnavailable, syscall.ECONNREFUSED.Error()},
		{"down", fine, runtime.CodeClusterUnavailable, "503"},
		{"private", fine, runtime.CodeInvalidInput, "log in"},
		{"bytes", fine, runtime.CodeClusterUnavailable, ""},
	} {
		broken.Store(c.how)
		if _, err := b.Resolve(t.Context(), c.reference); runtime.CodeOf(err) != c.code || !strings.Contains(runtime.MessageOf(err), c.says) {
			t.Errorf("%s %s: got %v, want %s with %q", c.how, c.reference, err, c.code, c.says)
		}
	}
	broken.Store("")
	foreign := imagetest.Image(t, v1.Config{}, imagetest.Layer(t))
	config, err := foreign.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.Architecture = "s390x"
	if foreign, err = mutate.ConfigFile(foreign, config); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Resolve(t.Context(), registry.Push(foreign, "foreign:1")); runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(runtime.MessageOf(err), "s390x") {
		t.Errorf("another platform: got %v, want INVALID_INPUT that names s390x", err)
	}
	bomb := registry.Push(imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("a", strings.Repeat("x", 9<<20)))), "bomb:1")
	many := make([]imagetest.Entry, 101)
	for i := range many {
		many[i] = imagetest.File(fmt.Sprint(i), "")
	}
	lying := imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("a", "1")))
	if config, err = lying.ConfigFile(); err != nil {
		t.Fatal(err)
	}
	config.RootFS.DiffIDs[0].Hex = strings.Repeat("2", 64)
	if lying, err = mutate.ConfigFile(lying, config); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ how, reference, says string }{
		{"", bomb, "more than 8192 KiB"},
		{"", registry.Push(imagetest.Image(t, v1.Config{}, imagetest.Layer(t, many...)), "many:1"), "more than 100 files"},
		{"", registry.Push(lying, "lying:1"), "doesn't match its digest"},
		{"hangs", registry.Push(small(t, "hangs"), "hangs:1"), "--image-timeout"},
		{"bytes", registry.Push(small(t, "bytes"), "bytes:1"), "is unreachable"},
	} {
		asked := b
		if c.how == "hangs" {
			asked = impatient
		}
		pin, err := asked.Resolve(t.Context(), c.reference)
		if err != nil {
			t.Fatal(err)
		}
		broken.Store(c.how)
		asked.use(pin.Digest, true)
		asked.Want(c.reference, pin.Digest)
		if s := asked.await(pin.Digest, runtime.ImageFailed, runtime.ImageReady); s.State != runtime.ImageFailed || !strings.Contains(s.Reason, c.says) {
			t.Errorf("%s %s: %+v", c.how, c.reference, s)
		}
		broken.Store("")
	}
	for digest := range b.config.Used() { // failed pulls are no longer retried
		b.use(digest, false)
	}
	b.Review()
	wait.For(t, "no pull goes on", func() bool { b.Cache.mu.Lock(); defer b.Cache.mu.Unlock(); return len(b.pulls) == 0 })
	b.clean()
}

func TestFailedPullIsRetried(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	registry := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	b := newBox(t, t.TempDir(), nil)
	reference := registry.Push(small(t, "x"), "x:1")
	pin, err := b.Resolve(t.Context(), reference)
	if err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	b.use(pin.Digest, true)
	b.Want(reference, pin.Digest)
	b.await(pin.Digest, runtime.ImageFailed)
	down.Store(false)
	b.await(pin.Digest, runtime.ImageReady) // without another Want
}

func TestImageIsPulledOnce(t *testing.T) {
	var blobs atomic.Int64
	registry := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				blobs.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	b := newBox(t, t.TempDir(), nil)
	reference := registry.Push(small(t, "x"), "x:1")
	pin, err := b.Resolve(t.Context(), reference)
	if err != nil {
		t.Fatal(err)
	}
	b.use(pin.Digest, true)
	before := blobs.Load()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { b.Want(reference, pin.Digest) })
	}
	all.Wait()
	b.await(pin.Digest, runtime.ImageReady)
	b.Want(reference, pin.Digest)
	if n := blobs.Load() - before; n != 2 { // its configuration, and its layer
		t.Errorf("%d blobs were requested, want 2", n)
	}
	b.clean(pin.Digest)
}

func TestUnusedImagesAreDeletedToMakeRoom(t *testing.T) {
	t.Parallel()
	withAndWithoutWorker(t, unusedImagesAreDeletedToMakeRoom)
}

func unusedImagesAreDeletedToMakeRoom(t *testing.T, worker func(*Config)) {
	registry := imagetest.NewRegistry(t, nil)
	b := newBox(t, t.TempDir(), func(c *Config) { c.Bytes = 5 << 20; worker(c) })
	var digests []string
	for i := range 4 {
		image := imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("file", strings.Repeat(fmt.Sprint(i), 2<<20))))
		digests = append(digests, imagetest.Digest(t, image))
		reference := registry.Push(image, fmt.Sprintf("x:%d", i))
		if s := b.want(reference); i < 3 && s.State != runtime.ImageReady {
			t.Fatalf("%+v", s)
		} else if i == 3 && (s.State != runtime.ImageFailed || !strings.Contains(s.Reason, "--image-cache-bytes")) {
			t.Fatalf("without room: %+v", s)
		}
		if i == 0 {
			b.use(digests[0], false)
		}
	}
	// The first was deleted for the third. The last doesn't fit, because the others are in use.
	b.clean(digests[1], digests[2])
	b.use(digests[1], false)
	b.Want(registry.Host+"/x:3", digests[3])
	b.await(digests[3], runtime.ImageReady)
	b.clean(digests[2], digests[3])
}
