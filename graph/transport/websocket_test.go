package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/clients"
)

func TestCloseCodes(t *testing.T) {
	b := newBed(t, Settings{InitTimeout: time.Minute, MaxBody: 1 << 20})
	subscribe := `{"id":"1","type":"subscribe","payload":{"query":"subscription silent { x }"}}`
	for name, test := range map[string]struct {
		inits    int
		messages []string
		code     websocket.StatusCode
		reason   string
	}{
		"no JSON":                     {1, []string{`{"type":`}, 4400, "invalid message"},
		"two values":                  {1, []string{`{"type":"ping"} {}`}, 4400, "invalid message"},
		"no type":                     {1, []string{`{}`}, 4400, "type"},
		"an unknown type":             {1, []string{`{"type":"start","id":"1"}`}, 4400, "type"},
		"a type that is a number":     {1, []string{`{"type":1}`}, 4400, "invalid message"},
		"a message of the server's":   {1, []string{`{"type":"next","id":"1"}`}, 4400, "type"},
		"JSON 10,000 deep":            {1, []string{`{"type":"ping","payload":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`}, 4400, "levels"},
		"a payload that is no object": {0, []string{`{"type":"connection_init","payload":[]}`}, 4400, "connection_init"},
		"subscribe without id":        {1, []string{`{"type":"subscribe","payload":{"query":"{x}"}}`}, 4400, "id"},
		"subscribe with an empty id":  {1, []string{`{"id":"","type":"subscribe","payload":{"query":"{x}"}}`}, 4400, "id"},
		"subscribe without payload":   {1, []string{`{"id":"1","type":"subscribe"}`}, 4400, "invalid message"},
		"subscribe without query":     {1, []string{`{"id":"1","type":"subscribe","payload":{}}`}, 4400, "query"},
		"complete without id":         {1, []string{`{"type":"complete"}`}, 4400, "id"},
		"subscribe before init":       {0, []string{subscribe}, 4401, "Unauthorized"},
		"the same id twice":           {1, []string{subscribe, subscribe}, 4409, "Subscriber for 1 already exists"},
		"init twice":                  {2, nil, 4429, "Too many initialisation requests"},
		"large message before init":   {0, []string{`{"type":"connection_init","payload":{"a":"` + strings.Repeat("x", initLimit) + `"}}`}, websocket.StatusMessageTooBig, ""},
		"large message":               {1, []string{`{"type":"ping","payload":{"a":"` + strings.Repeat("x", 1<<20) + `"}}`}, websocket.StatusMessageTooBig, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := b.dial(t)
			for range test.inits {
				p.send(`{"type":"connection_init"}`)
			}
			for _, message := range test.messages {
				p.send(message)
			}
			p.wantClose(test.code, test.reason)
		})
	}
	b.idle(t)
}

func TestBinaryMessagesAndInvalidUTF8AreRefused(t *testing.T) {
	b := newBed(t, Settings{})
	p := b.hello(t)
	if err := p.conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"type":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	p.wantClose(4400, "text")
	p = b.hello(t)
	p.send("{\"type\":\"ping\",\"payload\":{\"a\":\"\xff\"}}")
	p.wantClose(4400, "UTF-8")
}

func TestInitTimeout(t *testing.T) {
	b := newBed(t, Settings{InitTimeout: 10 * time.Millisecond})
	b.dial(t).wantClose(4408, "Connection initialisation timeout")
}

func TestOperationsOfAllKinds(t *testing.T) {
	b := newBed(t, Settings{})
	p := b.hello(t)
	p.send(`{"type":"ping"}`)
	p.want(`{"type":"pong"}`)
	p.send(`{"type":"pong"}`)
	p.send(`{"type":"complete","id":"never was"}`)
	p.send(`{"id":"a \"b\"","type":"subscribe","payload":{"query":"query q { x }"}}`)
	p.want(`{"id":"a \"b\"","type":"next","payload":{"data":{"name":"q"}}}`)
	p.want(`{"id":"a \"b\"","type":"complete"}`)
	p.subscribe("1", "three")
	for i := range 3 {
		p.want(fmt.Sprintf(`{"id":"1","type":"next","payload":{"data":{"n":%d,"text":""}}}`, i+1))
	}
	p.want(`{"id":"1","type":"complete"}`)
	p.subscribe("1", "refused")
	p.want(`{"id":"1","type":"next","payload":{"errors":[{"message":"no such execution"}],"data":null}}`)
	p.want(`{"id":"1","type":"complete"}`)
	p.send(`{"id":"1","type":"subscribe","payload":{"query":"{"}}`)
	if got := p.read(); !strings.HasPrefix(got, `{"id":"1","type":"error","payload":[{"message":"`) {
		t.Errorf("got %s", got)
	}
	p.send(`{"id":"1","type":"subscribe","payload":{"query":"query panics { x }"}}`)
	p.want(`{"id":"1","type":"error","payload":[{"message":"recovered"}]}`)
	if err := p.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("the close wasn't answered: %v", err)
	}
}

