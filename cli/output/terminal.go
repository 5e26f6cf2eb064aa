package output

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

// A Terminal is the user's terminal. While it is raw, every key goes to the program in the runner,
// including Ctrl-C. It must be restored before the process ends. Its methods may be called
// concurrently.
type Terminal struct {
	in   *os.File
	same bool // standard output and standard error are one terminal

	mu    sync.Mutex  // guards saved
	saved *term.State // nil if the terminal isn't raw
}

// OpenTerminal returns the terminal of standard input. It fails if standard input isn't a terminal.
func OpenTerminal(in io.Reader, out, errs io.Writer) (*Terminal, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, errors.New("--tty needs a terminal as standard input, and there is none; to pass a pipe or a file to the program, use --stdin instead of --tty")
	}
	return &Terminal{in: file, same: sameTerminal(out, errs)}, nil
}

// sameTerminal reports whether both are the same terminal device.
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

// MakeRaw makes the terminal raw until Restore is called or ctx ends. It restores immediately when
// ctx ends, because a second signal ends the process without cleanup.
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

// Restore restores the terminal's settings. It may be called at any time, and repeatedly.
func (t *Terminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return
	}
	_ = term.Restore(int(t.in.Fd()), t.saved) // an error means that the terminal is gone
	t.saved = nil
}

// Guard calls work, and restores the terminal if work panics. A nil Terminal only calls work.
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

// size returns the number of columns and rows, within the limits of the API. Without a known size,
// as on a serial line, it returns 80×24.
func (t *Terminal) size() (columns, rows int) {
	columns, rows, err := term.GetSize(int(t.in.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		return 80, 24
	}
	return min(columns, 4096), min(rows, 4096)
}

// Watch calls changed with the current size, and again after every change, until ctx ends.
func (t *Terminal) Watch(ctx context.Context, changed func(columns, rows int)) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	defer signal.Stop(signals)
	for {
		changed(t.size()) // also at first: the size may have changed since the program was started
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
	}
}

// oneTerminal is a script for sh that runs its arguments with standard error on the terminal of
// standard output. Job control and pagers need it there.
const oneTerminal = `exec "$@" 2>&1`

// Describe adds a terminal like this one to the input of startExecution. It may put a script before
// the command.
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
