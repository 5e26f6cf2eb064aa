package image

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/local/image/fault"
	"github.com/rockpool/rockpool/runtime"
)

// paceBytes is how much must come of a registry's answer in the time that it has
// for that: about 1 KiB a second with the time that is usual. What drips would
// hold its place among the pulls until it has taken as long as a pull may. It is
// also what a worker gets at once, and it doesn't wait for ever either.
const paceBytes = maxPacket

// A paced body is an answer's, and ends with an error once whoever sends it has
// kept its reader waiting for too long. The time that the reader itself takes
// doesn't count.
type paced struct {
	io.ReadCloser
	cancel context.CancelFunc // the request
	within time.Duration      // that paceBytes may take
	left   time.Duration      // of it
	came   int                // of those
	slow   atomic.Bool
}

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
			"the registry stalls: it sent less than %s in %v, which --image-stall allows", fault.Size(paceBytes), b.within)
	}
	return n, err
}

func (b *paced) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
