package serve_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

type commands = map[string]func(p *fakeProcess)

func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, commands{"sleep": func(p *fakeProcess) { <-p.killed }})
		s := f.start(agent.Start{Argv: []string{"sleep"}, TimeLimit: time.Minute})
		_ = s.Close() // nobody is there while it runs out
		time.Sleep(time.Hour)
		_, _, exit := f.follow(f.attach("sleep", 0), false)
		if exit.Cause != agent.CauseTimeLimit || exit.Wall != time.Minute || exit.Signal != "SIGKILL" || exit.User != time.Second {
			t.Errorf("exit %+v", exit)
		}
		f.server.Close()
	})
}

func TestKillGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, commands{"sleep": func(p *fakeProcess) { <-p.killed }})
		s := f.start(agent.Start{Argv: []string{"sleep"}})
		for _, grace := range []time.Duration{time.Minute, time.Hour, 10 * time.Second} {
			if err := s.Kill(grace); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // each is carried out by a goroutine of its own
		}
		_, _, exit := f.follow(s, false)
		if exit.Cause != agent.CauseKill || exit.Wall != 10*time.Second {
			t.Errorf("exit %+v", exit)
		}
		if got := fmt.Sprint(f.host.kills); got != "[1m0s 10s 0s]" {
			t.Errorf("kills %v, want [1m0s 10s 0s]", got)
		}
		_ = s.Close()
		f.server.Close()
	})
}

// A child holds the outputs and prints at 30 ms, 60 ms and so on. It never ends, or ends after some
// lines.
func TestOutputsAreReadFor100msAfterTheEnd(t *testing.T) {
	for _, test := range []struct {
		name   string
		lines  int
		output string
		after  time.Duration
	}{
		{"no output left: no wait", 0, "", 0},
		{"short output: read to its end", 1, "0", 30 * time.Millisecond},
		{"endless output: read for 100 ms", 1000, "012", 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, commands{"spawn": func(p *fakeProcess) {
				p.background.Go(func() {
					for i := range test.lines {
						select {
						case <-p.killed:
							return
						case <-time.After(30 * time.Millisecond):
							fmt.Fprint(p.stdout, i)
						}
					}
				})
			}})
			s := f.start(agent.Start{Argv: []string{"spawn"}})
			begin := time.Now()
			output, _, exit := f.follow(s, true)
			if output != test.output || time.Since(begin) != test.after || exit.Wall != 0 || exit.Cause != agent.CauseSelf {
				t.Errorf("%s: %q after %v, exit %+v", test.name, output, time.Since(begin), exit)
			}
			_ = s.Close()
			f.server.Close()
		})
	}
}

func TestOutputLimit(t *testing.T) {
	f := newFixture(t, commands{
		"flood": func(p *fakeProcess) {
			for {
				select {
				case <-p.killed:
					return
				default:
					_, _ = p.stdout.Write(make([]byte, 1000))
				}
			}
		},
		"exact": func(p *fakeProcess) { _, _ = p.stdout.Write(make([]byte, 12_345)) },
	})
	for name, cause := range map[string]agent.Cause{"flood": agent.CauseOutputLimit, "exact": agent.CauseSelf} {
		output, _, exit := f.follow(f.start(agent.Start{Argv: []string{name}, OutputLimit: 12_345}), true)
		if len(output) != 12_345 || exit.Output != 12_345 || exit.Cause != cause {
			t.Errorf("%s: %d bytes, exit %+v", name, len(output), exit)
		}
	}
}

// A program can print only a bounded amount while no client acknowledges.
func TestUnacknowledgedOutputBlocksTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var printed atomic.Int64
		f := newFixture(t, commands{"flood": func(p *fakeProcess) {
			for range 4 << 10 {
				n, _ := p.stdout.Write([]byte(strings.Repeat("x", 1<<10)))
				printed.Add(int64(n))
			}
		}})
		const size = 4 << 20
		one := f.start(agent.Start{ID: "one", Argv: []string{"flood"}})
		_ = one.Close()
		synctest.Wait()
		if n := printed.Load(); n < 900<<10 || n > 1<<20 {
			t.Errorf("one printed %d", n)
		}
		for i := range 11 {
			_ = f.start(agent.Start{ID: fmt.Sprint(i), Argv: []string{"flood"}}).Close()
		}
		synctest.Wait()
		if n := printed.Load(); n < 7<<20 || n > 8<<20+12*64<<10 {
			t.Errorf("all printed %d", n)
		}
		for i := range 11 {
			output, _, exit := f.follow(f.attach(fmt.Sprint(i), 0), true)
			if len(output) != size || exit.Output != size {
				t.Errorf("%d bytes, exit %+v", len(output), exit)
			}
		}
		f.server.Close()
	})
}

