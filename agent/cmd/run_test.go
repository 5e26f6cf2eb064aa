package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

func TestRun(t *testing.T) {
	b := newBed(t, 0)
	odd := "a\nb 'c' \"d\" $HOME `id` \\n $(id) 🎉"
	for _, test := range []struct {
		name   string
		argv   []string
		env    []string
		want   string
		stderr string // contained in it
		code   int
		signal string
	}{
		{name: "exact bytes", argv: []string{"echo", "-n", "Hello World"}, want: "Hello World"},
		{name: "stderr and exit 1", argv: []string{"cat", "-invalid"}, stderr: "invalid option", code: 1},
		{name: "exit code", argv: []string{"sh", "-c", "exit 42"}, code: 42},
		{name: "137 is a code", argv: []string{"sh", "-c", "exit 137"}, code: 137},
		{name: "SIGKILL is a signal", argv: []string{"sh", "-c", "kill -9 $$"}, signal: "SIGKILL"},
		{name: "SIGSEGV is a signal", argv: []string{"sh", "-c", "kill -SEGV $$"}, signal: "SIGSEGV"},
		{name: "argv verbatim", argv: []string{"printf", "%s|", odd, "", "-rf", "*"}, want: odd + "||-rf|*|"},
		{name: "env verbatim", argv: []string{"printenv", "ODD"}, env: []string{"ODD=" + odd}, want: odd + "\n"},
		{name: "env is all", argv: []string{"env"}, env: []string{"A=1"}, want: "PATH=/usr/bin:/bin\nHOME=/workspace\nA=1\n"},
		{name: "invalid bytes", argv: []string{"printf", `\377\000\033[31m\303`}, want: "\xff\x00\x1b[31m\xc3"},
		{name: "multibyte", argv: []string{"printf", `é€🎉`}, want: "é€🎉"},
		{name: "working directory", argv: []string{"pwd"}, want: "/workspace\n"},
		{name: "reopened stdout", argv: []string{"sh", "-c", "echo a >/proc/self/fd/1; echo b >/proc/self/fd/2"}, want: "a\n", stderr: "b"},
		{name: "no stdin", argv: []string{"cat"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := b.start(t, agent.Start{Argv: test.argv, Env: append(append([]string{}, testEnv...), test.env...)})
			if err != nil {
				t.Fatal(err)
			}
			if r.stdout != test.want || !strings.Contains(r.stderr, test.stderr) || test.stderr == "" && r.stderr != "" {
				t.Errorf("printed %q and %q, want %q", r.stdout, r.stderr, test.want)
			}
			if r.exit.Code != test.code || r.exit.Signal != test.signal || r.exit.Cause != agent.CauseSelf {
				t.Errorf("exit %+v, want code %d signal %q", r.exit, test.code, test.signal)
			}
			if r.exit.Output != int64(len(r.stdout)+len(r.stderr)) || r.exit.Wall <= 0 || r.exit.PeakMemory <= 0 {
				t.Errorf("exit %+v of %d bytes", r.exit, len(r.stdout)+len(r.stderr))
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	b := newBed(t, 0)
	b.sh(t, "mkdir d closed; chmod 0 closed; echo text >text; echo '#!/none' >script; printf '\\0\\1' >binary; chmod +x script binary; ln -s /etc/passwd link")
	for _, test := range []struct {
		argv  string
		dir   string
		code  agent.ErrorCode
		field string
	}{
		{argv: "nosuch", code: agent.ErrNotFound, field: "argv"},
		{argv: "./nosuch", code: agent.ErrNotFound, field: "argv"},
		{argv: "./text", code: agent.ErrDenied, field: "argv"},
		{argv: "./text/x", code: agent.ErrWrongType, field: "argv"},
		{argv: "./d", code: agent.ErrWrongType, field: "argv"},
		{argv: "./script", code: agent.ErrNotFound, field: "argv"},
		{argv: "./binary", code: agent.ErrWrongType, field: "argv"},
		{argv: "true", dir: "nosuch", code: agent.ErrNotFound, field: "dir"},
		{argv: "true", dir: "text", code: agent.ErrWrongType, field: "dir"},
		{argv: "a\x00b", code: agent.ErrInvalid, field: "argv"},
		{argv: "", code: agent.ErrInvalid, field: "argv"},
	} {
		_, err := b.start(t, agent.Start{Argv: []string{test.argv}, Dir: test.dir, Env: testEnv})
		var e *agent.Error
		if !errors.As(err, &e) || e.Code != test.code || e.Field != test.field {
			t.Errorf("%q in %q: %#v", test.argv, test.dir, err)
		}
	}
	if _, err := b.start(t, agent.Start{Argv: []string{"pwd"}, Dir: "closed", Env: testEnv}); err != nil {
		var e *agent.Error
		if !errors.As(err, &e) || e.Field != "dir" || e.Code != agent.ErrDenied {
			t.Errorf("closed directory: %#v", err)
		}
	} else {
		t.Error("started in a closed directory")
	}
	if r := b.run(t, "sh", "-c", "ls /proc/self/fd | wc -l"); strings.TrimSpace(r.stdout) != "4" {
		t.Errorf("after failed starts %q descriptors are open", r.stdout)
	}
}

func TestStdin(t *testing.T) {
	b := newBed(t, 0)
	s, err := b.session(t, agent.Start{Argv: []string{"cat"}, Env: testEnv, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	data := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB: more than window and pipe
	written := make(chan error, 1)
	go func() {
		for at := int64(0); at < int64(len(data)); {
			n := min(at+100_000, int64(len(data)))
			end, err := s.WriteStdin(t.Context(), at, []byte(data[at:n]))
			if err != nil || end != n {
				written <- fmt.Errorf("at %d: %d, %w", at, end, err)
				return
			}
			at = n
		}
		// Bytes that the agent has are skipped; a gap is refused.
		if _, err := s.WriteStdin(t.Context(), 5, []byte("56789")); err != nil {
			written <- err
			return
		}
		if _, err := s.WriteStdin(t.Context(), int64(len(data))+1, []byte("x")); err == nil {
			written <- errors.New("a gap was taken")
			return
		}
		written <- s.CloseStdin()
	}()
	r := b.finish(t, s)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if r.stdout != data || r.exit.Code != 0 {
		t.Errorf("%d bytes came back, exit %+v", len(r.stdout), r.exit)
	}
}

func TestStdinNotRead(t *testing.T) {
	b := newBed(t, 0)
	s, err := b.session(t, agent.Start{Argv: []string{"sleep", "1000"}, Env: testEnv, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan result, 1)
	go func() { done <- b.finish(t, s) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type wrote struct {
		sent int64
		err  error
	}
	written := make(chan wrote, 1)
	go func() {
		sent, err := s.WriteStdin(ctx, 0, make([]byte, 1<<20))
		written <- wrote{sent, err}
	}()
	wait.For(t, "the window is used up", func() bool { return s.StdinOffset() >= agent.StdinWindow })
	cancel()
	// The pipe's capacity adds to the window.
	if w := wait.Receive(t, written, "the write ends"); !errors.Is(w.err, context.Canceled) || w.sent > agent.StdinWindow+128<<10 || w.sent < agent.StdinWindow {
		t.Errorf("sent %d: %v", w.sent, w.err)
	}
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.exit.Signal != "SIGKILL" || r.exit.Cause != agent.CauseKill {
		t.Errorf("exit %+v", r.exit)
	}
}

func TestReattach(t *testing.T) {
	b := newBed(t, 0)
	const lines = 20000
	start := agent.Start{ID: "one", Argv: []string{"sh", "-c", fmt.Sprintf("seq %d; echo end >&2", lines)}, Env: testEnv}
	s, err := b.session(t, start)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintln(&want, i)
	}
	// The order between two pipes is undefined.
	var got [3]strings.Builder
	length := func() int64 { return int64(got[1].Len() + got[2].Len()) }
	for round := 0; ; round++ {
		events := 0
		for {
			event, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			if event.Kind == agent.KindExited {
				if got[1].String() != want.String() || got[2].String() != "end\n" {
					t.Errorf("got %d bytes and %q in %d rounds, want %d", got[1].Len(), got[2].String(), round, want.Len())
				}
				if err := s.Settled(); err != nil {
					t.Fatal(err)
				}
				return
			}
			if event.Kind != agent.KindOutput {
				continue
			}
			// Keep half of an event, as if the log had stopped there.
			if events++; events == 3 {
				got[event.Stream].Write(event.Data[:len(event.Data)/2])
				break
			}
			got[event.Stream].Write(event.Data)
			if round%2 == 0 {
				if err := s.Ack(length()); err != nil {
					t.Fatal(err)
				}
			}
		}
		old := s
		if s, err = agent.AttachExecution(t.Context(), b.dial(t), agent.Attach{ID: "one", Offset: length()}); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; { // displaced
			_, err = old.Next()
		}
		_ = old.Close()
	}
}

func TestExecutionsAreKnownByID(t *testing.T) {
	b := newBed(t, 0)
	start := agent.Start{ID: "twice", Argv: []string{"sh", "-c", "echo run >>count; cat count"}, Env: testEnv}
	first, err := b.session(t, start)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := b.session(t, start)
	if err != nil {
		t.Fatal(err)
	}
	response, err := agent.PingAgent(t.Context(), b.dial(t))
	if err != nil || len(response.Executions) != 1 || response.Executions[0].ID != "twice" {
		t.Errorf("ping: %+v, %v", response, err)
	}
	if r := b.finish(t, second); r.stdout != "run\n" {
		t.Errorf("got %q", r.stdout)
	}
	wait.For(t, "the settle has arrived", func() bool { // an attach would cut the stream that it comes on
		response, err := agent.PingAgent(t.Context(), b.dial(t))
		if err != nil {
			t.Fatal(err)
		}
		return len(response.Executions) == 0
	})
	var e *agent.Error
	if _, err := agent.AttachExecution(t.Context(), b.dial(t), agent.Attach{ID: "twice"}); !errors.As(err, &e) || e.Code != agent.ErrNotFound {
		t.Errorf("attach: %v", err)
	}
	if _, err := b.session(t, start); !errors.As(err, &e) || e.Code != agent.ErrInvalid {
		t.Errorf("a settled execution was started again: %v", err)
	}
}

// A program prints while no client is connected. The agent must stop reading and lose nothing.
func TestOutputWithoutAClientIsKept(t *testing.T) {
	b := newBed(t, 0)
	const size = 8 << 20
	var sessions []*agent.Session
	for i := range 12 { // more than fit into the 8 MiB of all
		s, err := b.session(t, agent.Start{ID: fmt.Sprint(i), Argv: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero", size)}, Env: testEnv})
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		sessions = append(sessions, s)
	}
	// They have filled the agent's buffers and block: all sleep, in two scans.
	before := ""
	wait.For(t, "all block", func() bool {
		now := b.sh(t, `for p in /proc/[0-9]*; do read -r c <$p/comm && test "$c" = head && cat $p/io && grep ^State $p/status; done 2>/dev/null | grep -e ^wchar -e ^State`).stdout
		asleep, written := strings.Count(now, "S (sleeping)"), int64(0)
		for line := range strings.Lines(now) {
			if n, ok := strings.CutPrefix(line, "wchar: "); ok {
				n, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
				written += n
			}
		}
		same := now == before
		before = now
		return same && asleep == len(sessions) && written > 7<<20
	})
	if rss := b.memory(t); rss > 24<<10 {
		t.Errorf("the agent uses %d KiB", rss)
	}
	for i := range sessions {
		s, err := agent.AttachExecution(t.Context(), b.dial(t), agent.Attach{ID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if r := b.finish(t, s); len(r.stdout) != size || r.exit.Code != 0 {
			t.Errorf("%d bytes, exit %+v", len(r.stdout), r.exit)
		}
	}
}

// memory returns the agent's private memory in KiB.
func (b *bed) memory(t testing.TB) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", b.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Private_") {
			var n int
			var name string
			if _, err := fmt.Sscan(line, &name, &n); err == nil {
				kib += n
			}
		}
	}
	return kib
}

func TestVersion(t *testing.T) {
	out, err := exec.Command(agentBinary, "version").Output()
	if err != nil || !strings.Contains(string(out), "protocol "+strconv.Itoa(agent.Protocol)) {
		t.Errorf("%q, %v", out, err)
	}
	if err := exec.Command(agentBinary).Run(); err == nil {
		t.Error("runs without a command")
	}
}

// TestMisreadScriptsSayWhy: the kernel's errno doesn't.
func TestMisreadScriptsSayWhy(t *testing.T) {
	b := newBed(t, 0)
	for content, want := range map[string]string{
		"#!/bin/sh\r\ntrue\r\n":             "carriage return (CR)",
		"\xef\xbb\xbf#!/bin/sh\ntrue\n":     "byte order mark (BOM)",
		"\xef\xbb\xbf#!/bin/sh\r\ntrue\r\n": "byte order mark (BOM)",
		"#!/bin/none\ntrue\r\n":             "the interpreter in its first line (#!) doesn't exist",
		"true\r\n":                          "has no #!",
		"#!/bin/none\r -e":                  "doesn't exist",
	} {
		b.put(t, agent.Write{Path: "dir/script", Size: int64(len(content)), Mode: 0o755}, content)
		for _, limits := range []*agent.Limits{nil, {OpenFiles: 100}} {
			for argv, dir := range map[string]string{"./script": "dir", "/workspace/dir/script": ""} {
				_, err := b.start(t, agent.Start{Argv: []string{argv}, Dir: dir, Env: testEnv, Limits: limits})
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%q, %+v: %v, want %q", content, limits, err, want)
				}
			}
		}
	}
}
