package plain

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

const (
	markByte = '\036' // begins and ends what a script tells
	mostTold = 256    // bytes that a script tells at once

	started = "started" // what run.sh tells when the command begins
)

var errClosed = errors.New("nobody reads any more")

// A splitter is a command's output as it comes. It passes on what the command
// prints, and takes out what the script around it tells: that begins with a
// secret which only the script knows.
type splitter struct {
	prefix []byte
	told   func(words []string) // in the order in which it came; must not block
	out    io.Writer            // what is printed; nil: thrown away. Its errors are its own business

	writing sync.Mutex // held during a Write
	held    []byte     // may become something told, or is its beginning
	muted   bool       // what is printed now is no program's

	mu     sync.Mutex // guards what follows
	closed bool
}

// newSplitter returns a splitter. If it is muted it throws away what comes before
// the script has told that the command has begun: a terminal's echo of what the
// script was told.
func newSplitter(secret string, muted bool, out io.Writer, told func(words []string)) *splitter {
	return &splitter{prefix: []byte(string(markByte) + secret + " "), out: out, told: told, muted: muted}
}

// Write implements io.Writer. It fails once the splitter was closed.
func (s *splitter) Write(b []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, errClosed
	}
	data := b
	if len(s.held) > 0 {
		s.held = append(s.held, b...)
		data, s.held = s.held, nil
	}
	for len(data) > 0 {
		at := bytes.Index(data, s.prefix)
		if at < 0 {
			at = len(data) - s.beginning(data)
			s.print(data[:at])
			s.held = append([]byte(nil), data[at:]...)
			return len(b), nil
		}
		s.print(data[:at])
		told := data[at+len(s.prefix):]
		end := bytes.IndexByte(told, markByte)
		if end < 0 && len(told) <= mostTold {
			s.held = append([]byte(nil), data[at:]...)
			return len(b), nil
		}
		if end < 0 || end > mostTold {
			// A program that knows the secret made this: it is its output.
			s.print(s.prefix)
			data = told
			continue
		}
		words := strings.Fields(string(told[:end]))
		s.muted = s.muted && !slices.Equal(words[:min(len(words), 1)], []string{started})
		s.told(words)
		data = told[end+1:]
	}
	return len(b), nil
}

// beginning returns how many bytes at the end of data may be the beginning of
// the prefix.
func (s *splitter) beginning(data []byte) int {
	for n := min(len(data), len(s.prefix)-1); n > 0; n-- {
		if bytes.HasSuffix(data, s.prefix[:n]) {
			return n
		}
	}
	return 0
}

func (s *splitter) print(b []byte) {
	if s.out != nil && len(b) > 0 && !s.muted {
		_, _ = s.out.Write(b)
	}
}

// close ends the splitter: what still comes is refused.
func (s *splitter) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
}
