package connection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime/backoff"
)

// Nomad's own client for alloc exec isn't suitable for bridges. It looks up the node every time,
// can't be cancelled while it connects, and sends stdin in pieces of 2 KiB.

// Limits of alloc exec.
const (
	maxExecFrame  = 1 << 20          // bytes of JSON from Nomad
	maxExecPiece  = 256 << 10        // bytes of stdin in one frame
	execHeartbeat = 10 * time.Second // as in Nomad's client
	maxStderr     = 1 << 10          // bytes that are kept
)

// An Exec is a command that runs in an allocation. Write writes to its stdin, Read reads its
// stdout. Its end is an [ExitError]. One goroutine may read while others write.
type Exec struct {
	ws    *websocket.Conn
	close func() error // ends the heartbeat and waits for it; runs once

	rest   []byte // of stdout; only Read uses it
	stderr []byte // only Read uses it

	writing sync.Mutex // held while a frame is written
}

// An ExitError is the end of a command: its exit code, and the first line of its stderr.
type ExitError struct {
	Code   int
	Stderr string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("it ended with exit code %d: %s", e.Code, e.Stderr)
}

func (c *Client) execAt(ctx context.Context, address *url.URL, client *http.Client, allocation, task string, argv []string) (*Exec, error) {
	command, _ := json.Marshal(argv) // it can't fail
	at := *address
	at.Path = "/v1/client/allocation/" + url.PathEscape(allocation) + "/exec"
	parameters := url.Values{"task": {task}, "tty": {"false"}, "command": {string(command)}}
	if c.settings.Region != "" {
		parameters.Set("region", c.settings.Region)
	}
	if c.settings.Namespace != "" {
		parameters.Set("namespace", c.settings.Namespace)
	}
	at.RawQuery = parameters.Encode()
	header := http.Header{}
	if c.settings.SecretID != "" {
		header.Set("X-Nomad-Token", c.settings.SecretID)
	}
	if auth := c.settings.HttpAuth; auth != nil {
		// SetBasicAuth writes into header.
		request := http.Request{Header: header}
		request.SetBasicAuth(auth.Username, auth.Password)
	}
	ws, response, err := websocket.Dial(ctx, at.String(), &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, refusal(response, err)
	}
	ws.SetReadLimit(maxExecFrame)
	x := &Exec{ws: ws}
	beating, end := context.WithCancel(context.Background())
	var heartbeat sync.WaitGroup
	heartbeat.Go(func() { x.heartbeat(beating) })
	// Several goroutines may close it.
	x.close = sync.OnceValue(func() error {
		end()
		err := ws.CloseNow() // also ends reads and writes
		heartbeat.Wait()
		return err
	})
	return x, nil
}

// refusal returns Nomad's answer if it refused the connection.
func refusal(response *http.Response, err error) error {
	if response == nil || response.Body == nil {
		return err
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxStderr))
	return fmt.Errorf("status %d: %s", response.StatusCode, text)
}

// heartbeat keeps proxies from closing an idle connection.
func (x *Exec) heartbeat(ctx context.Context) {
	for backoff.Sleep(ctx, execHeartbeat) == nil && x.send(api.ExecStreamingInput{}) == nil {
	}
}

// send fails after callWithin, so that a peer that doesn't read can't block it forever.
func (x *Exec) send(frame api.ExecStreamingInput) error {
	text, _ := json.Marshal(frame) // it can't fail
	x.writing.Lock()
	defer x.writing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	return x.ws.Write(ctx, websocket.MessageText, text)
}

// Write writes to the command's stdin.
func (x *Exec) Write(p []byte) (int, error) {
	for written := 0; written < len(p); {
		piece := p[written:min(written+maxExecPiece, len(p))]
		if err := x.send(api.ExecStreamingInput{Stdin: &api.ExecStreamingIOOperation{Data: piece}}); err != nil {
			return written, err
		}
		written += len(piece)
	}
	return len(p), nil
}

// CloseWrite ends the command's stdin.
func (x *Exec) CloseWrite() error {
	return x.send(api.ExecStreamingInput{Stdin: &api.ExecStreamingIOOperation{Close: true}})
}

