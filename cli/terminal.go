package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rockpool/rockpool/client"
)

// A terminal is the user's own. While it is raw every key goes to the program
// inside, Ctrl-C too; it must be restored before anything else happens to the
// process.
type terminal struct {
	in   *os.File
	same bool // standard output and standard error are one terminal

	mu    sync.Mutex  // guards saved
	saved *term.State // nil: it isn't raw
}

// openTerminal returns the terminal that standard input is.
func openTerminal(s Streams) (*terminal, error) {
	in, ok := s.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil, errors.New("--tty needs a terminal as standard input, and this is none; leave --tty out, and give --stdin to feed the program from a pipe or a file")
	}
	return &terminal{in: in, same: sameTerminal(s.Out, s.Err)}, nil
}

func sameTerminal(a, b io.Writer) bool {
	var devices [2]uint64
	for i, w := range []io.Writer{a, b} {
		file, ok := w.(*os.File)
		var stat unix.Stat_t
		if !ok || !term.IsTerminal(int(file.Fd())) || unix.Fstat(int(file.Fd()), &stat) != nil {
			return false
		}
		devices[i] = stat.Rdev
	}
	return devices[0] == devices[1]
}

// makeRaw hands every key over. When ctx ends the terminal is restored at once:
// a second signal ends the process as it is.
func (t *terminal) makeRaw(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	saved, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	t.saved = saved
	context.AfterFunc(ctx, t.restore)
	return nil
}

// restore makes the terminal what it was. It may be called at any time.
func (t *terminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return
	}
	_ = term.Restore(int(t.in.Fd()), t.saved) // one that is gone needs nothing
	t.saved = nil
}

// guard runs a goroutine's work; a panic there leaves the terminal restored.
// There needn't be one.
func (t *terminal) guard(work func()) {
	if t != nil {
		defer func() {
			if r := recover(); r != nil {
				t.restore()
				panic(r)
			}
		}()
	}
	work()
}

// size returns columns and rows, within what the API takes. A serial line
// doesn't know its size.
func (t *terminal) size() (columns, rows int) {
	columns, rows, err := term.GetSize(int(t.in.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		return 80, 24
	}
	return min(columns, 4096), min(rows, 4096)
}

// watch calls changed with every new size until ctx ends.
func (t *terminal) watch(ctx context.Context, changed func(columns, rows int)) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	defer signal.Stop(signals)
	for {
		changed(t.size()) // the first time too: it may have changed since the start was asked for
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
	}
}

// oneTerminal is a script for sh that runs its arguments with standard error on
// the terminal of standard output, where job control and pagers look for it.
const oneTerminal = `exec "$@" 2>&1`

// describe asks for a terminal like this one in a startExecution's input.
func (t *terminal) describe(input *client.StartExecutionInput) {
	columns, rows := t.size()
	input.Terminal = &client.TerminalInput{Columns: columns, Rows: rows}
	input.Stdin = new(true)
	if t.same {
		input.Command = append([]string{"sh", "-c", oneTerminal, "sh"}, input.Command...)
	}
	if kind := os.Getenv("TERM"); kind != "" {
		input.Variables = []client.VariableInput{{Name: "TERM", Value: kind}}
	}
}
