package image

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// send sends n bytes repeatedly, until the reader or the time ends.
func send(to *io.PipeWriter, n int, every, during time.Duration) {
	for began := time.Now(); time.Since(began) < during; {
		if _, err := to.Write(make([]byte, n)); err != nil {
			return
		}
		time.Sleep(every)
	}
	_ = to.Close()
}

func TestStalledAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		n             int
		every, during time.Duration
		pause         time.Duration // of the reader after each read
		ends          time.Duration // 0 means after everything was read
	}{
		"nothing: ends":             {0, time.Hour, time.Hour, 0, time.Minute},
		"a byte a minute: ends":     {1, time.Minute, time.Hour, 0, time.Minute},
		"100 bytes a second: ends":  {100, time.Second, time.Hour, 0, time.Minute},
		"2 KiB a second: goes on":   {2 << 10, time.Second, time.Hour, 0, 0},
		"64 KiB in bursts: goes on": {64 << 10, 50 * time.Second, time.Hour, 0, 0},
		"a slow reader: goes on":    {1 << 10, time.Second, 10 * time.Minute, 10 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := io.Pipe()
				var sending sync.WaitGroup
				defer sending.Wait()
				sending.Go(func() { send(to, c.n, c.every, c.during) })
				ctx, cancel := context.WithCancel(t.Context())
				context.AfterFunc(ctx, func() { _ = from.CloseWithError(context.Canceled) }) // as the body of an answer does
				body := &pacedBody{ReadCloser: from, cancel: cancel, within: time.Minute, left: time.Minute}
				began := time.Now()
				var err error
				for buffer := make([]byte, 4<<10); err == nil; time.Sleep(c.pause) {
					_, err = body.Read(buffer)
				}
				took := time.Since(began)
				if c.ends == 0 && err != io.EOF {
					t.Errorf("%v after %v", err, took)
				}
				if c.ends > 0 && (runtime.CodeOf(err) != runtime.CodeClusterUnavailable || took < c.ends || took > c.ends+time.Second) {
					t.Errorf("%v after %v", err, took)
				}
				_ = body.Close()
				if ctx.Err() == nil {
					t.Error("a closed answer's request goes on")
				}
			})
		})
	}
}
