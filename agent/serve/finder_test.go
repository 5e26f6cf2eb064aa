package serve_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

func TestSearchFiles(t *testing.T) {
	f := newFixture(t, nil)
	found, err := agent.SearchFiles(t.Context(), f.dial(), agent.Search{Text: []byte("\xfe"), Most: 5})
	if err != nil || len(found.Matches) != 1 || found.Limit != agent.LimitBytes || found.Skipped != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	if m := found.Matches[0]; string(m.File.Path) != "a\xff" || m.Line != 3 || string(m.Text) != "\xfe" {
		t.Errorf("%+v", m)
	}
}

func TestSearchAndWatchEndWhenTheClientLeaves(t *testing.T) {
	f := newFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	searched := make(chan error, 1)
	go func() {
		_, err := agent.SearchFiles(ctx, f.dial(), agent.Search{Path: "long", Name: "*", Most: 5})
		searched <- err
	}()
	for _, path := range []string{"", "flood"} {
		w, err := agent.WatchFiles(t.Context(), f.dial(), agent.Watch{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Next(); err != nil {
			t.Error(err)
		}
		w.Close()
	}
	cancel()
	if err := wait.Receive(t, searched, "the search's end"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	wait.For(t, "all have ended", func() bool {
		f.host.mu.Lock()
		defer f.host.mu.Unlock()
		return f.host.left >= 2 // the search may have ended before it began
	})
}

func TestWatchFiles(t *testing.T) {
	f := newFixture(t, nil)
	next := func(path string, recursive bool) (*agent.Watching, agent.Changes, error) {
		w, err := agent.WatchFiles(t.Context(), f.dial(), agent.Watch{Path: path, Recursive: recursive})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		changes, err := w.Next()
		return w, changes, err
	}
	w, changes, err := next("", true)
	if err != nil || !changes.Lost || len(changes.Changes) != 1 || string(changes.Changes[0].Path) != "a\xff" || changes.Changes[0].Kind != agent.ChangeRemoved {
		t.Errorf("%+v, %v", changes, err)
	}
	_, err = w.Next()
	wantCode(t, err, agent.ErrTooMany)
	_, _, err = next("secret", false)
	wantCode(t, err, agent.ErrInternal)
	_, err = agent.WatchFiles(t.Context(), f.dial(), agent.Watch{Path: "none"})
	wantCode(t, err, agent.ErrNotFound)
}

// A watch beyond the limit is refused, and served after another one ended.
func TestWatchesAreBounded(t *testing.T) {
	f := newFixture(t, nil)
	var all []*agent.Watching
	for range 8 {
		w, err := agent.WatchFiles(t.Context(), f.dial(), agent.Watch{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	_, err := agent.WatchFiles(t.Context(), f.dial(), agent.Watch{})
	wantCode(t, err, agent.ErrTooMany)
	all[0].Close()
	wait.For(t, "a slot is free", func() bool {
		w, err := agent.WatchFiles(t.Context(), f.dial(), agent.Watch{})
		if err == nil {
			w.Close()
		}
		return err == nil
	})
	for _, w := range all[1:] {
		w.Close()
	}
}

// An invalid answer of an agent breaks the stream.
func TestHostileAnswers(t *testing.T) {
	frame := func(kind agent.Kind, body string) []byte { return agent.AppendFrame(nil, kind, []byte(body)) }
	answering := func(frames ...[]byte) net.Conn {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			_, _, _ = agent.NewFrameReader(theirs, agent.AgentSide).Next()
			for _, f := range frames {
				if _, err := theirs.Write(f); err != nil {
					return
				}
			}
		}()
		return ours
	}
	for _, body := range []string{
		`{"protocol":1}`,
		`{"protocol":1,"found":{"matches":[{"file":{}},{"file":{}}]}}`,
		`{"protocol":1,"found":{"matches":[{"file":{"size":-1}}]}}`,
		`{"protocol":1,"found":{"matches":[{"file":{},"line":-1}]}}`,
		`{"protocol":1,"found":{"limit":"x"}}`,
		`{"protocol":1,"found":{"skipped":-1}}`,
	} {
		if found, err := agent.SearchFiles(t.Context(), answering(frame(agent.KindResponse, body)), agent.Search{Name: "*", Most: 1}); !errors.Is(err, agent.ErrProtocol) {
			t.Errorf("%s: %+v, %v, want %v", body, found, err, agent.ErrProtocol)
		}
	}
	began := frame(agent.KindResponse, `{"protocol":1}`)
	for name, then := range map[string][]byte{
		"an unknown kind":      frame(agent.KindChanges, `{"changes":[{"path":"eA==","kind":"x"}]}`),
		"no path":              frame(agent.KindChanges, `{"changes":[{"kind":"created"}]}`),
		"a long path":          frame(agent.KindChanges, `{"changes":[{"path":"`+strings.Repeat("eHh4", (4096+256)/3+1)+`","kind":"created"}]}`),
		"an end without cause": frame(agent.KindEnd, ""),
		"another frame":        frame(agent.KindData, "x"),
	} {
		w, err := agent.WatchFiles(t.Context(), answering(began, then), agent.Watch{})
		if err != nil {
			t.Fatal(err)
		}
		if changes, err := w.Next(); !errors.Is(err, agent.ErrProtocol) {
			t.Errorf("%s: %+v, %v, want %v", name, changes, err, agent.ErrProtocol)
		}
	}
	w, err := agent.WatchFiles(t.Context(), answering(began), agent.Watch{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
	}
}
