package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// When a command first reports that it waits, and how often it then updates the time.
const (
	firstWord = 2 * time.Second
	nextWord  = time.Second
)

// reportWaiting calls do, and prints to errs what do waits for: the errors that do reports, or else
// that the server hasn't responded about subject yet. It returns do's error.
func reportWaiting(errs io.Writer, subject string, do func(report func(error)) error) error {
	reports, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- do(func(err error) {
			select {
			case <-reports: // drop the unread one
			default:
			}
			reports <- err.Error()
		})
	}()
	line := newStatus(errs)
	defer line.end()
	began := time.Now()
	update := time.NewTicker(nextWord)
	defer update.Stop()
	for printed, why := "", ""; ; {
		select {
		case err := <-done:
			return err
		case report := <-reports:
			why = fmt.Sprintf("%s; trying again for up to %v (Ctrl-C stops)", report, connection.Patience)
		case <-update.C:
			if why == "" && time.Since(began) >= firstWord {
				why = "no response yet about " + subject + "; waiting (Ctrl-C stops)"
			}
		}
		if why != printed {
			line.end()
			_, _ = fmt.Fprintln(errs, "rockpool: "+output.Plain(why))
		}
		if printed = why; why != "" && line.terminal {
			line.show(fmt.Sprintf("waiting for %d s", int(time.Since(began).Seconds())))
		}
	}
}

// subject returns in words what a put of an environment waits for.
func subject(input client.PutEnvironmentInput) string {
	if input.Image != nil && *input.Image != runtime.DefaultImage {
		return "the image " + *input.Image + " from its registry"
	}
	return "the environment " + input.Id
}