// Read reads from the command's stdout. Its stderr becomes part of the error at its end.
func (x *Exec) Read(p []byte) (int, error) {
	for len(x.rest) == 0 {
		_, text, err := x.ws.Read(context.Background())
		if err != nil {
			if closed, ok := errors.AsType[websocket.CloseError](err); ok {
				return 0, fmt.Errorf("alloc exec ended: %s", FirstLine(closed.Reason))
			}
			return 0, err
		}
		var frame api.ExecStreamingOutput
		if err := json.Unmarshal(text, &frame); err != nil {
			return 0, fmt.Errorf("malformed frame of alloc exec: %w", err)
		}
		switch {
		case frame.Stdout != nil:
			x.rest = frame.Stdout.Data
		case frame.Stderr != nil:
			data := frame.Stderr.Data
			x.stderr = append(x.stderr, data[:min(len(data), maxStderr-len(x.stderr))]...)
		case frame.Exited && frame.Result != nil:
			return 0, &ExitError{frame.Result.ExitCode, FirstLine(string(x.stderr))}
		}
	}
	n := copy(p, x.rest)
	x.rest = x.rest[n:]
	return n, nil
}

// Close closes the connection, and waits for the heartbeat. The command sees the end of its stdin.
func (x *Exec) Close() error { return x.close() }

// direct reaches client nodes directly, which puts no load on Nomad's servers.
type direct struct {
	client *http.Client // connecting fails after Config.DirectTimeout

	mu    sync.Mutex // guards nodes
	nodes map[string]node
}

type node struct {
	address *url.URL  // nil if it can't be reached
	until   time.Time // when this must be checked again
}

// How long the knowledge about a node is valid.
const (
	knownFor       = 10 * time.Minute
	unreachableFor = time.Minute
)

func (c *Client) newDirect(timeout time.Duration, dial Dialer) (*direct, error) {
	tls := c.settings.TLSConfig.Copy()
	if tls.TLSServerName == "" { // by Nomad's convention the name in a client's certificate
		tls.TLSServerName = "client." + cmp.Or(c.settings.Region, api.GlobalRegion) + ".nomad"
	}
	client, err := c.newHTTP(tls, func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, address)
	}, 1)
	return &direct{client: client, nodes: map[string]node{}}, err
}

// Exec starts a command in a task of an allocation. It connects to the allocation's node directly
// if possible, otherwise through Nomad's servers. A nodeID of "" is an unknown node. Ctx bounds
// only the start.
func (c *Client) Exec(ctx context.Context, nodeID, allocation, task string, argv []string) (*Exec, error) {
	d := c.direct
	if d == nil || nodeID == "" {
		return c.execAt(ctx, c.address, c.execs, allocation, task, argv)
	}
	if address := c.addressOf(ctx, nodeID); address != nil {
		conn, err := c.execAt(ctx, address, d.client, allocation, task, argv)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// Later calls go through the servers without waiting for this node.
		d.remember(nodeID, nil, unreachableFor)
	}
	return c.execAt(ctx, c.address, c.execs, allocation, task, argv)
}

func (c *Client) addressOf(ctx context.Context, id string) *url.URL {
	d := c.direct
	d.mu.Lock()
	known, ok := d.nodes[id]
	d.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.address
	}
	var found *api.Node
	err := c.Attempt(ctx, func(ctx context.Context) error {
		var err error
		found, _, err = c.api.Nodes().Info(id, Query(ctx))
		return err
	})
	if err != nil || found.HTTPAddr == "" {
		d.remember(id, nil, unreachableFor)
		return nil
	}
	address := &url.URL{Scheme: "http", Host: found.HTTPAddr}
	if found.TLSEnabled {
		address.Scheme = "https"
	}
	d.remember(id, address, knownFor)
	return address
}

// remember records the address of a node, nil if it can't be reached, for some time.
func (d *direct) remember(id string, address *url.URL, during time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[id] = node{address, time.Now().Add(during)}
}
