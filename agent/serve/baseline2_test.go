package serve_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

// The current agent gets the recorded bytes of a client of protocol 2, which resizes, signals and
// attaches again. It never sends a frame that the client doesn't know.
func TestAgentServesClientsOfProtocol2(t *testing.T) {
	old := recorded(t, "protocol2")
	f := newFixture(t, commands{"cat": func(p *fakeProcess) { _, _ = io.Copy(p.stdout, p.stdin) }})
	for _, test := range []struct {
		name string
		send []string
		want []agent.Kind
	}{
		{"start", []string{"request-start", "resize", "signal", "stdin", "stdin-end"}, []agent.Kind{agent.KindResponse, agent.KindStarted, agent.KindOutput, agent.KindExited}},
		{"attach", []string{"request-attach"}, []agent.Kind{agent.KindResponse, agent.KindStarted, agent.KindOutput, agent.KindExited}},
	} {
		conn := f.dial()
		_ = conn.SetDeadline(time.Now().Add(wait.Limit))
		go func() {
			for _, name := range test.send {
				_, _ = conn.Write(old[name])
			}
		}()
		frames := agent.NewFrameReader(conn, agent.ClientSide)
		var got []agent.Kind
		for len(got) < len(test.want) {
			kind, _, err := frames.Next()
			if err != nil {
				t.Fatalf("%s: %v after %v", test.name, err, got)
			}
			if kind != agent.KindStdinWindow {
				got = append(got, kind)
			}
		}
		if !bytes.Equal(asBytes(got), asBytes(test.want)) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		_ = conn.Close()
	}
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	if len(f.host.sizes) != 1 || f.host.sizes[0].Columns != 100 || len(f.host.signals) != 1 {
		t.Errorf("%v, %v", f.host.sizes, f.host.signals)
	}
}

// The current client requests the sizes of a terminal from an agent of protocol 2. It sends the
// request in protocol 2 and works without sizes.
func TestClientWorksWithAgentsOfProtocol2(t *testing.T) {
	old := recorded(t, "protocol2")
	start := agent.Start{
		ID: "x", Argv: []string{"cat", "-"}, Env: []string{"A=1"}, Dir: "d", Stdin: true, TimeLimit: time.Second, OutputLimit: 100,
		Terminal: &agent.Size{Columns: 80, Rows: 24},
	}
	conn, asked := oldAgent(t, old["response"])
	s, err := agent.StartExecution(t.Context(), conn, start)
	if err != nil {
		t.Fatal(err)
	}
	if got := <-asked; !bytes.Equal(got, old["request-start"][4:]) {
		t.Errorf("asked %s", got)
	}
	_ = s.Close()

	start.Resizes = true
	for name, open := range map[string]func() (*agent.Session, error){
		"start": func() (*agent.Session, error) {
			conn, _ := oldAgent(t, old["response"], old["started"], old["stdin-window"], old["output"], old["exited"])
			return agent.StartExecution(t.Context(), conn, start)
		},
		"attach": func() (*agent.Session, error) {
			conn, _ := oldAgent(t, old["response-attach"], old["started"], old["stdin-window"], old["output"], old["exited"])
			return agent.AttachExecution(t.Context(), conn, agent.Attach{ID: "x", Resizes: true, Resized: time.Second})
		},
	} {
		s, err := open()
		if err != nil {
			t.Fatal(name, err)
		}
		if err := s.Resize(agent.Size{Columns: 100, Rows: 30}); err != nil && name == "start" {
			t.Error(err)
		}
		var kinds []agent.Kind
		for event, err := s.Next(); err != io.EOF; event, err = s.Next() {
			if err != nil {
				t.Fatal(name, err)
			}
			kinds = append(kinds, event.Kind)
		}
		if !bytes.Equal(asBytes(kinds), asBytes([]agent.Kind{agent.KindStarted, agent.KindOutput, agent.KindExited})) {
			t.Errorf("%s: got %v", name, kinds)
		}
		_ = s.Close()
	}
}
