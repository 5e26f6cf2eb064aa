package serve_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

func wantCode(t *testing.T, err error, code agent.ErrorCode) {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%v, want %s", err, code)
	}
}

// Resizes, signals and limits work over a session.
func TestResizeSignalAndLimits(t *testing.T) {
	f := newFixture(t, map[string]func(*fakeProcess){"wait": func(p *fakeProcess) { <-p.killed }})
	s := f.start(agent.Start{Argv: []string{"wait"}, Terminal: &agent.Size{Columns: 80, Rows: 24}})
	if err := s.Resize(agent.Size{Columns: 100, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal("SIGHUP"); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	f.follow(s, true)
	f.host.mu.Lock()
	if len(f.host.sizes) != 1 || f.host.sizes[0].Columns != 100 || len(f.host.signals) != 1 || f.host.signals[0] != "SIGHUP" {
		t.Errorf("%v, %v", f.host.sizes, f.host.signals)
	}
	f.host.mu.Unlock()
	for _, test := range []struct {
		id, used string
		limits   agent.Limits
		cause    agent.Cause
	}{
		{"cpu", "2s", agent.Limits{CPU: time.Second}, agent.CauseCPULimit},
		{"processes", "0s", agent.Limits{Processes: 2}, agent.CauseProcessLimit},
	} {
		s := f.start(agent.Start{ID: test.id, Argv: []string{"wait", test.used}, Limits: &test.limits})
		if _, _, exit := f.follow(s, true); exit.Cause != test.cause {
			t.Errorf("%s: %+v", test.id, exit)
		}
	}
	for _, hostile := range [][]byte{
		agent.AppendFrame(nil, agent.KindResize, []byte(`{"columns":0,"rows":1}`)), agent.AppendFrame(nil, agent.KindResize, []byte(`{"columns":70000,"rows":1}`)),
		agent.AppendFrame(nil, agent.KindSignal, []byte(`{"name":"SIGNONE"}`)), agent.AppendFrame(nil, agent.KindEnd, nil),
	} {
		conn := f.dial()
		frame, err := agent.AppendJSON(nil, agent.KindRequest, agent.Request{Protocol: agent.Protocol, Start: &agent.Start{ID: "hostile", Argv: []string{"wait"}}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = conn.Write(append(frame, hostile...)) }()
		_ = conn.SetReadDeadline(time.Now().Add(wait.Limit))
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%q wasn't cut off: %v", hostile, err)
		}
		_ = conn.Close()
	}
}
