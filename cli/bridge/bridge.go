// Package bridge connects an MCP client on stdin and stdout with a server's MCP endpoint at /mcp.
//
// It inspects messages only as far as the HTTP transport needs: which ones open a session, and
// which ones expect a response. If the server no longer knows the session, the bridge opens a new
// one with the client's original message.
package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxMessage bounds a line from either side, in bytes.
const maxMessage = 64 << 20

// maxRefusal bounds the body of an HTTP error that is read, in bytes.
const maxRefusal = 1 << 20

// grace is how long calls may continue after the client has closed stdin. Clients usually wait
// about that long.
const grace = 2 * time.Second

// patience is how long a cancellation waits for the first byte of its call's response.
const patience = time.Second

// A Sender sends an HTTP request to the MCP endpoint.
type Sender func(ctx context.Context, method string, header http.Header, body io.Reader) (*http.Response, error)

// A Bridge connects one client with one MCP endpoint.
type Bridge struct {
	send Sender

	writing sync.Mutex // guards out
	out     io.Writer

	opening sync.Mutex // held while a session is opened

	mu       sync.Mutex               // guards the rest
	first    []byte                   // the client's message that opened the session
	id       string                   // of the session; empty while none is open
	protocol string                   // the protocol version that both sides use
	begun    map[string]chan struct{} // by the id of a waiting call: closed when the server has received it
}

// New returns a bridge that writes the server's messages to out.
func New(send Sender, out io.Writer) *Bridge {
	return &Bridge{send: send, out: out, begun: map[string]chan struct{}{}}
}

// Run forwards the client's messages from in until in ends or ctx is cancelled. Then it ends the
// session. It returns in's read error.
func (b *Bridge) Run(ctx context.Context, in io.Reader) error {
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { b.leave(context.WithoutCancel(ctx), b.session()) }()
	lines, ended := make(chan []byte), make(chan error, 1)
	go func() { // ends with in: a read can't be interrupted
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxMessage)
		for scanner.Scan() {
			select {
			case lines <- bytes.Clone(scanner.Bytes()):
			case <-calling.Done():
				return
			}
		}
		time.AfterFunc(grace, cancel) // started here, because the main loop may be busy with a message
		ended <- scanner.Err()
	}()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		select {
		case <-ctx.Done():
			cancel()
			return nil
		case err := <-ended:
			calls.Wait()
			return err
		case line := <-lines:
			m := parse(line)
			wrong := malformed(m)
			switch {
			case len(bytes.TrimSpace(line)) == 0:
			case wrong != nil:
				for _, refusal := range wrong {
					b.write(refusal)
				}
			case m.Method == "initialize":
				if before := b.open(calling, m); before != "" {
					calls.Go(func() { b.leave(context.WithoutCancel(ctx), before) })
				}
			case m.Method == "notifications/initialized": // must arrive before all later messages
				b.pass(calling, m)
			default:
				follows, begun := b.followed(m), b.begin(m)
				calls.Go(func() {
					defer begun()
					await(calling, follows)
					b.pass(calling, m)
				})
			}
		}
	}
}

