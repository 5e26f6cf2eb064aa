package image

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// paceBytes is how many bytes of a registry's answer must arrive within Config.Stall: about 1 KiB/s
// by default. A slower answer would occupy one of the slots for pulls until the pull times out. It
// is also the size of a worker's packets, and a worker doesn't wait for ever either.
const paceBytes = maxPacket

// A paced body ends with an error if the sender has kept its reader waiting for too long. The
// reader's own time doesn't count. One goroutine reads it.
type paced struct {
	io.ReadCloser
	cancel context.CancelFunc // cancels the request
	within time.Duration      // time for paceBytes
	left   time.Duration      // of within
	came   int                // of paceBytes
	slow   atomic.Bool
}

// Read implements io.Reader. A timer cancels the request when the sender's time is used up.
func (b *paced) Read(p []byte) (int, error) {
	began := time.Now()
	patience := time.AfterFunc(b.left, func() {
		b.slow.Store(true)
		b.cancel()
	})
	n, err := b.ReadCloser.Read(p)
	patience.Stop()
	b.left -= time.Since(began)
	if b.came += n; b.came >= paceBytes {
		b.came, b.left = 0, b.within
	}
	if err != nil && err != io.EOF && b.slow.Load() {
		err = runtime.Wrap(runtime.CodeClusterUnavailable, err,
			"the registry stalled: it sent less than %s in %v, the limit of --image-stall", tree.FormatSize(paceBytes), b.within)
	}
	return n, err
}

// Close implements io.Closer. It also cancels the request.
func (b *paced) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
