package session

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
)

const (
	pieceBytes  = 32 << 10 // per read
	beforeBytes = 32       // of a line that are shown before a difference
	afterBytes  = 64       // and after it
)

// White space: at the end of a line, in and between empty lines, and between words.
const (
	lineSpace  = " \t\r"
	lineSpaces = lineSpace + "\n"
	wordSpace  = lineSpaces + "\v\f"
)

type comparedText struct {
	in     io.Reader
	buffer [pieceBytes]byte
	unread []byte // of buffer
	word   [tokenBytes]byte
	line   int    // present line, from 1
	before []byte // what was taken of the present line, at most its last 2*beforeBytes
	cut    bool   // before lacks the line's beginning
	err    error  // of in, except io.EOF
	over   bool   // in has ended
}

func newComparedText(in io.Reader) *comparedText {
	return &comparedText{in: in, line: 1, before: make([]byte, 0, 2*beforeBytes)}
}

// peek returns the next bytes, or none at the end or after an error.
func (s *comparedText) peek() []byte {
	for empty := 0; len(s.unread) == 0 && !s.over; empty++ {
		n, err := s.in.Read(s.buffer[:])
		s.unread = s.buffer[:n]
		if err == nil && empty == 100 {
			err = io.ErrNoProgress
		}
		if err != nil {
			s.over = true
			if !errors.Is(err, io.EOF) {
				s.err, s.unread = err, nil
			}
		}
	}
	return s.unread
}

func (s *comparedText) ended() bool { return len(s.peek()) == 0 }

func (s *comparedText) take(n int) {
	taken := s.unread[:n]
	s.unread = s.unread[n:]
	if at := bytes.LastIndexByte(taken, '\n'); at >= 0 {
		s.line += bytes.Count(taken, []byte("\n"))
		taken = taken[at+1:]
		s.before, s.cut = s.before[:0], false
	}
	if more := len(taken) - beforeBytes; more > 0 {
		taken = taken[more:]
		s.before, s.cut = s.before[:0], true
	}
	if more := len(s.before) + len(taken) - cap(s.before); more > 0 {
		s.before, s.cut = append(s.before[:0], s.before[more:]...), true
	}
	s.before = append(s.before, taken...)
}

// skip takes the bytes of a set. It reports whether it came to a line end or to the end.
func (s *comparedText) skip(set string) bool {
	for {
		next := s.peek()
		if len(next) == 0 {
			return true
		}
		n := len(next) - len(bytes.TrimLeft(next, set))
		s.take(n)
		if n < len(next) {
			return next[n] == '\n'
		}
	}
}

// token takes the rest of a word, but at most tokenBytes. whole reports whether the word ends there.
// The word is valid until the next call.
func (s *comparedText) token() (word []byte, whole bool) {
	word = s.word[:0]
	for len(word) < tokenBytes {
		next := s.peek()
		next = next[:min(len(next), tokenBytes-len(word))]
		end := bytes.IndexAny(next, wordSpace)
		if end < 0 {
			end = len(next)
		}
		if end == 0 {
			return word, true
		}
		word = append(word, next[:end]...)
		s.take(end)
	}
	next := s.peek()
	return word, len(next) == 0 || strings.IndexByte(wordSpace, next[0]) >= 0
}

// excerpt takes the next bytes of the present line, and returns them after what was taken before.
func (s *comparedText) excerpt(lineEnd bool) string {
	mark := ""
	before := bytes.Clone(s.before)
	if more := len(before) - beforeBytes; s.cut || more > 0 {
		before = before[max(0, more):]
		for len(before) > 0 && !utf8.RuneStart(before[0]) {
			before = before[1:]
		}
		mark = "…"
	}
	for len(before) < beforeBytes+afterBytes {
		next := s.peek()
		if len(next) == 0 {
			return shorten(mark, before, false)
		}
		s.take(1)
		if next[0] == '\n' {
			if lineEnd {
				before = append(before, '\n')
			}
			return shorten(mark, before, false)
		}
		before = append(before, next[0])
	}
	more := s.peek()
	return shorten(mark, before, len(more) > 0 && more[0] != '\n')
}

// shorten returns a text after a mark. If more follows, it ends with a mark too, after a whole character.
func shorten(mark string, text []byte, more bool) string {
	if more {
		text = text[:len(text)-runtime.Unfinished(text)]
	}
	shown := mark + strings.ToValidUTF8(string(text), "\uFFFD")
	if more {
		shown += "…"
	}
	return shown
}