// A message is a JSON-RPC message.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"` // of the call that a cancellation is for
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`

	line []byte
}

// parse decodes as much as it can. A line that isn't JSON gives a message without id and method.
func parse(line []byte) message {
	m := message{line: line}
	_ = json.Unmarshal(line, &m)
	return m
}

// answers reports whether m is the response to a call.
func (m message) answers(call message) bool {
	return len(call.ID) > 0 && key(m.ID) == key(call.ID) && (m.Result != nil || m.Error != nil)
}

// key normalizes an id: the server may spell it differently from the client, for example 1 for 1.0.
func key(id json.RawMessage) string {
	var value any
	if json.Unmarshal(id, &value) != nil {
		return string(id)
	}
	text, _ := json.Marshal(value)
	return string(text)
}

// malformed returns the error responses for a line that isn't a message; nil if it is one. A batch
// gets one response for each of its calls.
func malformed(m message) (refusals [][]byte) {
	var batch []json.RawMessage
	switch {
	case len(m.ID) > 0 || m.Method != "":
		return nil
	case !json.Valid(m.line):
		return [][]byte{refusal(nil, invalidJSON, "the line isn't JSON")}
	case json.Unmarshal(m.line, &batch) != nil || batch == nil:
		return [][]byte{refusal(nil, invalidRequest, "the line isn't a JSON-RPC message")}
	}
	const each = "send each message on its own line, not in a list"
	for _, one := range batch {
		if m := parse(one); len(m.ID) > 0 {
			refusals = append(refusals, refusal(m.ID, invalidRequest, each))
		}
	}
	if refusals == nil {
		refusals = [][]byte{refusal(nil, invalidRequest, each)}
	}
	return refusals
}

// Error codes of JSON-RPC.
const (
	invalidJSON    = -32700
	invalidRequest = -32600
	serverError    = -32000
)

// refusal returns an error response. A nil id responds to a line without an id.
func refusal(id json.RawMessage, code int, text string) []byte {
	answer, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	return answer
}

// begin registers a call that the server hasn't received yet. The caller must call begun when it has.
func (b *Bridge) begin(m message) (begun func()) {
	if len(m.ID) == 0 {
		return func() {}
	}
	began := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun[key(m.ID)] = began
	return func() { b.hasBegun(m) }
}

// hasBegun records that the server has received a call.
func (b *Bridge) hasBegun(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if began := b.begun[key(m.ID)]; began != nil {
		close(began)
		delete(b.begun, key(m.ID))
	}
}

// followed returns a channel that is closed when the server has received the call that m cancels.
// The server would ignore an earlier cancellation. It is nil if there is nothing to wait for.
func (b *Bridge) followed(m message) <-chan struct{} {
	if m.Method != "notifications/cancelled" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun[key(m.Params.RequestID)]
}

// await waits until begun is closed, at most for patience. A nil begun doesn't wait.
func await(ctx context.Context, begun <-chan struct{}) {
	if begun != nil {
		select {
		case <-begun:
		case <-time.After(patience): // the server has received a silent call by this time
		case <-ctx.Done():
		}
	}
}

// open forwards a message that opens a session. It returns the id of the replaced session, if there was one.
func (b *Bridge) open(ctx context.Context, m message) (before string) {
	b.opening.Lock()
	defer b.opening.Unlock()
	before = b.session()
	b.pass(ctx, m)
	if before == b.session() {
		return ""
	}
	return before
}

// pass sends a message and writes the response to the client. If the server no longer knows the
// session, it opens a new one and sends the message again.
func (b *Bridge) pass(ctx context.Context, m message) {
	id, err := b.deliver(ctx, m, b.write)
	if errors.Is(err, errForgotten) && m.Method != "initialize" {
		if err = b.reopen(ctx, id); err == nil {
			_, err = b.deliver(ctx, m, b.write)
		}
	}
	if err != nil && len(m.ID) > 0 && ctx.Err() == nil {
		b.write(refusal(m.ID, serverError, err.Error()))
	}
}

func (b *Bridge) write(line []byte) {
	b.writing.Lock()
	defer b.writing.Unlock()
	_, _ = b.out.Write(append(line, '\n')) // the error means that the client is gone
}

// A bridgeError is an error that the client gets as the message of a JSON-RPC error.
type bridgeError string

func (e bridgeError) Error() string { return string(e) }

// errForgotten means that the server doesn't know the session, for example after a restart.
const errForgotten = bridgeError("the server no longer knows the MCP session")

// errEnded means that the server's response ended without a result.
const errEnded = bridgeError("the server ended the response before the result; try read_output to get the output")

// deliver sends a message in the current session and calls each for every message of the response.
// It returns the id of the session that it used.
func (b *Bridge) deliver(ctx context.Context, m message, each func(line []byte)) (session string, err error) {
	opens := m.Method == "initialize"
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	b.mu.Lock()
	if opens {
		b.first = m.line
	} else {
		session = b.id
		for name, value := range map[string]string{"Mcp-Session-Id": b.id, "Mcp-Protocol-Version": b.protocol} {
			if value != "" {
				header.Set(name, value)
			}
		}
	}
	b.mu.Unlock()
	response, err := b.send(ctx, http.MethodPost, header, bytes.NewReader(m.line))
	if err != nil {
		return session, err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		// The body of an HTTP error can be the JSON-RPC response that the client waits for.
		text, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
		if answer := parse(bytes.TrimSpace(text)); err == nil && answer.answers(m) {
			each(answer.line) // the error response to this call
			return session, nil
		}
		return session, refused(response, session, text)
	}
	answered := len(m.ID) == 0
	err = read(response, func(line []byte) {
		b.hasBegun(m)
		if answer := parse(line); answer.answers(m) {
			answered = true
			if opens {
				b.opened(response.Header.Get("Mcp-Session-Id"), answer.Result)
			}
		}
		each(line)
	})
	if err == nil && !answered {
		err = errEnded
	}
	return session, err
}

// opened stores the session that the server has opened.
func (b *Bridge) opened(id string, result json.RawMessage) {
	var of struct{ ProtocolVersion string }
	if json.Unmarshal(result, &of) != nil || of.ProtocolVersion == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id, b.protocol = id, of.ProtocolVersion
}

// refused returns an error that says why the server refused a message.
func refused(response *http.Response, session string, text []byte) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode == http.StatusNotFound && session != "":
		return errForgotten
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusMethodNotAllowed:
		return bridgeError("the server has no MCP endpoint: start it with `rockpool serve --compat mcp`")
	case response.StatusCode == http.StatusUnauthorized:
		return bridgeError("the server requires a valid token (set one with --token-file, ROCKPOOL_TOKEN_FILE or ROCKPOOL_TOKEN): " + strings.TrimSpace(string(text)))
	case kind == "text/html":
		text = nil
	}
	text = text[:min(len(text), 1000)]
	return bridgeError(fmt.Sprintf("the server refused the message: %s %s", response.Status, bytes.TrimSpace(text)))
}

// read calls each for every message of a response: a single JSON message, or a stream of server-sent events.
func read(response *http.Response, each func(line []byte)) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, maxMessage)
	for scanner.Scan() {
		line := scanner.Bytes()
		if kind == "text/event-stream" {
			data, is := bytes.CutPrefix(line, []byte("data:"))
			if !is {
				continue
			}
			line = data
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			each(bytes.Clone(line))
		}
	}
	return scanner.Err()
}

// reopen opens a session with the client's original message, unless another call has already
// replaced the forgotten one. Of concurrent calls, one opens it and the others wait.
func (b *Bridge) reopen(ctx context.Context, forgotten string) error {
	b.opening.Lock()
	defer b.opening.Unlock()
	b.mu.Lock()
	first, id := b.first, b.id
	b.mu.Unlock()
	if id != forgotten || first == nil {
		return nil
	}
	drop := func([]byte) {}
	if _, err := b.deliver(ctx, parse(first), drop); err != nil {
		return err
	}
	_, err := b.deliver(ctx, parse([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)), drop)
	return err
}

func (b *Bridge) session() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

// leave ends a session. Errors don't matter: the server also ends sessions on its own.
func (b *Bridge) leave(ctx context.Context, id string) {
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if response, err := b.send(ctx, http.MethodDelete, http.Header{"Mcp-Session-Id": {id}}, nil); err == nil {
		_ = response.Body.Close()
	}
}
