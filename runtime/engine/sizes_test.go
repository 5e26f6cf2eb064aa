package engine

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// sizes reads an execution's events up to the end. It returns the sizes with the number of bytes
// before each, and all cursors.
func (b *bed) sizes(t *testing.T, id runtime.ExecutionID, after string, asked bool) (sizes []string, cursors []string) {
	t.Helper()
	r, err := b.Executions.Events(asServer(t), id, after)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if asked {
		r.WithResizes()
	}
	printed := ""
	for {
		event, err := r.Next(asServer(t))
		if errors.Is(err, io.EOF) {
			return sizes, cursors
		}
		if err != nil {
			t.Fatal(err)
		}
		printed += event.Text()
		if event.Kind == events.Resized {
			sizes = append(sizes, fmt.Sprintf("%dx%d after %q", event.Size.Columns, event.Size.Rows, printed))
		}
		cursors = append(cursors, event.Cursor)
	}
}

// TestOnlyReadersWithResizesGetTerminalSizes checks that they get each size once, at its position,
// from every cursor and across a restart, and that other readers get none.
func TestOnlyReadersWithResizesGetTerminalSizes(t *testing.T) {
	b := newBed(t)
	b.environment(t, "e", 1)
	runner := b.claim(t, "e").ID
	x := b.startCommand(t, request.Start{RunnerID: runner, Command: []string{"cat"}, Terminal: &runtime.TerminalSize{Columns: 80, Rows: 24}})
	resize := func(columns int) { // the fake prints it
		t.Helper()
		if _, err := b.Executions.Resize(asServer(t), x.ID, runtime.TerminalSize{Columns: columns, Rows: 30}); err != nil {
			t.Fatal(err)
		}
	}
	resize(100)
	resize(100)
	b.stop()
	b.start(t)
	resize(90)
	if _, err := b.Executions.Cancel(asServer(t), x.ID); err != nil {
		t.Fatal(err)
	}
	want, cursors := b.sizes(t, x.ID, "", true)
	if len(want) != 3 || want[0] != `80x24 after ""` {
		t.Fatalf("%q", want)
	}
	if none, _ := b.sizes(t, x.ID, "", false); none != nil {
		t.Errorf("unasked: %q", none)
	}
	for i, cursor := range cursors {
		got, rest := b.sizes(t, x.ID, cursor, true)
		b.sizes(t, x.ID, cursor, false) // a caller that doesn't request sizes gets any cursor too
		if len(cursors) > i+1 && !slices.Equal(rest, cursors[i+1:]) || len(got) > len(want) {
			t.Errorf("after event %d: %q", i, got)
		}
	}
	if chunks, _, end, err := b.output(x.ID, "", 1<<20); err != nil || !end || slices.ContainsFunc(chunks, func(e events.Event) bool { return e.Kind != events.Output }) {
		t.Errorf("%v, %t, %v", chunks, end, err)
	}
}

// TestSilentTerminalIsRestoredAsRunning checks that a size in the log is enough evidence not to
// start the execution again.
func TestSilentTerminalIsRestoredAsRunning(t *testing.T) {
	b := newBed(t)
	b.environment(t, "e", 1)
	x := b.startCommand(t, request.Start{RunnerID: b.claim(t, "e").ID, Command: []string{"cat"}, Terminal: &runtime.TerminalSize{Columns: 80, Rows: 24}})
	wait.For(t, "its size is in the log", func() bool {
		r, err := b.Executions.Events(asServer(t), x.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		r.WithResizes()
		_, _ = r.TryNext()
		event, err := r.TryNext()
		return err == nil && event.Kind == events.Resized
	})
	b.stop()
	b.start(t)
	got, err := b.Executions.Get(asServer(t), x.ID, 0)
	if err != nil || got.State != runtime.ExecutionRunning || !got.Timestamps.FirstOutputAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := b.Executions.Cancel(asServer(t), x.ID); err != nil {
		t.Error(err)
	}
}
