package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

// A person types at a terminal, and waits for expected output.
type person struct {
	t      testing.TB
	s      *agent.Session
	seen   [3]string // by stream, what wasn't waited for yet
	all    [3]string
	typed  int64
	exited *agent.Exit
}

func (b *bed) sit(t testing.TB, start agent.Start) *person {
	t.Helper()
	if start.Terminal == nil {
		start.Terminal = &agent.Size{Columns: 80, Rows: 24}
	}
	if start.Env == nil {
		start.Env = append(append([]string{}, testEnv...), "TERM=xterm-256color", "PS1=$ ")
	}
	s, err := b.session(t, start)
	if err != nil {
		t.Fatal(err)
	}
	patience := time.AfterFunc(wait.Limit, func() { _ = s.Close() }) // then next fails, and says what was seen
	t.Cleanup(func() {
		patience.Stop()
		_ = s.Close()
	})
	return &person{t: t, s: s}
}

func (p *person) types(text string) {
	p.t.Helper()
	end, err := p.s.WriteStdin(p.t.Context(), p.typed, []byte(text))
	if err != nil {
		p.t.Fatal(err)
	}
	p.typed = end
}

// next handles one event.
func (p *person) next() {
	p.t.Helper()
	event, err := p.s.Next()
	if err != nil {
		p.t.Fatalf("%v; saw %q, not yet used %q", err, p.all, p.seen)
	}
	switch event.Kind {
	case agent.KindOutput:
		p.seen[event.Stream] += string(event.Data)
		p.all[event.Stream] += string(event.Data)
		if err := p.s.Ack(event.Offset + int64(len(event.Data))); err != nil {
			p.t.Fatal(err)
		}
	case agent.KindExited:
		p.exited = &event.Exit
		if err := p.s.Settled(); err != nil {
			p.t.Fatal(err)
		}
	}
}

// sees waits until a stream has shown text, and drops everything up to it.
func (p *person) sees(stream int, text string) {
	p.t.Helper()
	for !strings.Contains(p.seen[stream], text) {
		if p.exited != nil {
			p.t.Fatalf("ended with %+v before %q on %d; saw %q", *p.exited, text, stream, p.all)
		}
		p.next()
	}
	_, p.seen[stream], _ = strings.Cut(p.seen[stream], text)
}

func (p *person) ends() agent.Exit {
	p.t.Helper()
	for p.exited == nil {
		p.next()
	}
	return *p.exited
}

// awaitCommand waits until a program of this name runs.
func (b *bed) awaitCommand(t testing.TB, name string) {
	t.Helper()
	wait.For(t, name+" runs", func() bool {
		return b.run(t, "sh", "-c", `for p in /proc/[0-9]*; do read -r c <$p/comm && test "$c" = "$0" && exit 7; done; exit 0`, name).exit.Code == 7
	})
}

func TestTerminal(t *testing.T) {
	b := newBed(t, 0)
	p := b.sit(t, agent.Start{Argv: []string{"python3", "-c", `
import os, sys, termios
print([os.isatty(n) for n in range(3)], os.ttyname(0) == os.ttyname(1) != os.ttyname(2), os.open("/dev/tty", os.O_RDWR) > 2)
print(os.get_terminal_size(0), os.get_terminal_size(2), os.tcgetpgrp(0) == os.getpgrp() == os.getsid(0) == os.getpid())
print(os.stat(os.ttyname(0)).st_uid, os.stat(os.ttyname(2)).st_uid)
print("to stderr", file=sys.stderr)
`}, Terminal: &agent.Size{Columns: 132, Rows: 50}})
	exit := p.ends()
	want := "[True, True, True] True True\r\n" +
		"os.terminal_size(columns=132, lines=50) os.terminal_size(columns=132, lines=50) True\r\n1000 1000\r\n"
	if p.all[1] != want || p.all[2] != "to stderr\r\n" || exit.Code != 0 || exit.Signal != "" {
		t.Errorf("%q, %+v", p.all, exit)
	}
	if r := b.sh(t, "test -t 0 || test -t 1 || test -t 2 || ls /dev/pts"); r.stdout != "ptmx\n" {
		t.Errorf("afterwards: %+v", r)
	}
}

