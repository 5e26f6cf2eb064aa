package serve_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/agent"
)

// taken is the client's log of an execution.
type taken struct {
	output  int64
	resized time.Duration
	sizes   []agent.Size
}

func (k taken) with(t interface{ Fatalf(string, ...any) }, event agent.Event) taken {
	switch event.Kind {
	case agent.KindOutput:
		k.output += int64(len(event.Data))
	case agent.KindResized:
		if event.Offset != k.output {
			t.Fatalf("a size at offset %d, after %d bytes", event.Offset, k.output)
		}
		k.resized = event.Time
		k.sizes = append(slices.Clip(k.sizes), event.Size)
	}
	return k
}

// A program prints while its terminal is resized. Streams break anywhere, and the client returns to
// any position that it hasn't acknowledged. It receives each size once, in order.
func TestSizesSurviveBrokenStreams(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		parts := make(chan int)
		f := newFixture(t, commands{"print": func(p *fakeProcess) {
			for {
				select {
				case n, more := <-parts:
					if !more {
						return
					}
					_, _ = io.WriteString(p.stdout, strings.Repeat("x", n))
				case <-p.killed:
					return
				}
			}
		}})
		defer f.server.Close()
		first := agent.Size{Columns: 80, Rows: 24}
		s := f.start(agent.Start{Argv: []string{"print"}, Terminal: &first})
		want := []agent.Size{first}
		var now, kept taken // kept is what was acknowledged at least
		printed := int64(0)
		next := func() (agent.Event, bool) {
			event, err := s.Next()
			if err != nil {
				r.Fatalf("next: %v", err)
			}
			now = now.with(r, event)
			return event, event.Kind == agent.KindExited
		}
		for step := range rapid.IntRange(0, 60).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"print", "resize", "resize", "read", "read", "ack", "break", "crash"}).Draw(r, "step") {
			case "print":
				n := rapid.IntRange(1, 3000).Draw(r, "bytes")
				parts <- n
				printed += int64(n)
			case "resize":
				size := agent.Size{Columns: step + 1, Rows: 7}
				if err := s.Resize(size); err != nil {
					r.Fatal(err)
				}
				want = append(want, size)
			case "read":
				if now.output < printed || len(now.sizes) < len(want) {
					next()
				}
			case "ack":
				kept = now
				if err := s.Ack(now.output); err != nil {
					r.Fatal(err)
				}
				if rapid.Bool().Draw(r, "sizes too") && now.resized > 0 {
					if err := s.AckResized(now.resized); err != nil {
						r.Fatal(err)
					}
				}
			case "crash":
				now = kept
				fallthrough
			case "break":
				_ = s.Close()
				kept = now // an attach acknowledges
				var err error
				s, err = agent.AttachExecution(t.Context(), f.dial(), agent.Attach{ID: "print", Offset: now.output, Terminal: true, Resized: now.resized})
				if err != nil {
					r.Fatal(err)
				}
			}
		}
		for len(now.sizes) < len(want) {
			next()
		}
		close(parts)
		for ended := false; !ended; {
			_, ended = next()
		}
		_ = s.Close()
		if now.output != printed || !slices.Equal(now.sizes, want) {
			r.Fatalf("%d of %d bytes, sizes %v, want %v", now.output, printed, now.sizes, want)
		}
	})
}

// A client resizes without end and acknowledges nothing. The agent holds a bounded number of sizes,
// and sends the newest one before the next output.
func TestUnacknowledgedSizesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, commands{"wait": func(p *fakeProcess) {
			_, _ = io.ReadAll(p.stdin)
			_, _ = io.WriteString(p.stdout, "at the last size")
		}})
		s := f.start(agent.Start{Argv: []string{"wait"}, Stdin: true, Terminal: &agent.Size{Columns: 1, Rows: 1}})
		go func() {
			for n := range 1000 {
				_ = s.Resize(agent.Size{Columns: n + 2, Rows: 1})
			}
			_ = s.CloseStdin()
		}()
		if output, _, _ := f.follow(s, false); output != "at the last size" {
			t.Errorf("got %q, want all output", output)
		}
		_ = s.Close()
		s, err := agent.AttachExecution(t.Context(), f.dial(), agent.Attach{ID: "wait", Terminal: true})
		if err != nil {
			t.Fatal(err)
		}
		var now taken
		var before int64
		for event, err := s.Next(); err == nil; event, err = s.Next() {
			now = now.with(t, event)
			if event.Kind == agent.KindResized && event.Size.Columns == 1001 {
				before = now.output
			}
		}
		if n := len(now.sizes); n < 100 || n > 200 || now.sizes[n-1].Columns != 1001 || before != 0 {
			t.Errorf("%d sizes were held, the last is %v, after %d bytes", n, now.sizes[n-1], before)
		}
		_ = s.Close()
		f.server.Close()
	})
}

// An execution without a terminal has no sizes. Setting the same size again has no effect.
func TestOnlyTerminalsHaveSizes(t *testing.T) {
	f := newFixture(t, commands{"cat": func(p *fakeProcess) { _, _ = io.Copy(p.stdout, p.stdin) }})
	size := agent.Size{Columns: 100, Rows: 30}
	for _, test := range []struct {
		terminal *agent.Size
		want     string
	}{{nil, "[]"}, {&size, "[{100 30} {9 9} {100 30}]"}} {
		s := f.start(agent.Start{ID: test.want, Argv: []string{"cat"}, Stdin: true, Terminal: test.terminal})
		for _, size := range []agent.Size{size, {Columns: 9, Rows: 9}, {Columns: 9, Rows: 9}, size} {
			if err := s.Resize(size); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		var now taken
		for event, err := s.Next(); err == nil; event, err = s.Next() {
			now = now.with(t, event)
		}
		if got := fmt.Sprint(now.sizes); got != test.want {
			t.Errorf("%v, want %s", got, test.want)
		}
		_ = s.Close()
	}
}
