package mcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
)

// half is how many bytes of a stream's beginning, and of its end, a result has. More would cost a
// model too many tokens.
const half = 12 << 10

// An outputParts is the output of an execution, in parts.
type outputParts struct {
	streams map[runtime.Stream]*cut
	cursor  string // before the first output that the result lacks
	at      string // after the last output
	lost    int64  // bytes
	reason  string // why they are lost
}

// newOutputParts returns output without any event.
func newPrinted() *outputParts {
	return &outputParts{streams: map[runtime.Stream]*cut{runtime.Stdout: {}, runtime.Stderr: {}}}
}

// add adds an event of output, or of lost output.
func (p *outputParts) add(event events.Event) {
	if event.Kind == events.Lost {
		p.lost += event.Bytes
		p.reason = event.Reason
	} else if !p.streams[event.Stream].write(event.Data) && p.cursor == "" {
		p.cursor = p.at
	}
	p.at = event.Cursor
}

// A cut is the beginning and the end of a stream.
type cut struct {
	head, tail []byte
	total      int
}

// write adds output. It returns false if some of it isn't in the beginning.
func (c *cut) write(data []byte) bool {
	c.total += len(data)
	room := min(half-len(c.head), len(data))
	c.head = append(c.head, data[:room]...)
	if c.tail = append(c.tail, data[room:]...); len(c.tail) > 4*half {
		c.tail = append([]byte(nil), c.tail[len(c.tail)-2*half:]...)
	}
	return room == len(data)
}

// omitted returns the number of bytes that are in neither part.
func (c *cut) omitted() int { return c.total - len(c.head) - len(c.shownTail()) }

// shownTail returns the end to show.
func (c *cut) shownTail() []byte {
	if len(c.head)+len(c.tail) == c.total && len(c.tail) <= half {
		return c.tail
	}
	return c.tail[len(c.tail)-half:]
}

// text returns the stream as text with a note where it is cut, and as base64 if it isn't text. While
// the program is running, the stream may end within a character, which read_output returns.
func (c *cut) text(cursor string, running bool) (text, encoded string) {
	tail, omitted := c.shownTail(), c.omitted()
	whole := append(append([]byte(nil), c.head...), tail...)
	if unfinished := runtime.Unfinished(whole); running {
		whole, tail = whole[:len(whole)-unfinished], tail[:max(len(tail)-unfinished, 0)]
	}
	if omitted == 0 {
		if !utf8.Valid(whole) {
			return runtime.Text(whole), base64.StdEncoding.EncodeToString(whole)
		}
		return string(whole), ""
	}
	note := fmt.Sprintf("\n[… %d bytes are cut out here: call read_output with cursor %q …]\n", omitted, cursor)
	return runtime.Text(c.head[:len(c.head)-runtime.Unfinished(c.head)]) + note + runtime.Text(trimStart(tail)), ""
}

// trimStart returns text without an incomplete character at its beginning.
func trimStart(text []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(text); i++ {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}

// textOf returns bytes as text or, if they aren't UTF-8, as base64.
func textOf(data []byte) (text, encoded string) {
	if utf8.Valid(data) {
		return string(data), ""
	}
	return "", base64.StdEncoding.EncodeToString(data)
}

// Live output is sent immediately, but not more often than clients can show it and not more than
// they can use.
const (
	liveInterval = 100 * time.Millisecond // minimum time between two notifications
	heartbeat    = 15 * time.Second       // without output: clients and proxies end requests without data for a minute
	maxLive      = 8 << 10                // bytes of output in one notification
	maxLiveInAll = 64 << 10               // bytes of output of one execution
)

// A progress sends output to the client while a call runs, if the client requested that. One
// goroutine uses it.
type progress struct {
	token any // nil if the client didn't request it
	to    *sdk.ServerSession

	sent    float64 // number of notifications
	last    time.Time
	pending string
	cut     bool // output was printed since that pending doesn't include
	passed  int  // bytes of output that were sent
	bytes   int  // of all output
}

// wanted reports whether the client requested progress. If not, no output is copied for it.
func (p *progress) wanted() bool { return p.token != nil }

func (p *progress) output(text string) {
	p.bytes += len(text)
	if p.cut {
		return
	}
	if room := min(maxLive-len(p.pending), maxLiveInAll-p.passed-len(p.pending)); room < len(text) {
		text, p.cut = text[:max(room, 0)], true
		text = text[:len(text)-runtime.Unfinished([]byte(text))]
	}
	p.pending += text
}

// due returns the time until the next notification, 0 if it is due.
func (p *progress) due(now time.Time) time.Duration {
	wait := heartbeat
	if p.pending != "" {
		wait = liveInterval
	}
	return max(0, wait-now.Sub(p.last))
}

// notify sends a notification with pending output or, without any, with a message.
func (p *progress) notify(ctx context.Context, message string) {
	if !p.wanted() {
		return
	}
	message = p.take(message)
	p.last = time.Now()
	p.sent++
	_ = p.to.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: p.token, Progress: p.sent, Message: message}) // fails if the client closed the connection
}

// take returns and clears the pending output or, without any, returns a message.
func (p *progress) take(message string) string {
	if p.pending != "" {
		message, p.passed, p.pending = p.pending, p.passed+len(p.pending), ""
		if p.cut {
			message += "\n[… more: the answer or read_output has it]"
			p.cut = p.passed > maxLiveInAll-utf8.UTFMax
		}
	} else if p.bytes > p.passed {
		message = fmt.Sprintf("%s, %d bytes of output so far", message, p.bytes)
	}
	return message
}