// A client follows one execution over streams that break anywhere, with late acknowledgements. It
// receives every byte once.
func TestResume(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		parts := rapid.SliceOfN(rapid.IntRange(1, 40_000), 1, 60).Draw(r, "parts")
		var want strings.Builder
		for i, n := range parts {
			want.WriteString(strings.Repeat(string(rune('a'+i%26)), n))
		}
		f := newFixture(t, commands{"print": func(p *fakeProcess) {
			at := 0
			for _, n := range parts {
				_, _ = io.WriteString(p.stdout, want.String()[at:at+n])
				at += n
			}
		}})
		defer f.server.Close()
		s := f.start(agent.Start{Argv: []string{"print"}})
		var got []byte
		for {
			left := rapid.IntRange(0, 12).Draw(r, "events")
			for ; left > 0; left-- {
				event, err := s.Next()
				if err != nil {
					r.Fatalf("next: %v", err)
				}
				if event.Kind == agent.KindExited {
					if string(got) != want.String() || event.Exit.Output != int64(len(got)) {
						r.Fatalf("got %d of %d bytes, exit %+v", len(got), want.Len(), event.Exit)
					}
					_ = s.Close()
					return
				}
				got = append(got, event.Data...)
				if event.Kind == agent.KindOutput && rapid.Bool().Draw(r, "ack") {
					if err := s.Ack(int64(rapid.IntRange(int(event.Offset), len(got)).Draw(r, "upto"))); err != nil {
						r.Fatalf("ack: %v", err)
					}
				}
			}
			// The log may hold less than was received, but never less than was acknowledged.
			if len(got) > 0 && rapid.Bool().Draw(r, "lost") && !rapid.Bool().Draw(r, "kept") {
				_ = s.Close()
			}
			s = f.attach("print", int64(len(got)))
		}
	})
}

func TestNewStreamReplacesTheOld(t *testing.T) {
	f := newFixture(t, commands{"cat": func(p *fakeProcess) { _, _ = io.Copy(p.stdout, p.stdin) }})
	s := f.start(agent.Start{Argv: []string{"cat"}, Stdin: true})
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	newer := f.attach("cat", 0)
	if _, err := s.Next(); err == nil {
		t.Error("the older stream goes on")
	}
	go func() {
		for i := range 3 { // what is sent again is not taken again
			_, _ = newer.WriteStdin(t.Context(), 0, []byte("0123456789"[:4+i*3]))
		}
		_ = newer.CloseStdin()
		_ = newer.CloseStdin()
	}()
	if output, _, _ := f.follow(newer, true); output != "0123456789" {
		t.Errorf("got %q", output)
	}
}

func TestStdinWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan int)
		f := newFixture(t, commands{"slow": func(p *fakeProcess) {
			for n := range read {
				_, _ = io.ReadFull(p.stdin, make([]byte, n))
			}
		}})
		s := f.start(agent.Start{Argv: []string{"slow"}, Stdin: true})
		go func() { // until the exit
			for {
				if _, err := s.Next(); err != nil {
					return
				}
			}
		}()
		done := make(chan error)
		go func() {
			_, err := s.WriteStdin(t.Context(), 0, make([]byte, 1<<20))
			done <- err
		}()
		for _, n := range []int{0, 1000, agent.StdinWindow, 100_000} {
			read <- n
			synctest.Wait()
		}
		consumed := int64(1000 + agent.StdinWindow + 100_000)
		if at := s.StdinOffset(); at < consumed+agent.StdinWindow*3/4-agent.MaxData || at > consumed+agent.StdinWindow+agent.MaxData {
			t.Errorf("sent %d with %d read", at, consumed)
		}
		close(read) // it ends without reading the rest
		<-done      // with the error that it ended, or thrown away: whichever comes first
		_ = s.Close()
		f.server.Close()
	})
}

