package mcp

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/runtime"
)

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

// output adds output.
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
