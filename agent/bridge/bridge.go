// Package bridge carries many streams to a runner's agent through a single one. It guarantees that
// a stream that isn't read doesn't stall the others, and that a failure of the bridge is never
// mistaken for the end of an agent's stream.
//
// The single stream is the standard input and output of "agent bridge", a process next to the
// agent. On Nomad it is the stream of one alloc exec. The client opens streams (Dial), and the
// bridge connects each of them to the agent's socket. Every stream has its own flow control
// (hashicorp/yamux). The error is ErrNoAgent if the agent can't be reached and ErrBroken if the
// bridge broke. Neither is ever io.EOF, which means that the agent ended the stream.
//
// Each side ends when the other is silent for too long, because Nomad doesn't end the command of an
// abandoned exec.
package bridge

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

var (
	// ErrBroken says that the bridge no longer carries streams. It says nothing about the agent:
	// another bridge may reach it.
	ErrBroken = errors.New("the bridge to the runner's agent broke")
	// ErrNoAgent says that the bridge works, but no agent listens.
	ErrNoAgent = errors.New("the runner's agent doesn't listen")
)

// patience has the timeouts of both sides.
type patience struct {
	// keepAlive is the interval of the client's pings.
	keepAlive time.Duration
	// silence is how long a side waits for an answer, or for a ping, before it gives up. A write
	// that blocks for as long breaks the bridge, too.
	silence time.Duration
	// first is how long the bridge retries to reach the agent for the first stream: the bridge may
	// start before the agent listens.
	first time.Duration
}

var usual = patience{keepAlive: 15 * time.Second, silence: 30 * time.Second, first: 2 * time.Second}

// backlog is the maximum number of streams that wait for the bridge's answer. Further calls of Dial
// block.
const backlog = 256

// The bridge begins each stream with one byte: whether it reached the agent.
const (
	connected = 0
	noAgent   = 1 // followed by the reason, as text
)

// maxReason bounds the reason, in bytes.
const maxReason = 256

// config returns the settings of a session. Only the client sends pings: the bridge relies on
// receiving them.
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
