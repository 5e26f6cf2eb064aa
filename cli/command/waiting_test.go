package command

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowPutsReportWhatTheyWaitFor checks that the report comes within 3 s, once per reason.
func TestSlowPutsReportWhatTheyWaitFor(t *testing.T) {
	const silent = "rockpool: no response yet about the image r.example/x from its registry; waiting (Ctrl-C stops)\n"
	const away = "rockpool: the registry is unavailable; trying again for up to 1m0s (Ctrl-C stops)\n"
	unreachable := errors.New("the registry is unavailable")
	for name, test := range map[string]struct {
		do   func(report func(error)) error
		says map[time.Duration]string // the text so far, by time
	}{
		"quick":  {func(func(error)) error { time.Sleep(1900 * time.Millisecond); return nil }, map[time.Duration]string{5 * time.Second: ""}},
		"silent": {func(func(error)) error { time.Sleep(30100 * time.Millisecond); return nil }, map[time.Duration]string{1500 * time.Millisecond: "", 2500 * time.Millisecond: silent, 40 * time.Second: silent}},
		"away": {func(report func(error)) error {
			report(unreachable)
			report(unreachable)
			time.Sleep(9100 * time.Millisecond)
			return nil
		}, map[time.Duration]string{time.Millisecond: away, 10 * time.Second: away}},
		"then silent": {func(report func(error)) error { time.Sleep(2500 * time.Millisecond); report(unreachable); return nil }, map[time.Duration]string{2250 * time.Millisecond: silent}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var errs sharedBuffer
				failed := errors.New("failed")
				ended := make(chan error, 1)
				image := "r.example/x"
				go func() {
					ended <- ReportWaiting(&errs, "the image "+image+" from its registry", func(report func(error)) error { return errors.Join(test.do(report), failed) })
				}()
				began := time.Now()
				for len(test.says) > 0 {
					next := time.Hour
					for at := range test.says {
						next = min(next, at)
					}
					time.Sleep(next - time.Since(began))
					synctest.Wait()
					if got := errs.String(); got != test.says[next] {
						t.Errorf("after %v: %q, not %q", next, got, test.says[next])
					}
					delete(test.says, next)
				}
				if err := <-ended; !errors.Is(err, failed) {
					t.Errorf("got %v, want %v", err, failed)
				}
			})
		})
	}
}

// TestStatusOnATerminal: a terminal shows one status line, and none at the end.
func TestStatusOnATerminal(t *testing.T) {
	var out strings.Builder
	s := Status{out: &out, terminal: true}
	s.Show("one\x1b[2J")
	s.Show("two")
	s.End()
	s.End()
	if got := out.String(); got != "\r\x1b[Krockpool: one·[2J\r\x1b[Krockpool: two\r\x1b[K" {
		t.Errorf("%q", got)
	}
}

// A sharedBuffer is a buffer for concurrent use.
type sharedBuffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
