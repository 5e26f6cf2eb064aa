package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/cli/output"
)

// helpCommand makes help appear in lists of commands. It never runs: Execute rewrites it to --help.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, for example: exec list."`
}

// SignalsApart is the time in which several signals count as one. timeout(1), for example, sends SIGTERM to
// its command, and immediately afterwards to the group of the command.
const SignalsApart = time.Second

// StopSignals adds SIGHUP, the signal of a terminal that closes, to the signals that stop a command. It
// doesn't if nohup(1) made this program ignore it.
func StopSignals(others ...os.Signal) []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return others
	}
	return append(others, syscall.SIGHUP)
}

// Stoppable returns a context that the first signal cancels. A second signal, at least SignalsApart later,
// ends the program immediately.
func Stoppable() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), StopSignals(os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)...)
	context.AfterFunc(ctx, func() { time.AfterFunc(SignalsApart, stop) })
	return ctx, stop
}

// runnable is like Stoppable, for a command that runs a program. A write to a pipe that nobody
// reads returns an error, so that the command can end the program, instead of ending this process.
func runnable() (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // unlike Ignore, programs that this process starts don't inherit it
	return Stoppable()
}

// each calls do for every id, prints the results, and returns the errors joined. The column of the
// table is named done. An id for which do reports false is an error with the text unchanged.
func each(ctx context.Context, s Streams, f output.Format, ids []string, done, unchanged string, do func(ctx context.Context, id string) (bool, error)) error {
	var all []map[string]any
	t := output.Table{Head: []string{"ID", strings.ToUpper(done)}}
	var failed []error
	for _, id := range ids {
		was, err := do(ctx, id)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
		case !was:
			failed = append(failed, fmt.Errorf("%s %s", id, unchanged))
		}
		all = append(all, map[string]any{"id": id, done: was && err == nil})
		t.Rows = append(t.Rows, []string{id, map[bool]string{true: "yes", false: "no"}[was && err == nil]})
	}
	return errors.Join(append([]error{f.Print(s.Out, all, t)}, failed...)...)
}

// text returns the string; "" for nil.
func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// optional returns a pointer to a flag's value for an optional argument of the API; nil if the flag
// wasn't given.
func optional[T comparable](flag T) *T {
	if flag == *new(T) {
		return nil
	}
	return &flag
}
