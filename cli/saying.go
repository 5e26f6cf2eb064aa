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

// How soon, and how often, a command says that it waits.
const (
	firstWord = 2 * time.Second
	nextWord  = time.Second
)

// saying does something that may take a while, and says on errs what it waits for: what it
// reports, and else that no answer came about the subject yet.
func saying(errs io.Writer, subject string, do func(report func(error)) error) error {
	reports, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- do(func(err error) {
			select {
			case <-reports: // which nobody has read
			default:
			}
			reports <- err.Error()
		})
	}()
	line := newStatus(errs)
	defer line.end()
	began := time.Now()
	look := time.NewTicker(nextWord)
	defer look.Stop()
	for said, why := "", ""; ; {
		select {
		case err := <-done:
			return err
		case report := <-reports:
			why = fmt.Sprintf("%s; trying again for up to %v, until Ctrl-C", report, connection.Patience)
		case <-look.C:
			if why == "" && time.Since(began) >= firstWord {
				why = "no answer yet about " + subject + "; waiting, until Ctrl-C"
			}
		}
		if why != said {
			line.end()
			_, _ = fmt.Fprintln(errs, "rockpool: "+output.Plain(why))
		}
		if said = why; why != "" && line.terminal {
			line.say(fmt.Sprintf("waiting for %d s", int(time.Since(began).Seconds())))
		}
	}
}

// subject is what a put of an environment waits for.
func subject(input client.PutEnvironmentInput) string {
	if input.Image != nil && *input.Image != runtime.DefaultImage {
		return "the image " + *input.Image + " from its registry"
	}
	return "the environment " + input.Id
}
