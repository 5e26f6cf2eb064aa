package executions

import (
	"bytes"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
)

// Limits of a page.
const (
	maxLines      = 1000
	maxLineText   = 16 << 10 // bytes of a line that are returned
	searchedBytes = 1 << 20  // bytes of a line that are searched
	pageText      = 1 << 20  // bytes of text after which a page ends
)

// A Line is a line of output, or lost bytes.
type Line struct {
	Number    int64
	Stream    runtime.Stream // 0 means lost bytes
	Since     time.Duration  // time of its first byte since the execution's start
	Data      []byte         // without the newline and a carriage return before it
	Truncated bool           // Data has maxLineText bytes at most: the first ones or, of an overwritten line, the last ones
	Open      bool           // the line may still grow, and Data with it
	Lost      int64          // number of lost bytes
	Offset    int64          // of the first lost byte

	// Set by Service.Lines.
	At    time.Time
	Cause runtime.LossCause // of lost bytes: why the first of them were lost
}

type collector struct {
	lineQuery
	match  *matcher
	found  []Line // ordered by number
	text   int    // bytes, of found and open lines
	taken  int    // lines that began; only without a search
	before int64  // selected lines before the first one examined; -1 means none examined
	closed int64  // number of the first line after the page; 0 means not known yet; atNext
	lines  [3]Line
	data   [3][]byte // of lines; reused
	open   [3]bool   // the line is selected and not settled yet
	cut    [3]bool   // the line is overwritten, and data has only its end so far
}

// overwritten reports whether a long line has a carriage return early, as a progress bar: a terminal shows
// its end, not its beginning.
func overwritten(data []byte) bool {
	return len(data) > maxLineText && bytes.IndexByte(data[:maxLineText], '\r') >= 0
}

// lastState returns the last maxLineText bytes of an overwritten line or fewer, from after a carriage return.
func lastState(data []byte) []byte {
	data = data[max(0, len(data)-maxLineText):]
	if at := bytes.IndexByte(data, '\r'); at >= 0 && at+1 < len(data) {
		return data[at+1:]
	}
	for len(data) > 0 && !utf8.RuneStart(data[0]) {
		data = data[1:]
	}
	return data
}

// atNext says that the page ends before the next line that begins.
const atNext = -1

func (c *collector) selects(at position, stream runtime.Stream) bool {
	number := at.begun[0]
	if number < c.From || at.begun[c.Stream] <= c.Skip && c.Skip > 0 {
		return false
	}
	selected := stream == 0 || c.Stream == 0 || stream == c.Stream
	if c.before < 0 {
		c.before = at.begun[c.Stream]
		if selected {
			c.before--
		}
	}
	if c.closed == atNext {
		c.closed = number
	}
	if c.closed != 0 || !selected {
		return false
	}
	if c.match == nil && (c.taken == c.First || c.text >= pageText) {
		c.closed = number
		return false
	}
	c.taken++
	return true
}

// begin implements sink. It decides whether the page needs the line.
func (c *collector) begin(at position, stream runtime.Stream, since time.Duration) {
	c.open[stream] = c.selects(at, stream)
	c.lines[stream] = Line{Number: at.begun[0], Stream: stream, Since: since}
	c.data[stream], c.cut[stream] = c.data[stream][:0], false
}

// add appends a piece of a stream's open line, up to what the page needs of it.
func (c *collector) add(stream runtime.Stream, data []byte) {
	for len(data) > 0 && c.open[stream] {
		most := maxLineText + 2 // enough to see that there is more than a carriage return
		switch {
		case c.match != nil:
			most = searchedBytes
		case c.cut[stream]:
			most = 2 * maxLineText
		}
		had := c.data[stream]
		n := min(len(data), most-len(had))
		c.data[stream], data = append(had, data[:n]...), data[n:]
		if c.match == nil && !c.cut[stream] {
			c.text += n
		}
		switch now := c.data[stream]; {
		case len(now) < most:
		case c.cut[stream]:
			c.data[stream] = append(now[:0], now[maxLineText:]...)
		case c.match == nil && overwritten(now):
			c.cut[stream] = true
		default:
			c.settle(stream)
		}
	}
}

// end closes a stream's open line. A carriage return before the newline isn't part of it.
func (c *collector) end(stream runtime.Stream, newline bool) {
	if !c.open[stream] {
		return
	}
	if data := c.data[stream]; newline && len(data) > 0 && data[len(data)-1] == '\r' {
		c.data[stream] = data[:len(data)-1]
	}
	c.settle(stream)
}

// lose implements sink. Searches don't find lost bytes.
func (c *collector) lose(at position, offset, lost int64, since time.Duration) {
	if c.match == nil && c.selects(at, 0) {
		c.insert(Line{Number: at.begun[0], Since: since, Lost: lost, Offset: offset})
	}
}

// settle adds a line to the page or drops it. Later bytes of the line make no difference.
func (c *collector) settle(stream runtime.Stream) {
	c.open[stream] = false
	line, data := c.lines[stream], c.data[stream]
	if c.match != nil {
		if !c.match.in(data) {
			return
		}
		c.text += min(len(data), maxLineText)
	}
	line.Truncated = c.cut[stream] || len(data) > maxLineText
	switch {
	case c.cut[stream] || overwritten(data):
		data = lastState(data)
	case line.Truncated:
		data = data[:maxLineText]
		data = data[:len(data)-runtime.Unfinished(data)]
		line.Open = false
	}
	line.Data = slices.Clone(data)
	c.insert(line)
	if c.match != nil && (len(c.found) >= c.First || c.text >= pageText) && c.closed == 0 {
		c.closed = atNext
	}
}

// insert keeps found ordered, because a line that began earlier may end later.
func (c *collector) insert(line Line) {
	i := len(c.found)
	for i > 0 && c.found[i-1].Number > line.Number {
		i--
	}
	c.found = slices.Insert(c.found, i, line)
}

// endsOnly reports whether lines are open, and the page needs only the ends of these.
func (c *collector) endsOnly() bool {
	return (c.cut[runtime.Stdout] || c.cut[runtime.Stderr]) && !c.needs(runtime.Stdout) && !c.needs(runtime.Stderr)
}

// needs reports whether the page needs what comes next of a stream's open line.
func (c *collector) needs(stream runtime.Stream) bool { return c.open[stream] && !c.cut[stream] }

func (c *collector) full() bool {
	return c.closed != 0 && !c.open[runtime.Stdout] && !c.open[runtime.Stderr]
}

// rest settles the lines that are open at the log's end. ended says that nothing more comes. It
// returns the number of the first of them if more may come, or 0.
func (c *collector) rest(ended bool) (first int64) {
	for _, stream := range []runtime.Stream{runtime.Stdout, runtime.Stderr} {
		if !c.open[stream] {
			continue
		}
		c.lines[stream].Open = !ended
		if number := c.lines[stream].Number; !ended && (first == 0 || number < first) {
			first = number
		}
		c.settle(stream)
	}
	return first
}

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
