package executions

import (
	"bytes"
	"unicode/utf8"
)

// A matcher finds a text in lines as they are displayed, without escape sequences. It is for one
// goroutine.
type matcher struct {
	wanted  []byte
	folds   bool // ignore case
	shown   []byte
	lowered []byte
}

// newMatcher returns nil if every line matches.
func newMatcher(text string, matchCase bool) *matcher {
	if text == "" {
		return nil
	}
	m := &matcher{wanted: []byte(text), folds: !matchCase}
	if m.folds {
		m.wanted = bytes.ToLower(m.wanted)
	}
	return m
}

// in reports whether a line contains the text, as a terminal shows the line: escape sequences don't
// count.
func (m *matcher) in(line []byte) bool {
	if bytes.IndexByte(line, escape) >= 0 {
		m.shown = appendShown(m.shown[:0], line)
		line = m.shown
	}
	if m.folds {
		line = m.lower(line)
	}
	return bytes.Contains(line, m.wanted)
}

// lower is bytes.ToLower without allocating for ASCII.
func (m *matcher) lower(line []byte) []byte {
	m.lowered = append(m.lowered[:0], line...)
	for i, c := range m.lowered {
		switch {
		case c >= utf8.RuneSelf:
			return bytes.ToLower(line)
		case 'A' <= c && c <= 'Z':
			m.lowered[i] = c + 'a' - 'A'
		}
	}
	return m.lowered
}

// Control characters of escape sequences.
const (
	escape = 0x1b
	bell   = 0x07 // ends an operating system command, as a title
)

// appendShown appends a line without its escape sequences: ECMA-48 sequences that set colours and
// move the cursor (CSI), strings such as titles, and sequences of two characters.
func appendShown(to, line []byte) []byte {
	for {
		before, rest, found := bytes.Cut(line, []byte{escape})
		to = append(to, before...)
		if !found || len(rest) == 0 {
			return to
		}
		switch rest[0] {
		// The final byte is @ to ~ (ECMA-48, section 5.4).
		case '[':
			end := bytes.IndexFunc(rest[1:], func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				return to
			}
			line = rest[1+end+1:]
		// The string ends at BEL or ESC \. Another ESC begins the next sequence.
		case ']', 'P', 'X', '^', '_':
			end := bytes.IndexAny(rest, string([]byte{escape, bell}))
			if end < 0 {
				return to
			}
			line = rest[end:]
			if line[0] == bell {
				line = line[1:]
			} else if len(line) > 1 && line[1] == '\\' {
				line = line[2:]
			}
		default:
			line = rest[1:]
		}
	}
}
