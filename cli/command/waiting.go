package command

import (
	"fmt"
	"io"
	"time"

	"github.com/rockpool/rockpool/cli/output"
)

// When a command first reports that it waits, and how often it then updates the time.
const (
	firstWord = 2 * time.Second
	nextWord  = time.Second
)

// ReportWaiting calls do, and prints to errs what do waits for: the errors that do reports, or else
// that the server hasn't responded about subject yet. It returns do's error.
func ReportWaiting(errs io.Writer, subject string, do func(report func(error)) error) error {
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
	line := NewStatus(errs)
	defer line.End()
	began := time.Now()
	update := time.NewTicker(nextWord)
	defer update.Stop()
	for printed, why := "", ""; ; {
		select {
		case err := <-done:
			return err
		case report := <-reports:
			why = fmt.Sprintf("%s; trying again for up to %v (Ctrl-C stops)", report, Patience)
		case <-update.C:
			if why == "" && time.Since(began) >= firstWord {
				why = "no response yet about " + subject + "; waiting (Ctrl-C stops)"
			}
		}
		if why != printed {
			line.End()
			_, _ = fmt.Fprintln(errs, "rockpool: "+output.Plain(why))
		}
		if printed = why; why != "" && line.terminal {
			line.Show(fmt.Sprintf("waiting for %d s", int(time.Since(began).Seconds())))
		}
	}
}

// A Status is a progress line. On a terminal, the next one replaces it.
type Status struct {
	out      io.Writer
	terminal bool
	open     bool // a line is on the terminal
}

// NewStatus returns a status that writes to errs.
func NewStatus(errs io.Writer) *Status {
	return &Status{out: errs, terminal: output.OnTerminal(errs)}
}

// Show replaces the status line on a terminal. Otherwise it prints a line.
func (s *Status) Show(text string) {
	text = "rockpool: " + output.Plain(text)
	if s.terminal {
		s.open = true
		_, _ = io.WriteString(s.out, "\r\x1b[K"+text)
		return
	}
	_, _ = fmt.Fprintln(s.out, text)
}

// End removes the line from a terminal.
func (s *Status) End() {
	if s.open {
		s.open = false
		_, _ = io.WriteString(s.out, "\r\x1b[K")
	}
}
