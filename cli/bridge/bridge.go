// Package bridge passes messages of the Model Context Protocol on, between a program that starts this one and speaks on its
// standard streams, and a server's door at /mcp.
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

// A Sender sends a request to the door.
type Sender func(ctx context.Context, method string, header http.Header, body io.Reader) (*http.Response, error)

// A Bridge is between one client and one door.
type Bridge struct {
	send Sender

	writing sync.Mutex // guards out
	out     io.Writer

	mu       sync.Mutex // guards the rest
	first    []byte     // the message that opened the session
	id       string     // of the session; "": there is none
	protocol string     // the version that both speak
}

// New returns a bridge that writes what the door answers to out.
func New(send Sender, out io.Writer) *Bridge { return &Bridge{send: send, out: out} }

// Run passes on what the client writes to in, until that ends, or ctx. Then it ends the session.
func (b *Bridge) Run(ctx context.Context, in io.Reader) error {
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	defer b.leave(context.WithoutCancel(ctx))
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
			stop := time.AfterFunc(grace, cancel)
			defer stop.Stop()
			calls.Wait()
			return err
		case line := <-lines:
			m := parse(line)
			if m.Method == "initialize" || len(m.ID) == 0 { // the order matters
				b.pass(calling, m)
				continue
			}
			calls.Go(func() { b.pass(calling, m) })
		}
	}
}

// A message is one of JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result struct {
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"result"`

	line []byte
}

// parse reads what it can: the door refuses what is no message.
func parse(line []byte) message {
	m := message{line: line}
	_ = json.Unmarshal(line, &m)
	return m
}

// pass sends a message, and writes what comes of it.
func (b *Bridge) pass(ctx context.Context, m message) {
	if len(bytes.TrimSpace(m.line)) == 0 {
		return
	}
	id, err := b.deliver(ctx, m, b.write)
	if errors.Is(err, errForgotten) && m.Method != "initialize" {
		if err = b.reopen(ctx, id); err == nil {
			_, err = b.deliver(ctx, m, b.write)
		}
	}
	if err != nil && len(m.ID) > 0 && ctx.Err() == nil {
		refusal, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32000, "message": err.Error()}})
		b.write(refusal)
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

// deliver sends a message in the session, whose id it returns, and calls each for each message of the answer.
func (b *Bridge) deliver(ctx context.Context, m message, each func(line []byte)) (session string, err error) {
	opens := m.Method == "initialize"
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	b.mu.Lock()
	if opens {
		b.first, b.id, b.protocol = m.line, "", ""
	}
	session = b.id
	for name, value := range map[string]string{"Mcp-Session-Id": b.id, "Mcp-Protocol-Version": b.protocol} {
		if value != "" {
			header.Set(name, value)
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
		if answer := parse(bytes.TrimSpace(text)); err == nil && len(answer.ID) > 0 {
			each(answer.line) // the call's own error
			return session, nil
		}
		return session, refused(response, session, text)
	}
	receive, opened := each, response.Header.Get("Mcp-Session-Id")
	if opens {
		receive = func(line []byte) {
			if answer := parse(line); answer.Result.ProtocolVersion != "" {
				b.mu.Lock()
				b.id, b.protocol = opened, answer.Result.ProtocolVersion
				b.mu.Unlock()
			}
			each(line)
		}
	}
	return session, read(response, receive)
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

// reopen opens a session as the client did, unless that was done since the forgotten one.
func (b *Bridge) reopen(ctx context.Context, forgotten string) error {
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

// leave ends the session.
func (b *Bridge) leave(ctx context.Context) {
	b.mu.Lock()
	id := b.id
	b.mu.Unlock()
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if response, err := b.send(ctx, http.MethodDelete, http.Header{"Mcp-Session-Id": {id}}, nil); err == nil {
		_ = response.Body.Close()
	}
}