func TestOperationsOfAWebSocketAreLimited(t *testing.T) {
	b := newBed(t, Settings{MaxOperations: 2})
	p := b.hello(t)
	p.subscribe("1", "silent")
	p.subscribe("2", "silent")
	p.subscribe("3", "silent")
	if got := p.read(); !strings.HasPrefix(got, `{"id":"3","type":"error","payload":[{"message":"a WebSocket may have 2 operations`) {
		t.Errorf("got %s", got)
	}
	p.send(`{"id":"1","type":"complete"}`)
	p.subscribe("1", "three") // the id is free again
	if got := p.read(); !strings.HasPrefix(got, `{"id":"1","type":"next"`) {
		t.Errorf("got %s", got)
	}
}

func TestStoppingClosesWebSocketsWithGoingAway(t *testing.T) {
	why := make(chan error, 1)
	t.Run("served", func(t *testing.T) {
		b := newBed(t, Settings{})
		conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(b.url, "http"), &websocket.DialOptions{Subprotocols: []string{Subprotocol}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _, err := conn.Read(context.Background())
			why <- err
		}()
	}) // the bed stops here
	if err := <-why; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("closed with %v", err)
	}
}

// raw is a WebSocket client on a raw connection, for what a library doesn't do.
func (b *bed) raw(t testing.TB, readBuffer int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if readBuffer > 0 {
		_ = conn.(*net.TCPConn).SetReadBuffer(readBuffer)
	}
	request := "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " + Subprotocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	var answer []byte
	for one := make([]byte, 1); !bytes.HasSuffix(answer, []byte("\r\n\r\n")); answer = append(answer, one[0]) {
		if _, err := conn.Read(one); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 101")) {
		t.Fatalf("%s", answer)
	}
	return conn
}

// masked returns a client's frame.
func masked(text string) []byte {
	out := []byte{clients.OpText}
	if len(text) < 126 {
		out = append(out, 0x80|byte(len(text)))
	} else {
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(len(text)))
	}
	out = append(out, 0, 0, 0, 0)
	return append(out, text...)
}

const (
	initMessage  = `{"type":"connection_init"}`
	floodMessage = `{"id":"1","type":"subscribe","payload":{"query":"subscription flood { x }"}}`
)

// A browser that gets two close frames reports 1006 and no reason.
func TestOneCloseFrameIsSent(t *testing.T) {
	b := newBed(t, Settings{})
	conn := b.raw(t, 0)
	if _, err := conn.Write(append(masked(initMessage), masked(`{}`)...)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	next := func() (op byte, payload []byte, err error) {
		var head [2]byte
		if _, err := io.ReadFull(reader, head[:]); err != nil {
			return 0, nil, err
		}
		payload = make([]byte, head[1]) // none here is longer than 125 bytes
		_, err = io.ReadFull(reader, payload)
		return head[0], payload, err
	}
	for {
		op, payload, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if op != clients.OpClose {
			continue // the acknowledgement
		}
		answer := append([]byte{clients.OpClose, 0x80 | 2, 0, 0, 0, 0}, payload[:2]...) // as browsers respond
		if _, err := conn.Write(answer); err != nil {
			t.Fatal(err)
		}
		break
	}
	if op, payload, err := next(); err == nil {
		t.Errorf("after the close frame came another frame, %x %q", op, payload)
	}
}

func TestMessagesMayArriveByteByByte(t *testing.T) {
	b := newBed(t, Settings{})
	conn := b.raw(t, 0)
	for _, one := range append(masked(initMessage), masked(`{"id":"1","type":"subscribe","payload":{"query":"query q { x }"}}`)...) {
		if _, err := conn.Write([]byte{one}); err != nil {
			t.Fatal(err)
		}
	}
	var got []byte
	for buffer := make([]byte, 1024); !bytes.Contains(got, []byte(`"complete"`)); {
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buffer[:n]...)
	}
	if !bytes.Contains(got, []byte(`{"data":{"name":"q"}}`)) {
		t.Errorf("got %q", got)
	}
}

func TestUnknownSubprotocolIsRefused(t *testing.T) {
	b := newBed(t, Settings{})
	_, response, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(b.url, "http"), &websocket.DialOptions{Subprotocols: []string{"graphql-ws"}})
	if err == nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("%v", err)
	}
}
