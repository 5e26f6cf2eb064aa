package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"
)

// A socket speaks graphql-transport-ws, with one subscription at a time. It
// reads messages as they are: what a client makes of them isn't the server's
// time.
type socket struct {
	conn   *websocket.Conn
	buffer *bytes.Buffer
	last   int // id of the newest subscription
}

// dialSocket opens a socket to the API of a server.
func dialSocket(ctx context.Context, url string) (*socket, error) {
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http")+"/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return nil, err
	}
	k := newSocket(conn)
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"}`)); err != nil {
		return nil, errors.Join(err, conn.CloseNow())
	}
	if message, err := k.read(ctx); err != nil || !bytes.Contains(message, []byte("connection_ack")) {
		return nil, errors.Join(fmt.Errorf("no acknowledgement but %.200q: %w", message, err), conn.CloseNow())
	}
	return k, nil
}

// newSocket reads what a connection sends.
func newSocket(conn *websocket.Conn) *socket {
	conn.SetReadLimit(4 << 20)
	return &socket{conn: conn, buffer: bytes.NewBuffer(make([]byte, 0, 16<<10))}
}

// subscribe asks for an execution's output.
func (k *socket) subscribe(ctx context.Context, execution string) error {
	k.last++
	payload, err := json.Marshal(map[string]any{"query": outputSubscription, "variables": map[string]any{"id": execution}})
	if err != nil {
		return err
	}
	text := `{"id":"` + strconv.Itoa(k.last) + `","type":"subscribe","payload":` + string(payload) + `}`
	return k.conn.Write(ctx, websocket.MessageText, []byte(text))
}

const outputSubscription = `subscription($id: ID!) { executionEvents(executionId: $id) { __typename ... on ExecutionOutput { text } } }`

// read returns the next message, valid until the next call. Pings are answered.
func (k *socket) read(ctx context.Context) ([]byte, error) {
	for {
		_, reader, err := k.conn.Reader(ctx)
		if err != nil {
			return nil, err
		}
		k.buffer.Reset()
		if _, err := k.buffer.ReadFrom(reader); err != nil {
			return nil, err
		}
		message := k.buffer.Bytes()
		if !bytes.HasPrefix(message, []byte(`{"type":"ping"`)) {
			return message, nil
		}
		if err := k.conn.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`)); err != nil {
			return nil, err
		}
	}
}

// output reads on to the next output, and returns its message; io.EOF at the
// subscription's end.
func (k *socket) output(ctx context.Context) ([]byte, error) {
	for {
		message, err := k.read(ctx)
		if err != nil {
			return nil, err
		}
		head := message[:min(len(message), 256)]
		switch {
		case bytes.Contains(head, []byte(`"ExecutionOutput"`)):
			return message, nil
		case isLast(message):
			return nil, io.EOF
		case bytes.Contains(head, []byte(`"ExecutionOutputLost"`)):
			return nil, fmt.Errorf("output was lost: %.500s", message)
		case bytes.Contains(head, []byte(`"errors"`)), bytes.Contains(head, []byte(`"type":"error"`)):
			return nil, fmt.Errorf("the subscription: %.500s", message)
		}
	}
}

// isLast reports whether a message ends a subscription, or a floor's stream.
func isLast(message []byte) bool {
	return len(message) < 100 && bytes.Contains(message, []byte(`"type":"complete"`))
}

// drain reads to the end.
func (k *socket) drain(ctx context.Context, each func(message []byte)) error {
	for {
		message, err := k.output(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case each != nil:
			each(message)
		}
	}
}

// drainSize reads to the end, of so many printed bytes.
func (k *socket) drainSize(ctx context.Context, size int) error {
	got := 0
	err := k.drain(ctx, func(message []byte) { got += textBytes(message) })
	if err == nil && got != size {
		err = fmt.Errorf("%d of %d printed bytes came: %w", got, size, io.ErrUnexpectedEOF)
	}
	return err
}

// textBytes returns how many bytes a message's text stands for, which are ASCII:
// those that JSON escapes are two bytes there.
func textBytes(message []byte) int {
	_, text, _ := bytes.Cut(message, []byte(`"text":"`))
	if end := bytes.LastIndexByte(text, '"'); end >= 0 {
		text = text[:end] // a floor's message has none
	}
	return len(text) - bytes.Count(text, []byte(`\`))
}

func (k *socket) close() { _ = k.conn.CloseNow() } // nobody waits for its end

// dialAll opens sockets, some at a time.
func dialAll(n int, dial func() (*socket, error)) ([]*socket, error) {
	sockets := make([]*socket, n)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range sockets {
		group.Go(func() (err error) {
			sockets[i], err = dial()
			return err
		})
	}
	return sockets, group.Wait()
}

// closeAll closes those that were opened.
func closeAll(sockets []*socket) {
	for _, k := range sockets {
		if k != nil {
			k.close()
		}
	}
}
