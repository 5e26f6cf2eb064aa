package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config/quantity"
)

// Streams are a command's standard input, output and error.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// An ExitError ends the program with an exit code. The command has already printed its message.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// A UsageError is an error that the caller's command line or files cause.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap supports errors.Is and errors.As.
func (e UsageError) Unwrap() error { return e.Err }

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

// Runnable is like Stoppable, for a command that runs a program. A write to a pipe that nobody
// reads returns an error, so that the command can end the program, instead of ending this process.
func Runnable() (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // unlike Ignore, programs that this process starts don't inherit it
	return Stoppable()
}

// Each calls do for every id, prints the results, and returns the errors joined. The column of the
// table is named done. An id for which do reports false is an error with the text unchanged.
func Each(ctx context.Context, s Streams, f output.Format, ids []string, done, unchanged string, do func(ctx context.Context, id string) (bool, error)) error {
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

// Text returns the string; "" for nil.
func Text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// Optional returns a pointer to a flag's value for an optional argument of the API; nil if the flag
// wasn't given.
func Optional[T comparable](flag T) *T {
	if flag == *new(T) {
		return nil
	}
	return &flag
}

// Moment parses the value of a time flag: RFC 3339, or a duration before now. "" gives nil.
func Moment(flag, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return &at, nil
	}
	before, err := quantity.Duration(text, time.Second)
	if err != nil || before < 0 {
		return nil, fmt.Errorf("%s is %q, but must be a time such as 2026-11-20T21:27:00Z, or a duration before now such as 24h or 7d", flag, text)
	}
	return new(time.Now().Add(-before)), nil
}

// Override sets a field to a flag's value, if the flag was given.
func Override[T any](field **T, flag *T) {
	if flag != nil {
		*field = flag
	}
}

// PageSize is the size of a page: the maximum of the API.
var PageSize = new(1000)

// LabelledPage is the size of a page of executions or runners with labels, whose cost the API limits.
var LabelledPage = new(200)

// Pages reads all pages of a list. read returns the page after a cursor, the first one for nil.
func Pages[T any](read func(after *string) ([]T, client.PageInfo, error)) ([]T, error) {
	all := []T{} // an empty list isn't null
	var after *string
	for {
		nodes, info, err := read(after)
		if err != nil {
			return nil, err
		}
		all = append(all, nodes...)
		if !info.HasNextPage || info.EndCursor == nil {
			return all, nil
		}
		after = info.EndCursor
	}
}