func TestTerminalResize(t *testing.T) {
	b := newBed(t, 0)
	p := b.sit(t, agent.Start{Argv: []string{"python3", "-c", `
import os, signal, subprocess
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
subprocess.run(["stty", "size"])
print("ready", flush=True)
signal.sigwait([signal.SIGWINCH])
subprocess.run(["stty", "size"])
subprocess.run(["stty", "size"], stdin=2)
input()
`}})
	p.sees(1, "24 80\r\nready\r\n")
	if err := p.s.Resize(agent.Size{Columns: 100, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	p.sees(1, "30 100\r\n30 100\r\n")
	p.types("\n")
	if exit := p.ends(); exit.Code != 0 || exit.Signal != "" {
		t.Errorf("%+v", exit)
	}
}

func TestTerminalPython(t *testing.T) {
	b := newBed(t, 0)
	p := b.sit(t, agent.Start{Argv: []string{"python3", "-q", "-i", "-c", "import time"}})
	p.sees(1, ">>> ")
	p.types("6*7\n")
	p.sees(1, "42\r\n")
	p.types("print('out'); import sys; print('err', file=sys.stderr)\n")
	p.sees(1, "out\r\n")
	p.sees(2, "err\r\n")
	// Many short sleeps: a signal shortly before a sleep doesn't end it.
	p.types("print('be' + 'fore', flush=True); [time.sleep(0.01) for _ in range(100000)]\n")
	p.sees(1, "before\r\n")
	p.types("\x03")
	p.sees(2, "KeyboardInterrupt")
	p.types("x = 'é🎉'; print(x)\n")
	p.sees(1, "é🎉\r\n")
	p.sees(1, ">>> ") // a Ctrl-D before it would be read as another byte, as on any terminal
	p.types("\x04")
	if exit := p.ends(); exit.Code != 0 || exit.Signal != "" || exit.Cause != agent.CauseSelf {
		t.Errorf("%+v", exit)
	}
}

// A shell on a terminal has job control: a job can be interrupted, stopped and continued, and the
// shell survives. A secret isn't echoed.
func TestTerminalShell(t *testing.T) {
	b := newBed(t, 0)
	p := b.sit(t, agent.Start{Argv: []string{"sh", "-c", "exec bash --norc --noediting -i 2>&1"}})
	p.sees(1, "$ ")
	if strings.Contains(p.all[1], "job control") {
		t.Fatalf("no job control: %q", p.all)
	}
	p.types("echo on; sleep 1000\n")
	p.sees(1, "echo on; sleep 1000\r\n") // the echo
	p.sees(1, "on\r\n")
	b.awaitCommand(t, "sleep")
	p.types("\x03")
	p.sees(1, "$ ")
	p.types("echo $?; cat\n")
	p.sees(1, "130\r\n")
	b.awaitCommand(t, "cat")
	p.types("line\n")
	p.sees(1, "line\r\nline\r\n")
	p.types("\x1a")
	p.sees(1, "Stopped")
	p.sees(1, "$ ")
	p.types("fg\n")
	p.sees(1, "fg\r\ncat\r\n")
	p.types("again\n\x04")
	p.sees(1, "again\r\nagain\r\n")
	p.types("read -s x; echo \"<$x>\"\n")
	p.sees(1, "<$x>\"\r\n")
	wait.For(t, "it reads", func() bool {
		return b.sh(t, "stty -a <$(ls /dev/pts/[0-9]* | head -1) 2>/dev/null | grep -c -- ' -echo '").stdout == "1\n"
	})
	p.types("secret\n")
	p.sees(1, "<secret>\r\n")
	if strings.Count(p.all[1], "secret") != 1 {
		t.Errorf("the secret was echoed: %q", p.all[1])
	}
	p.types("exit 7\n")
	if exit := p.ends(); exit.Code != 7 {
		t.Errorf("%+v", exit)
	}
}

// Job control works with a separate stderr in shells that use their controlling terminal. Dash
// does; bash uses descriptor 2.
func TestTerminalJobs(t *testing.T) {
	b := newBed(t, 0)
	p := b.sit(t, agent.Start{Argv: []string{"dash", "-i"}})
	p.sees(2, "$ ")
	p.types("echo o''n; sleep 1000; echo o''ff\n")
	p.sees(1, "on\r\n")
	b.awaitCommand(t, "sleep")
	if err := p.s.Signal("SIGINT"); err != nil { // to the job in the foreground, too
		t.Fatal(err)
	}
	p.sees(2, "$ ")
	p.types("echo done $?\n")
	p.sees(1, "done 130\r\n")
	p.types("\x04")
	if exit := p.ends(); exit.Code != 130 && exit.Code != 0 || strings.Contains(p.all[2], "job control") {
		t.Errorf("%+v, %q", exit, p.all)
	}
}

// The test closes the stdin of programs that read to its end, in the middle of a line and after
// one.
func TestTerminalEnd(t *testing.T) {
	b := newBed(t, 0)
	for _, text := range []string{"", "a line\n", "half a line"} {
		p := b.sit(t, agent.Start{Argv: []string{"sh", "-c", "stty -echo; echo on; cat; echo off"}})
		p.sees(1, "on\r\n")
		if text != "" {
			p.types(text)
		}
		if err := p.s.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		exit := p.ends()
		if want := "on\r\n" + strings.ReplaceAll(text, "\n", "\r\n") + "off\r\n"; p.all[1] != want || exit.Code != 0 {
			t.Errorf("%q: %q, %+v", text, p.all, exit)
		}
	}
}

func TestTerminalHangUp(t *testing.T) {
	b := newBed(t, 0)
	for name, hangUp := range map[string]func(s *agent.Session) error{
		"signal": func(s *agent.Session) error { return s.Signal("SIGHUP") },
		"cancel": func(s *agent.Session) error { return s.Kill(endless) },
	} {
		t.Run(name, func(t *testing.T) {
			p := b.sit(t, agent.Start{Argv: []string{"bash", "--norc", "-i"}}) // which ignores SIGTERM
			p.sees(2, "$ ")
			p.types("sleep 1000 & (setsid sleep 1001 &) ; echo o''n; sleep 1002\n")
			p.sees(1, "on\r\n")
			if err := hangUp(p.s); err != nil {
				t.Fatal(err)
			}
			if exit := p.ends(); exit.Signal != "SIGHUP" && exit.Code != 129 { // after its grace it would be SIGKILL
				t.Errorf("%+v", exit)
			}
			if left := b.left(t); left != "" {
				t.Errorf("left: got %q, want \"\"", left)
			}
		})
	}
}

// A terminal carries megabytes without loss. A client that doesn't read blocks the program.
func TestTerminalFlood(t *testing.T) {
	b := newBed(t, 0)
	p := b.sit(t, agent.Start{Argv: []string{"sh", "-c", "stty -onlcr; seq 1 500000; echo end >&2"}})
	exit := p.ends()
	lines := strings.Split(strings.TrimSuffix(p.all[1], "\n"), "\n")
	if len(lines) != 500_000 || lines[499_999] != "500000" || p.all[2] != "end\r\n" || exit.Output != int64(len(p.all[1])+5) {
		t.Errorf("%d lines, %q, %+v", len(lines), p.all[2], exit)
	}
}

// The test types more than a terminal's buffer to a program that doesn't read yet. Lines wait, and
// none is lost.
func TestTerminalInput(t *testing.T) {
	b := newBed(t, 0)
	p := b.sit(t, agent.Start{Argv: []string{"sh", "-c", "stty -echo; echo on; until test -e go; do sleep 0.01; done; exec md5sum"}})
	p.sees(1, "on\r\n")
	text := strings.Repeat(strings.Repeat("0123456789", 20)+"\n", 3000)
	typed := make(chan error, 1)
	go func() {
		_, err := p.s.WriteStdin(t.Context(), 0, []byte(text))
		typed <- errors.Join(err, p.s.CloseStdin())
	}()
	wait.For(t, "the rest waits", func() bool { return p.s.StdinOffset() >= agent.StdinWindow })
	b.sh(t, ": >go")
	exit := p.ends()
	if err := <-typed; err != nil {
		t.Error(err)
	}
	s, err := b.session(t, agent.Start{Argv: []string{"md5sum"}, Env: testEnv, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = s.WriteStdin(t.Context(), 0, []byte(text))
		_ = s.CloseStdin()
	}()
	if want := b.finish(t, s).stdout; !strings.HasSuffix(p.all[1], strings.TrimSpace(want)+"\r\n") || exit.Code != 0 {
		t.Errorf("%q, want %q; %+v", p.all, want, exit)
	}
}

func TestSignal(t *testing.T) {
	b := newBed(t, 0)
	s, err := b.session(t, agent.Start{Argv: []string{"sh", "-c",
		`trap 'echo leader' USR1; sh -c 'trap "echo child; exit" USR1; echo on; while :; do sleep 0.01; done' & wait; wait`}, Env: testEnv}) // both have set their traps when "on" is printed
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t: t, s: s}
	p.sees(1, "on\n")
	if err := s.Signal("SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	p.sees(1, "child\n")
	if exit := p.ends(); exit.Code != 0 || !strings.Contains(p.all[1], "leader\n") {
		t.Errorf("%q, %+v", p.all, exit)
	}
	s, err = b.session(t, agent.Start{Argv: []string{"sleep", "1000"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal("SIGNONE"); err != nil { // the agent breaks the session; other clients are unaffected
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = s.Next()
	}
	if errors.Is(err, io.EOF) {
		t.Errorf("an unknown signal ended it: %v", err)
	}
}
