// Package bridge carries many streams to a runner's agent through one: the
// standard input and output of "agent bridge", which runs beside the agent. On
// Nomad these are those of one alloc exec.
//
// The client opens streams (Dial), the bridge connects each to the agent's
// socket. Each has flow control of its own (hashicorp/yamux), so that one that
// isn't read stalls no other. An agent that can't be reached is ErrNoAgent, a
// bridge that broke ErrBroken; neither is ever an io.EOF, which is the agent's
// own end of a stream.
//
// Either side ends when the other is silent for too long: Nomad doesn't end a
// command whose exec was left.
package bridge

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

var (
	// ErrBroken says that the bridge doesn't carry any more. It is no evidence
	// about the agent: another bridge may reach it.
	ErrBroken = errors.New("the bridge to the runner's agent broke")
	// ErrNoAgent says that the bridge is up, and that the agent doesn't listen.
	ErrNoAgent = errors.New("the runner's agent doesn't listen")
)

// patience is how long one side bears with the other.
type patience struct {
	// keepAlive is how often the client asks whether the bridge is there.
	keepAlive time.Duration
	// silence is after how long without an answer, or without a question, there
	// is nobody. What either side can't write for so long breaks the bridge, too.
	silence time.Duration
	// first is for how long the bridge tries again to reach the agent for the first
	// stream: it may be there before the agent listens.
	first time.Duration
}

var usual = patience{keepAlive: 15 * time.Second, silence: 30 * time.Second, first: 2 * time.Second}

// The most streams that wait for the bridge's first answer; more wait to open.
const backlog = 256

// The bridge begins each stream with one byte: what became of it.
const (
	connected = 0
	noAgent   = 1 // and the reason in words
)

// maxReason bounds the words.
const maxReason = 256

func (p patience) config(client bool) *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = client
	c.KeepAliveInterval = p.keepAlive
	c.ConnectionWriteTimeout = p.silence
	c.StreamOpenTimeout = p.silence
	c.StreamCloseTimeout = p.silence
	c.AcceptBacklog = backlog
	c.LogOutput = io.Discard
	return c
}
