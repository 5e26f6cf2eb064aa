package image

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// steps are the lines of mmdebstrap that say something to a person who waits.
var steps = regexp.MustCompile(`^(running apt-get|downloading|extracting|installing|cleaning|creating)`)

// silence is how long a step may take without a line about its duration.
const silence = 15 * time.Second

// A progress prints the steps of mmdebstrap, and how long a step takes that prints nothing. It keeps
// the last lines for an error.
type progress struct {
	out  io.Writer
	tick *time.Ticker
	rest []byte // of an incomplete line
	last []string
}

// watch prints the duration whenever a step takes long, until stop is called.
func (p *progress) watch() (stop func()) {
	began, done := time.Now(), make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-p.tick.C:
				_, _ = fmt.Fprintf(p.out, "rockpool: … %s\n", time.Since(began).Round(time.Second))
			}
		}
	})
	return func() { close(done); watcher.Wait() }
}

// Write implements io.Writer for the standard error of mmdebstrap.
func (p *progress) Write(text []byte) (int, error) {
	p.rest = append(p.rest, text...)
	for {
		at := bytes.IndexAny(p.rest, "\r\n")
		if at < 0 {
			return len(text), nil
		}
		line := strings.TrimSpace(string(p.rest[:at]))
		p.rest = p.rest[at+1:]
		if line == "" {
			continue
		}
		const kept = 20
		p.last = append(p.last, line)
		p.last = p.last[max(0, len(p.last)-kept):]
		if step, is := strings.CutPrefix(line, "I: "); is && steps.MatchString(step) {
			_, _ = fmt.Fprintf(p.out, "rockpool: %s\n", step)
			p.tick.Reset(silence)
		}
	}
}

// tail returns the last errors, or if it printed none the last lines.
func (p *progress) tail() string {
	errors := slices.DeleteFunc(slices.Clone(p.last), func(line string) bool { return !strings.HasPrefix(line, "E: ") })
	if len(errors) > 0 {
		return strings.Join(errors, "\n")
	}
	return strings.Join(p.last, "\n")
}
