package serve_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

// recorded returns the recorded frames of a protocol by their names.
func recorded(t *testing.T, protocol string) map[string][]byte {
	t.Helper()
	file, err := os.Open("../testdata/" + protocol + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	frames := map[string][]byte{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if !ok || name == "#" {
			continue
		}
		if frames[name], err = hex.DecodeString(text); err != nil {
			t.Fatal(err)
		}
	}
	return frames
}

// oldResponse has the members of a Response that a client of protocol 1 knows and accepts.
type oldResponse struct {
	Protocol   int
	Version    string
	Executions []struct {
		ID     string
		Exited bool
	}
	Error *struct{ Code, Message string }
}

// The current agent gets the recorded bytes of a client of protocol 1. Its answers are decoded as
// that client did.
func TestAgentServesClientsOfProtocol1(t *testing.T) {
	old := recorded(t, "protocol1")
	f := newFixture(t, map[string]func(*fakeProcess){"cat": func(p *fakeProcess) { _, _ = io.Copy(p.stdout, p.stdin) }})
	for _, test := range []struct {
		name string
		send []string
		want []agent.Kind // what comes, windows aside
	}{
		{"ping", []string{"request-ping"}, []agent.Kind{agent.KindResponse}},
		{"start", []string{"request-start", "stdin", "stdin-end"}, []agent.Kind{agent.KindResponse, agent.KindStarted, agent.KindOutput, agent.KindExited}},
		{"attach", []string{"request-attach", "ack", "kill", "settled"}, []agent.Kind{agent.KindResponse, agent.KindStarted, agent.KindOutput, agent.KindExited}},
		{"list", []string{"request-list"}, append(append([]agent.Kind{agent.KindResponse}, slices.Repeat([]agent.Kind{agent.KindFile}, 1000)...), agent.KindEnd)},
		{"read", []string{"request-read"}, []agent.Kind{agent.KindResponse, agent.KindFile, agent.KindData, agent.KindData, agent.KindData, agent.KindData, agent.KindEnd}},
		{"stat", []string{"request-stat"}, []agent.Kind{agent.KindResponse, agent.KindFile, agent.KindEnd}},
		{"update", []string{"request-update", "data"}, []agent.Kind{agent.KindResponse, agent.KindUpdated}},
	} {
		conn := f.dial()
		_ = conn.SetDeadline(time.Now().Add(wait.Limit))
		go func() { // one after the other: later ones when there is something to be acknowledged
			for i, name := range test.send {
				if i > 0 && test.name == "attach" {
					return
				}
				_, _ = conn.Write(old[name])
			}
		}()
		frames := agent.NewFrameReader(conn, agent.ClientSide)
		var got []agent.Kind
		for len(got) < len(test.want) {
			kind, body, err := frames.Next()
			if err != nil {
				t.Fatalf("%s: %v after %v", test.name, err, got)
			}
			switch kind {
			case agent.KindStdinWindow:
				continue
			case agent.KindResponse:
				var response oldResponse
				if err := json.Unmarshal(body, &response); err != nil || response.Protocol != 1 || response.Error != nil {
					t.Errorf("%s: %s, %v", test.name, body, err)
				}
			case agent.KindExited:
				if test.name == "attach" {
					for _, name := range test.send[1:] {
						_, _ = conn.Write(old[name])
					}
				}
			}
			got = append(got, kind)
		}
		if !bytes.Equal(asBytes(got), asBytes(test.want)) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		_ = conn.Close()
	}
}

func asBytes(kinds []agent.Kind) (b []byte) {
	for _, kind := range kinds {
		b = append(b, byte(kind))
	}
	return b
}

// oldAgent answers one request with recorded frames and returns the bytes of the request.
func oldAgent(t *testing.T, answers ...[]byte) (net.Conn, <-chan []byte) {
	ours, theirs := net.Pipe()
	asked := make(chan []byte, 1)
	go func() {
		kind, body, err := agent.NewFrameReader(theirs, agent.AgentSide).Next()
		if err == nil {
			asked <- append([]byte{byte(kind)}, body...)
		}
		close(asked)
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		for _, answer := range answers {
			_, _ = theirs.Write(answer)
		}
	}()
	t.Cleanup(func() { _ = ours.Close() })
	return ours, asked
}

// The current client sends requests to an agent of protocol 1, in that protocol where it can. Where
// it can't, the error says so.
func TestClientWorksWithAgentsOfProtocol1(t *testing.T) {
	old := recorded(t, "protocol1")
	conn, asked := oldAgent(t, old["response-ping"])
	if response, err := agent.PingAgent(t.Context(), conn); err != nil || response.Speaks != 1 || len(response.Executions) != 1 {
		t.Errorf("ping: %+v, %v", response, err)
	}
	if got := <-asked; !bytes.Equal(got, old["request-ping"][4:]) {
		t.Errorf("asked %s", got)
	}

	conn, asked = oldAgent(t, old["response"], old["started"], old["stdin-window"], old["output"], old["exited"])
	s, err := agent.StartExecution(t.Context(), conn, agent.Start{
		ID: "x", Argv: []string{"cat", "-"}, Env: []string{"A=1"}, Dir: "d", Stdin: true, TimeLimit: time.Second, OutputLimit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-asked; !bytes.Equal(got, old["request-start"][4:]) {
		t.Errorf("asked %s", got)
	}
	for _, err := range []error{s.Resize(agent.Size{Columns: 1, Rows: 1}), s.Signal("SIGTERM")} {
		wantCode(t, err, agent.ErrIncompatible)
	}
	var kinds []agent.Kind
	for event, err := s.Next(); err != io.EOF; event, err = s.Next() {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, event.Kind)
		if event.Kind == agent.KindExited && (event.Exit.Code != 3 || event.Exit.Cause != agent.CauseKill || event.Exit.PeakMemory != 1<<20) {
			t.Errorf("%+v", event.Exit)
		}
	}
	if !bytes.Equal(asBytes(kinds), asBytes([]agent.Kind{agent.KindStarted, agent.KindOutput, agent.KindExited})) {
		t.Errorf("got %v", kinds)
	}

	conn, _ = oldAgent(t, old["response-incompatible"])
	_, err = agent.StartExecution(t.Context(), conn, agent.Start{ID: "x", Argv: []string{"cat"}, Privileged: true})
	wantCode(t, err, agent.ErrIncompatible)

	conn, _ = oldAgent(t, old["response-incompatible"])
	_, err = agent.MoveFile(t.Context(), conn, agent.Move{From: "a", To: "b"})
	wantCode(t, err, agent.ErrIncompatible)

	conn, _ = oldAgent(t, old["response-incompatible"])
	_, err = agent.SearchFiles(t.Context(), conn, agent.Search{Name: "*", Most: 1})
	wantCode(t, err, agent.ErrIncompatible)

	conn, _ = oldAgent(t, old["response-incompatible"])
	_, err = agent.WatchFiles(t.Context(), conn, agent.Watch{})
	wantCode(t, err, agent.ErrIncompatible)

	conn, _ = oldAgent(t, old["response"], old["file"], old["data"], old["end"])
	_, content, err := agent.OpenFile(t.Context(), conn, "f", 0)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(content); err != nil || string(all) != "abc" {
		t.Errorf("%q, %v", all, err)
	}
	conn, _ = oldAgent(t, old["response"], old["updated"])
	updated, err := agent.UpdateFiles(t.Context(), conn, agent.Update{Write: []agent.Write{{Path: "f", Size: 3, Mode: 0o644}, {Path: "d", Directory: true}}},
		func(int) io.Reader { return strings.NewReader("abc") })
	if err != nil || len(updated.Written) != 2 {
		t.Errorf("%+v, %v", updated, err)
	}
}

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
		frame, err := agent.AppendJSON(nil, agent.KindRequest, agent.Request{Protocol: 2, Start: &agent.Start{ID: "hostile", Argv: []string{"wait"}}})
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