// A killed program closes its stdin before its exit is known. A write of more stdin must fail
// because the execution ended.
func TestStdinOfAKilledProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, commands{"deaf": func(p *fakeProcess) {
			<-p.killed
			_ = p.stdin.Close()
			time.Sleep(time.Second)
		}})
		s := f.start(agent.Start{Argv: []string{"deaf"}, Stdin: true})
		written := make(chan int64)
		go func() {
			at, err := s.WriteStdin(t.Context(), 0, make([]byte, 1<<20))
			if err == nil {
				t.Error("1 MB was written to a program that read nothing")
			}
			written <- at
		}()
		synctest.Wait()
		if err := s.Kill(0); err != nil {
			t.Error(err)
		}
		f.follow(s, true)
		if at := <-written; at > agent.StdinWindow+agent.MaxData {
			t.Errorf("%d bytes were sent, with a window of %d", at, agent.StdinWindow)
		}
		f.server.Close()
	})
}

func TestStdinOfACommandWithoutStdinIsDiscarded(t *testing.T) {
	release := make(chan struct{})
	f := newFixture(t, commands{"deaf": func(p *fakeProcess) { <-release }})
	s := f.start(agent.Start{Argv: []string{"deaf"}})
	go func() {
		if at, err := s.WriteStdin(t.Context(), 0, make([]byte, 1<<20)); at != 1<<20 || err != nil {
			t.Errorf("at %d: %v", at, err)
		}
		close(release)
	}()
	f.follow(s, true)
}

func TestStartIsIdempotentByID(t *testing.T) {
	f := newFixture(t, commands{"true": func(*fakeProcess) {}, "wait": func(p *fakeProcess) { <-p.killed }})
	code := func(err error) agent.ErrorCode {
		var e *agent.Error
		if !errors.As(err, &e) {
			return ""
		}
		return e.Code
	}
	s := f.start(agent.Start{ID: "a", Argv: []string{"true"}})
	f.follow(s, true)
	s = f.start(agent.Start{ID: "a", Argv: []string{"true"}})
	if f.host.started != 1 {
		t.Errorf("started %d times, want 1", f.host.started)
	}
	f.follow(s, true)
	if err := s.Settled(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); err != io.EOF {
		t.Errorf("after the exit: got %v, want %v", err, io.EOF)
	}
	wait.For(t, "the settle has arrived", func() bool {
		s, err := agent.AttachExecution(t.Context(), f.dial(), agent.Attach{ID: "a"})
		if err == nil {
			_ = s.Close()
		}
		return code(err) == agent.ErrNotFound
	})
	if _, err := agent.StartExecution(t.Context(), f.dial(), agent.Start{ID: "a", Argv: []string{"true"}}); code(err) != agent.ErrInvalid {
		t.Errorf("settled, then started: %v", err)
	}
	if _, err := agent.StartExecution(t.Context(), f.dial(), agent.Start{ID: "b", Argv: []string{"nosuch"}}); code(err) != agent.ErrNotFound {
		t.Errorf("unknown command: %v", err)
	}
	_ = f.start(agent.Start{ID: "b", Argv: []string{"wait"}}) // a failed start leaves no trace
	if _, err := agent.AttachExecution(t.Context(), f.dial(), agent.Attach{ID: "b", Offset: 1}); code(err) != agent.ErrInvalid {
		t.Errorf("attach beyond the end: %v", err)
	}
	for i := 1; ; i++ {
		s, err := agent.StartExecution(t.Context(), f.dial(), agent.Start{ID: fmt.Sprint(i), Argv: []string{"true"}})
		if err != nil {
			if code(err) != agent.ErrTooMany || i != 256 {
				t.Errorf("start %d: %v", i, err)
			}
			break
		}
		_ = s.Close()
	}
	response, err := agent.PingAgent(t.Context(), f.dial())
	if err != nil || len(response.Executions) != 256 {
		t.Errorf("ping: %d executions, %v", len(response.Executions), err)
	}
}

