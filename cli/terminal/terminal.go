// Package terminal is the user's own terminal, which a program in a runner gets for a
// while. It is always restored.
package terminal

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

// A Terminal is the user's own. While it is raw every key goes to the program
// inside, Ctrl-C too; it must be restored before anything else happens to the
// process.
type Terminal struct {
	in   *os.File
	same bool // standard output and standard error are one terminal

	mu    sync.Mutex  // guards saved
	saved *term.State // nil: it isn't raw
}

// Open returns the terminal that standard input is.
func Open(in io.Reader, out, errs io.Writer) (*Terminal, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, errors.New("--tty needs a terminal as standard input, and this is none; leave --tty out, and give --stdin to feed the program from a pipe or a file")
	}
	return &Terminal{in: file, same: sameTerminal(out, errs)}, nil
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

// MakeRaw hands every key over. When ctx ends the terminal is restored at once:
// a second signal ends the process as it is.
func (t *Terminal) MakeRaw(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	saved, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	t.saved = saved
	context.AfterFunc(ctx, t.Restore)
	return nil
}

// Restore makes the terminal what it was. It may be called at any time.
func (t *Terminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return
	}
	_ = term.Restore(int(t.in.Fd()), t.saved) // one that is gone needs nothing
	t.saved = nil
}

// Guard runs a goroutine's work; a panic there leaves the terminal restored.
// There needn't be one.
func (t *Terminal) Guard(work func()) {
	if t != nil {
		defer func() {
			if r := recover(); r != nil {
				t.Restore()
				panic(r)
			}
		}()
	}
	work()
}

// size returns columns and rows, within what the API takes. A serial line
// doesn't know its size.
func (t *Terminal) size() (columns, rows int) {
	columns, rows, err := term.GetSize(int(t.in.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		return 80, 24
	}
	return min(columns, 4096), min(rows, 4096)
}

// Watch calls changed with every new size until ctx ends.
func (t *Terminal) Watch(ctx context.Context, changed func(columns, rows int)) {
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

// Describe asks for a terminal like this one in a startExecution's input.
func (t *Terminal) Describe(input *client.StartExecutionInput) {
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
