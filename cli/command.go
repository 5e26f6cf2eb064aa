package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rockpool/rockpool/cli/output"
)

// helpCommand is there for the lists of commands: Execute has made it a flag.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, for example: exec list."`
}

// Help is what its --help says beyond the flags.
func (helpCommand) Help() string {
	return `The same as --help after the command.

    rockpool help exec list`
}

// stoppable returns a context that a first signal ends; a second ends the
// program at once.
func stoppable() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// each does something to everything that was named, says so, and fails at its
// end if one wasn't there or could not be done.
func each(s Streams, f output.Format, ids []string, done string, do func(ctx context.Context, id string) (bool, error)) error {
	ctx, stop := stoppable()
	defer stop()
	var all []map[string]any
	t := output.Table{Head: []string{"ID", strings.ToUpper(done)}}
	var failed []error
	for _, id := range ids {
		was, err := do(ctx, id)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
		case !was:
			failed = append(failed, fmt.Errorf("%s isn't there", id))
		}
		all = append(all, map[string]any{"id": id, done: was && err == nil})
		t.Rows = append(t.Rows, []string{id, map[bool]string{true: "yes", false: "no"}[was && err == nil]})
	}
	return errors.Join(append([]error{f.Print(s.Out, all, t)}, failed...)...)
}

// text returns what is there; "" for null.
func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// unless returns an optional argument, which is null where a flag wasn't given.
func unless[T comparable](flag T) *T {
	if flag == *new(T) {
		return nil
	}
	return &flag
}