// ask sends a request without changes.
func ask(t *testing.T, conn net.Conn, frame []byte) (kind agent.Kind, response agent.Response, err error) {
	t.Helper()
	defer conn.Close()
	if _, err := conn.Write(frame); err != nil {
		return 0, response, err
	}
	kind, body, err := agent.NewFrameReader(conn, agent.ClientSide).Next()
	if err == nil {
		err = agent.ParseJSON(body, &response)
	}
	return kind, response, err
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	f := newFixture(t, nil)
	for _, test := range []struct {
		body string
		want agent.ErrorCode
	}{
		{`{"protocol":0,"ping":{}}`, agent.ErrIncompatible},
		{`{"protocol":2,"ping":{}}`, agent.ErrIncompatible},
		{`{"protocol":1,"ping":{}}`, ""},
		{`{"protocol":1,"warm":{"interpreter":"python"}}`, agent.ErrInvalid},
		{`{"protocol":1,"search":{"name":"*","most":1}}`, ""},
		{`{"protocol":1,"search":{"path":"secret","name":"*","most":1}}`, agent.ErrInternal},
		{`{"protocol":1,"search":{"name":"[","most":1}}`, agent.ErrInvalid},
		{`{"protocol":1,"search":{"most":1}}`, agent.ErrInvalid},
		{`{"protocol":1,"search":{"text":"YQph","most":1}}`, agent.ErrInvalid},
		{`{"protocol":1,"search":{"name":"*"}}`, agent.ErrInvalid},
		{`{"protocol":1,"search":{"name":"*","most":1001}}`, agent.ErrInvalid},
		{`{"protocol":1,"watch":{"path":"none"}}`, agent.ErrNotFound},
		{`{"protocol":1,"start":{"id":"a","argv":["a"],"terminal":{"columns":0,"rows":24}}}`, agent.ErrInvalid},
		{`{"protocol":1,"start":{"id":"a","argv":["a"],"limits":{"processes":-1}}}`, agent.ErrInvalid},
		{`{"protocol":1,"update":{"write":[{"path":"a","size":-2}]}}`, agent.ErrInvalid},
		{`{"protocol":1}`, agent.ErrInvalid},
		{`{"protocol":"x"}`, agent.ErrInvalid},
		{`nonsense`, agent.ErrInvalid},
		{`{"protocol":1,"start":{"id":"","argv":["a"]}}`, agent.ErrInvalid},
		{`{"protocol":1,"start":{"id":"a","argv":[]}}`, agent.ErrInvalid},
		{`{"protocol":1,"start":{"id":"a","argv":["a"],"env":["=x"]}}`, agent.ErrInvalid},
		{`{"protocol":1,"start":{"id":"a","argv":["a"],"timeLimit":-1}}`, agent.ErrInvalid},
		{`{"protocol":1,"read":{"path":"secret","infoOnly":true}}`, agent.ErrInternal},
		{`{"protocol":1,"ping":{},"unknown":[]}`, ""},
	} {
		kind, response, err := ask(t, f.dial(), agent.AppendFrame(nil, agent.KindRequest, []byte(test.body)))
		if err != nil || kind != agent.KindResponse || response.Protocol != agent.Protocol {
			t.Errorf("%s: kind %d, %+v, %v", test.body, kind, response, err)
			continue
		}
		if e := response.Error; (e == nil) != (test.want == "") || e != nil && (e.Code != test.want || strings.Contains(e.Message, "secret of the host")) {
			t.Errorf("%s: %+v", test.body, e)
		}
	}
	if _, _, err := ask(t, f.dial(), agent.AppendFrame(nil, agent.KindSettled, nil)); err == nil {
		t.Error("a stream without a request was served")
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		if n, err := f.dial().Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("a stream that asks nothing: %v", err)
		}
	})
}

func TestHostileClient(t *testing.T) {
	f := newFixture(t, commands{"print": func(p *fakeProcess) {
		_, _ = io.WriteString(p.stdout, "text")
		<-p.killed
	}})
	start, err := agent.AppendJSON(nil, agent.KindRequest, agent.Request{Protocol: 1, Start: &agent.Start{ID: "a", Argv: []string{"print"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, frame := range map[string][]byte{
		"ack of the future": agent.AppendAck(nil, 1000),
		"gap in stdin":      agent.AppendStdin(nil, 5, []byte("x")),
		"settled early":     agent.AppendFrame(nil, agent.KindSettled, nil),
		"data":              agent.AppendFrame(nil, agent.KindData, []byte("x")),
		"no JSON":           agent.AppendFrame(nil, agent.KindKill, []byte("{]")),
	} {
		conn := f.dial()
		go func() { _, _ = conn.Write(append(append([]byte{}, start...), frame...)) }()
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close()
	}
	if output, _, _ := func() (string, []agent.Event, agent.Exit) {
		s := f.attach("a", 0)
		_ = s.Kill(0)
		return f.follow(s, true)
	}(); output != "text" {
		t.Errorf("got %q", output)
	}
}
