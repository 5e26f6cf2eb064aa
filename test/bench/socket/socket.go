// Package socket reads subscriptions over a WebSocket at the least cost for the reader, so that a
// bench measures the server and not its client.
package socket

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

// A Conn speaks graphql-transport-ws, with one subscription at a time. It doesn't parse messages:
// the time that a client needs for that isn't the server's.
type Conn struct {
	conn   *websocket.Conn
	buffer *bytes.Buffer
	last   int // id of the newest subscription
}

// Dial opens a WebSocket to a server's API.
func Dial(ctx context.Context, url string) (*Conn, error) {
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http")+"/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return nil, err
	}
	k := New(conn)
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"}`)); err != nil {
		return nil, errors.Join(err, conn.CloseNow())
	}
	if message, err := k.Read(ctx); err != nil || !bytes.Contains(message, []byte("connection_ack")) {
		return nil, errors.Join(fmt.Errorf("no acknowledgement but %.200q: %w", message, err), conn.CloseNow())
	}
	return k, nil
}

// New uses a connection that is already open.
func New(conn *websocket.Conn) *Conn {
	conn.SetReadLimit(4 << 20)
	return &Conn{conn: conn, buffer: bytes.NewBuffer(make([]byte, 0, 16<<10))}
}

// Subscribe subscribes to an execution's output.
func (k *Conn) Subscribe(ctx context.Context, execution string) error {
	k.last++
	payload, err := json.Marshal(map[string]any{"query": OutputSubscription, "variables": map[string]any{"id": execution}})
	if err != nil {
		return err
	}
	text := `{"id":"` + strconv.Itoa(k.last) + `","type":"subscribe","payload":` + string(payload) + `}`
	return k.conn.Write(ctx, websocket.MessageText, []byte(text))
}

// OutputSubscription is the message that Subscribe sends, for the execution id.
const OutputSubscription = `subscription($id: ID!) { executionEvents(executionId: $id) { __typename ... on ExecutionOutput { text } } }`

// Read returns the next message, which is valid until the next call. It answers pings.
func (k *Conn) Read(ctx context.Context) ([]byte, error) {
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

// Output reads until the next output and returns its message. At the subscription's end the error
// is io.EOF.
func (k *Conn) Output(ctx context.Context) ([]byte, error) {
	for {
		message, err := k.Read(ctx)
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

// Drain reads to the end.
func (k *Conn) Drain(ctx context.Context, each func(message []byte)) error {
	for {
		message, err := k.Output(ctx)
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

// DrainSize reads to the end. If the program's output had another size than size bytes, that is an
// error.
func (k *Conn) DrainSize(ctx context.Context, size int) error {
	got := 0
	err := k.Drain(ctx, func(message []byte) { got += textBytes(message) })
	if err == nil && got != size {
		err = fmt.Errorf("%d of %d printed bytes arrived: %w", got, size, io.ErrUnexpectedEOF)
	}
	return err
}

// textBytes returns how many bytes a message's text stands for. They are ASCII, and each character
// that JSON escapes takes two bytes in the message.
func textBytes(message []byte) int {
	_, text, _ := bytes.Cut(message, []byte(`"text":"`))
	if end := bytes.LastIndexByte(text, '"'); end >= 0 {
		text = text[:end] // a floor's message ends here
	}
	return len(text) - bytes.Count(text, []byte(`\`))
}

// Close ends the connection.
func (k *Conn) Close() { _ = k.conn.CloseNow() } // without waiting for the close handshake

// DialAll opens n sockets, several concurrently.
func DialAll(n int, dial func() (*Conn, error)) ([]*Conn, error) {
	sockets := make([]*Conn, n)
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

// CloseAll closes the sockets that were opened.
func CloseAll(sockets []*Conn) {
	for _, k := range sockets {
		if k != nil {
			k.Close()
		}
	}
}
