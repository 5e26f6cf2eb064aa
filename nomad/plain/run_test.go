package plain_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/plain"
	"github.com/rockpool/rockpool/runtime/clustertest"
)

func TestRun(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		if o := b.sh("echo out; echo err >&2; exit 3"); o.stdout != "out\n" || o.stderr != "err\n" || o.exit.Code != 3 || o.exit.Signal != "" || o.err != nil {
			t.Errorf("%+v", o)
		}
		if o := b.sh("kill -TERM $$"); o.exit.Signal != "SIGTERM" || o.stdout+o.stderr != "" {
			t.Errorf("%+v", o)
		}
		o := follow(b.begin(agent.Start{Argv: []string{"env"}, Env: append(b.env, "A=b c\n'd'", "LONG="+strings.Repeat("ü\\", 3000))}))
		var names []string
		for line := range strings.Lines(o.stdout) {
			if name, _, ok := strings.Cut(line, "="); ok {
				names = append(names, name)
			}
		}
		if got := strings.Join(names, " "); got != "ROCKPOOL_EXECUTION PATH A LONG" {
			t.Errorf("the environment has %s", got)
		}
		if !strings.Contains(o.stdout, "\nA=b c\n'd'\n") || !strings.Contains(o.stdout, "LONG="+strings.Repeat("ü\\", 3000)+"\n") {
			t.Errorf("the environment is %.200q", o.stdout)
		}
	})
}

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) { clustertest.Executions(t, b.runner.Dial) })
}

func TestNomadConformance(t *testing.T) {
	onNomad(t, func(t *testing.T, b *bed) { clustertest.Executions(t, b.runner.Dial) })
}

// TestArguments has every byte that an argument can have.
func TestArguments(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		all := []string{"printf", `%s\n`, "", "-n", "$(echo no)", "`", "'", "\"", "a\nb\n", "\\", "*", " x "}
		var bytes []byte
		for c := 1; c < 256; c++ {
			if c < 0x80 {
				bytes = append(bytes, byte(c))
			}
		}
		all = append(all, string(bytes), "äöü€😀")
		o := follow(b.begin(agent.Start{Argv: all}))
		if want := strings.Join(all[2:], "\n") + "\n"; o.stdout != want || o.exit.Code != 0 {
			t.Errorf("printed %q, want %q; %+v", o.stdout, want, o.exit)
		}
	})
}

func TestRefusals(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		for _, test := range []struct {
			start agent.Start
			code  agent.ErrorCode
			field string
		}{
			{agent.Start{Argv: []string{"no-such-command"}}, agent.ErrNotFound, "argv"},
			{agent.Start{Argv: []string{"/no/such"}}, agent.ErrNotFound, "argv"},
			{agent.Start{Argv: []string{"/"}}, agent.ErrWrongType, "argv"},
			{agent.Start{Argv: []string{"/etc/passwd"}}, agent.ErrDenied, "argv"},
			{agent.Start{Argv: []string{"true"}, Dir: "nowhere"}, agent.ErrNotFound, "dir"},
			{agent.Start{Argv: []string{"true"}, Dir: "/etc/passwd"}, agent.ErrWrongType, "dir"},
			{agent.Start{Argv: []string{"true"}, Privileged: true}, agent.ErrDenied, "privileged"},
			{agent.Start{Argv: []string{"true"}, Limits: &agent.Limits{CPU: time.Second}}, agent.ErrDenied, "limits"},
			{agent.Start{Argv: []string{"a=b"}}, agent.ErrInvalid, "argv"},
		} {
			_, err := b.start(test.start)
			if e := refused(t, err); e.Code != test.code || e.Field != test.field {
				t.Errorf("%+v: %+v", test.start, e)
			}
		}
	})
}

func TestStdin(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"cat"}, Stdin: true})
		text := strings.Repeat("0123456789\x00\xff\n", 50_000)
		go func() {
			if _, err := s.WriteStdin(t.Context(), 0, []byte(text)); err != nil {
				t.Error(err)
			}
			if err := s.CloseStdin(); err != nil {
				t.Error(err)
			}
		}()
		if o := follow(s); o.stdout != text || o.exit.Code != 0 || o.err != nil {
			t.Errorf("%d bytes, %+v, %v", len(o.stdout), o.exit, o.err)
		}
		// A command without stdin is at its end at once, and one that doesn't read
		// its stdin ends as well.
		if o := b.sh("cat; echo end"); o.stdout != "end\n" {
			t.Errorf("%+v", o)
		}
		s = b.begin(agent.Start{Argv: []string{"true"}, Stdin: true})
		go s.WriteStdin(t.Context(), 0, []byte(text)) // it may come too late
		if o := follow(s); o.exit.Code != 0 || o.err != nil {
			t.Errorf("%+v", o)
		}
	})
}

// TestLastOutput has commands whose output comes with their end.
func TestLastOutput(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		for range 30 {
			if o := b.sh("echo out; echo err >&2"); o.stdout != "out\n" || o.stderr != "err\n" || o.err != nil {
				t.Fatalf("%+v", o)
			}
		}
		if o := b.sh("yes 0123456789abcdef | head -c 5000000"); len(o.stdout) != 5_000_000 || o.err != nil {
			t.Errorf("%d bytes of 5000000, %v", len(o.stdout), o.err)
		}
	})
}

// An errorsFirst is an Exec whose transport brings a command's stderr before the
// word on stdout that the command has begun, as Nomad's sometimes does.
type errorsFirst struct{ *machine }

func (m errorsFirst) Exec(ctx context.Context, c plain.Command) (int, error) {
	if strings.HasSuffix(c.Argv[3], "run") {
		brought := make(chan struct{})
		stdout, stderr := c.Stdout, c.Stderr
		ready := false
		c.Stdout = writes(func(b []byte) (int, error) {
			if ready {
				<-brought
			}
			ready = ready || strings.Contains(string(b), "ready")
			return stdout.Write(b)
		})
		once := sync.OnceFunc(func() { close(brought) })
		c.Stderr = writes(func(b []byte) (int, error) {
			defer once()
			return stderr.Write(b)
		})
	}
	return m.machine.Exec(ctx, c)
}

type writes func([]byte) (int, error)

func (f writes) Write(b []byte) (int, error) { return f(b) }

func TestStderrComesBeforeTheStart(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		b.runner.Close()
		b.exec = errorsFirst{b.machine}
		b.open()
		if o := b.sh("echo err >&2; echo out; echo more >&2; exit 3"); o.stdout != "out\n" || o.stderr != "err\nmore\n" || o.exit.Code != 3 || o.err != nil {
			t.Errorf("%+v", o)
		}
	})
}
