// Package bridge connects an MCP client on stdin and stdout with a server's door at /mcp.
//
// It looks into messages only for what the transport over HTTP needs: which open a session, and which want an answer. When
// the server has forgotten the session, it opens another one as the client did.
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

// maxMessage bounds a line of either side.
const maxMessage = 64 << 20

// maxRefusal bounds what is read of a refusal.
const maxRefusal = 1 << 20

// grace is how long calls may go on after the client has closed its end. A client that leaves waits about so long.
const grace = 2 * time.Second

// patience is how long a cancellation waits for the first byte of its call's answer.
const patience = time.Second

// A Sender sends a request to the door.
type Sender func(ctx context.Context, method string, header http.Header, body io.Reader) (*http.Response, error)

// A Bridge is between one client and one door.
type Bridge struct {
	send Sender

	writing sync.Mutex // guards out
	out     io.Writer

	opening sync.Mutex // held while a session is opened

	mu       sync.Mutex               // guards the rest
	first    []byte                   // the message that opened the session
	id       string                   // of the session; "": there is none
	protocol string                   // the version that both speak
	begun    map[string]chan struct{} // by the id of a call that waits: closed once the server has it
}

// New returns a bridge that writes what the door answers to out.
func New(send Sender, out io.Writer) *Bridge {
	return &Bridge{send: send, out: out, begun: map[string]chan struct{}{}}
}

// Run passes on what the client writes to in, until that ends, or ctx. Then it ends the session.
func (b *Bridge) Run(ctx context.Context, in io.Reader) error {
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { b.leave(context.WithoutCancel(ctx), b.session()) }()
	lines, ended := make(chan []byte), make(chan error, 1)
	go func() { // it ends with in, which nothing interrupts
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxMessage)
		for scanner.Scan() {
			select {
			case lines <- bytes.Clone(scanner.Bytes()):
			case <-calling.Done():
				return
			}
		}
		time.AfterFunc(grace, cancel) // here, since a message may be passing
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
			case m.Method == "notifications/initialized": // before all that follows
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

// A message is one of JSON-RPC.
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

// parse reads what it can. What isn't JSON has neither an id nor a method.
func parse(line []byte) message {
	m := message{line: line}
	_ = json.Unmarshal(line, &m)
	return m
}

// answers reports whether it is the answer to a call.
func (m message) answers(call message) bool {
	return len(call.ID) > 0 && key(m.ID) == key(call.ID) && (m.Result != nil || m.Error != nil)
}

// key returns an id in one spelling: the server may write another than the client, as 1 for 1.0.
func key(id json.RawMessage) string {
	var value any
	if json.Unmarshal(id, &value) != nil {
		return string(id)
	}
	text, _ := json.Marshal(value)
	return string(text)
}

// malformed returns the errors for a line that is no message; nil: it is one. A batch gets one for each of its calls.
func malformed(m message) (refusals [][]byte) {
	var batch []json.RawMessage
	switch {
	case len(m.ID) > 0 || m.Method != "":
		return nil
	case !json.Valid(m.line):
		return [][]byte{refusal(nil, invalidJSON, "the line isn't JSON")}
	case json.Unmarshal(m.line, &batch) != nil || batch == nil:
		return [][]byte{refusal(nil, invalidRequest, "the line is no message of JSON-RPC")}
	}
	const each = "send each message in a line of its own, not in a list"
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

// Codes of JSON-RPC's errors.
const (
	invalidJSON    = -32700
	invalidRequest = -32600
	serverError    = -32000
)

// refusal returns an answer with an error; without an id, to what has none.
func refusal(id json.RawMessage, code int, text string) []byte {
	answer, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	return answer
}

// begin notes a call, which waits until begun.
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

// hasBegun says that the server has a call.
func (b *Bridge) hasBegun(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if began := b.begun[key(m.ID)]; began != nil {
		close(began)
		delete(b.begun, key(m.ID))
	}
}

// followed returns what is closed once the server has the call of a cancellation: it would ignore one that comes before. nil:
// there is nothing to wait for.
func (b *Bridge) followed(m message) <-chan struct{} {
	if m.Method != "notifications/cancelled" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun[key(m.Params.RequestID)]
}

func await(ctx context.Context, begun <-chan struct{}) {
	if begun != nil {
		select {
		case <-begun:
		case <-time.After(patience): // a call that is silent has begun by then
		case <-ctx.Done():
		}
	}
}

// open passes a message on that opens a session. It returns the session that this one replaces; "": none.
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

// pass sends a message, and writes what comes of it.
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

// write writes a message to the client.
func (b *Bridge) write(line []byte) {
	b.writing.Lock()
	defer b.writing.Unlock()
	_, _ = b.out.Write(append(line, '\n')) // a client that is gone reads nothing
}

type bridgeError string

func (e bridgeError) Error() string { return string(e) }

// errForgotten says that the server doesn't know the session (any more).
const errForgotten = bridgeError("the server has forgotten the MCP session")

// errEnded says that the server's answer has no result.
const errEnded = bridgeError("the server ended the answer before the result; read_output may have the output")

// deliver sends a message in the session, whose id it returns, and calls each for each message of the answer.
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
		text, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
		if answer := parse(bytes.TrimSpace(text)); err == nil && answer.answers(m) {
			each(answer.line) // the call's own error
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

// opened takes the session that the server has opened, if it has.
func (b *Bridge) opened(id string, result json.RawMessage) {
	var of struct{ ProtocolVersion string }
	if json.Unmarshal(result, &of) != nil || of.ProtocolVersion == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id, b.protocol = id, of.ProtocolVersion
}

// refused returns why the server refuses a message.
func refused(response *http.Response, session string, text []byte) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode == http.StatusNotFound && session != "":
		return errForgotten
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusMethodNotAllowed:
		return bridgeError("the server has no door for MCP: start it with --doors mcp")
	case response.StatusCode == http.StatusUnauthorized:
		return bridgeError("the server needs another token (--token-file, ROCKPOOL_TOKEN_FILE or ROCKPOOL_TOKEN): " + strings.TrimSpace(string(text)))
	case kind == "text/html":
		text = nil
	}
	text = text[:min(len(text), 1000)]
	return bridgeError(fmt.Sprintf("the server refuses the message: %s %s", response.Status, bytes.TrimSpace(text)))
}

// read calls each for each message of an answer: one as JSON, or those of a stream of server-sent events.
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

// reopen opens a session as the client did, unless that was done since the forgotten one. Of calls at once, one does it, and the
// others wait.
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

// session returns the id of the session; "": there is none.
func (b *Bridge) session() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

// leave ends a session.
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
