package mcp

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// How live output is passed on: as soon as it is there, but not more often than clients can show, and not more than they
// care to read.
const (
	liveInterval = 100 * time.Millisecond // at least, between two notifications
	heartbeat    = 15 * time.Second       // without output: clients and proxies end requests that are silent for a minute
	maxLive      = 8 << 10                // bytes of output in one notification
	maxLiveInAll = 64 << 10               // of one execution
)

// progress passes output on while a call runs, to a client that wishes it.
type progress struct {
	token any // nil: the client doesn't
	to    *sdk.ServerSession

	sent    float64 // notifications
	last    time.Time
	pending string
	cut     bool // pending lacks what was printed since
	passed  int  // bytes of output that were passed on
	bytes   int  // of all output
}

// wanted reports whether the client wishes progress. Without, nothing is copied for it.
func (p *progress) wanted() bool { return p.token != nil }

// output takes more output.
func (p *progress) output(text string) {
	p.bytes += len(text)
	if p.cut {
		return
	}
	if room := min(maxLive-len(p.pending), maxLiveInAll-p.passed-len(p.pending)); room < len(text) {
		text, p.cut = trimEnd([]byte(text[:max(room, 0)])), true
	}
	p.pending += text
}

// due returns after what time there is something to send; 0: now.
func (p *progress) due(now time.Time) time.Duration {
	wait := heartbeat
	if p.pending != "" {
		wait = liveInterval
	}
	return max(0, wait-now.Sub(p.last))
}

// say sends a notification, with the output that waits for one or, without any, with a message.
func (p *progress) say(ctx context.Context, message string) {
	if !p.wanted() {
		return
	}
	message = p.take(message)
	p.last = time.Now()
	p.sent++
	_ = p.to.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: p.token, Progress: p.sent, Message: message}) // a client that has left gets none
}

// take returns the output that waits or, without any, a message.
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
