package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/need"
)

// withAndWithoutWorker runs a test with caches that unpack without a worker, and with ones that use
// a worker.
func withAndWithoutWorker(t *testing.T, test func(t *testing.T, worker func(*Config))) {
	t.Run("near", func(t *testing.T) { test(t, func(*Config) {}) })
	t.Run("far", func(t *testing.T) {
		var workers sync.WaitGroup
		t.Cleanup(workers.Wait)
		test(t, func(c *Config) {
			c.Worker = func(_ context.Context, dir *os.File) (*net.UnixConn, error) {
				return startWorker(&workers, dir, asItself)
			}
		})
	})
}

func asItself(do func()) { do() }

// startWorker runs a worker in this process, under the user of as.
func startWorker(workers *sync.WaitGroup, dir *os.File, as func(do func())) (*net.UnixConn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "end")
		conn, failed := net.FileConn(file)
		if err := errors.Join(failed, file.Close()); err != nil {
			return nil, err
		}
		ends[i] = conn.(*net.UnixConn)
	}
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	own := os.NewFile(uintptr(fd), dir.Name())
	workers.Go(func() {
		defer own.Close()
		defer ends[1].Close()
		as(func() { _ = Work(context.Background(), ends[1], own) }) // its error is reported over the connection
	})
	return ends[0], nil
}

// A worker without room is ended while it works.
func TestWorkerEndsWithoutRoom(t *testing.T) {
	t.Parallel()
	need.Sandboxes(t)
	dir := t.TempDir()
	var workers sync.WaitGroup
	t.Cleanup(workers.Wait)
	c := &Cache{config: Config{
		Image: tree.Limits{Bytes: 1 << 20, Entries: 1 << 20},
		Worker: func(_ context.Context, dir *os.File) (*net.UnixConn, error) {
			return startWorker(&workers, dir, asItself)
		},
	}}
	f, err := c.unpacker(t.Context(), dir, "", "", func(int64) error { return runtime.Errorf(runtime.CodeStorageFull, "no more") })
	if err != nil {
		t.Fatal(err)
	}
	many := make([]imagetest.Entry, 2*tree.RoomEveryEntries)
	for i := range many {
		many[i] = imagetest.File(fmt.Sprint(i), "")
	}
	if err := f.Layer(t.Context(), bytes.NewReader(imagetest.Layer(t, many...))); runtime.CodeOf(err) != runtime.CodeStorageFull {
		t.Errorf("a pull without room ends with %v, want STORAGE_FULL", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory stays open to everybody: %v, %v", info.Mode(), err)
	}
}

// A registry that sends hardly anything doesn't keep its slot, with or without a worker.
func TestStalledPullFreesItsSlot(t *testing.T) {
	t.Parallel()
	var drips atomic.Bool
	image := small(t, "drips")
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	registry := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !drips.Load() || !strings.HasSuffix(r.URL.Path, digest.String()) {
				next.ServeHTTP(w, r)
				return
			}
			for tick := time.NewTicker(100 * time.Millisecond); r.Context().Err() == nil; <-tick.C {
				_, _ = w.Write([]byte("x"))
				w.(http.Flusher).Flush()
			}
		})
	})
	withAndWithoutWorker(t, func(t *testing.T, worker func(*Config)) {
		drips.Store(false)
		b := newBox(t, t.TempDir(), func(c *Config) { c.Stall = 2 * time.Second; worker(c) })
		reference := registry.Push(image, "x:1")
		pin, err := b.Resolve(t.Context(), reference)
		if err != nil {
			t.Fatal(err)
		}
		drips.Store(true)
		b.use(pin.Digest, true)
		b.Want(reference, pin.Digest)
		if s := b.await(pin.Digest, runtime.ImageFailed, runtime.ImageReady); !strings.Contains(s.Reason, "--image-stall") {
			t.Errorf("%+v", s)
		}
		drips.Store(false)
		b.Want(reference, pin.Digest)
		b.await(pin.Digest, runtime.ImageReady)
		b.clean(pin.Digest)
	})
}
