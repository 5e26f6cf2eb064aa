package transport

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/test/wait"
)

// bounded returns a bed with limits for its peers.
func bounded(t testing.TB, bounds clients.Bounds, settings Settings) (*bed, *clients.Limiter) {
	t.Helper()
	settings.Peers = clients.New(bounds)
	if settings.Silence == 0 {
		settings.Silence = wait.Limit // bodies wait here for each other
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the bed's
		wait.For(t, "nothing is left of anybody", func() bool {
			u := settings.Peers.Usage()
			return u.Peers == 0 && u.Connections == 0 && u.BodyBytes == 0 && u.Operations == 0 && u.Subscriptions == 0
		})
	})
	bounding := settings.Peers.Listen(listener)
	bounding.RefuseTime = wait.Limit
	t.Cleanup(bounding.Wait) // after the bed's
	return newBed(t, settings, bounding), settings.Peers
}

// A poster is a request whose body is sent in parts, from a loopback address.
type poster struct {
	net.Conn
	answers *bufio.Reader
}

func (b *bed) poster(t testing.TB, from byte, size int) poster {
	t.Helper()
	address := strings.TrimPrefix(b.url, "http://")
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}).Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(wait.Limit))
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size); err != nil {
		t.Fatal(err)
	}
	return poster{conn, bufio.NewReader(conn)}
}

func (p poster) send(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		t.Fatal(err)
	}
}

// answer returns the response's status, code and message.
func (p poster) answer(t testing.TB) (status int, text string, header http.Header) {
	t.Helper()
	response, err := http.ReadResponse(p.answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body), response.Header
}

// query returns an operation of size bytes.
func query(size int) string {
	const text = `{"query":"query q { x }","variables":{"a":""}}`
	return strings.Replace(text, `""`, `"`+strings.Repeat("x", size-len(text))+`"`, 1)
}

// held waits until ok accepts the number of bytes that bodies hold.
func held(t testing.TB, p *clients.Limiter, what string, ok func(bytes int64) bool) {
	t.Helper()
	wait.For(t, what, func() bool { return ok(p.Usage().BodyBytes) })
}

// Incomplete bodies hold the memory of what has arrived. A body that doesn't fit is refused, and
// takes nothing from others. Small ones always fit. When a request has been answered, there is room
// again.
func TestBodiesShareOneLimit(t *testing.T) {
	const size = 1 << 20
	b, all := bounded(t, clients.Bounds{Bodies: 2*size + size/2, PeerBodies: size + size/2}, Settings{})
	text := query(size)
	waiting := b.poster(t, 2, size) // announces much
	waiting.send(t, text[:100])
	first := b.poster(t, 2, size)
	first.send(t, text[:size-1])
	held(t, all, "the first is there", func(bytes int64) bool { return bytes >= size-clients.FreeBody })
	if u := all.Usage(); u.BodyBytes > size {
		t.Errorf("%d bytes are held for one body of %d", u.BodyBytes, size)
	}
	second := b.poster(t, 2, size)
	second.send(t, text)
	status, answer, header := second.answer(t)
	if status != http.StatusServiceUnavailable || !strings.Contains(answer, "half of --body-memory") || header.Get("Retry-After") == "" {
		t.Errorf("the second of a peer: %d %s %v", status, answer, header)
	}
	other := b.poster(t, 3, size)
	other.send(t, text[:size-1])
	held(t, all, "another peer has room", func(bytes int64) bool { return bytes >= 2*(size-clients.FreeBody) })
	third := b.poster(t, 4, size)
	third.send(t, text)
	if status, answer, _ := third.answer(t); status != http.StatusServiceUnavailable || !strings.Contains(answer, "all callers") {
		t.Errorf("the third peer: %d %s", status, answer)
	}
	for _, from := range []byte{2, 3, 4} {
		small := b.poster(t, from, clients.FreeBody-1)
		small.send(t, query(clients.FreeBody-1))
		if status, answer, _ := small.answer(t); status != http.StatusOK {
			t.Errorf("a small one of peer %d: %d %s", from, status, answer)
		}
	}
	first.send(t, text[size-1:])
	if status, answer, _ := first.answer(t); status != http.StatusOK {
		t.Errorf("the first: %d %s", status, answer)
	}
	held(t, all, "its room is free", func(bytes int64) bool { return bytes <= size })
	waiting.send(t, text[100:])
	if status, answer, _ := waiting.answer(t); status != http.StatusOK {
		t.Errorf("the one that waited: %d %s", status, answer)
	}
	if u := all.Usage(); u.Refused[clients.PeerBodies] != 1 || u.Refused[clients.Bodies] != 1 {
		t.Errorf("these refusals were counted: %v", u.Refused)
	}
	_ = other.Close()
	held(t, all, "one that left holds nothing", func(bytes int64) bool { return bytes == 0 })
}

// If a message doesn't fit and its id came first, its operation fails, and the WebSocket's other
// operations continue. Without an id the WebSocket ends. The message of an operation holds its
// memory while the operation runs.
func TestMessagesShareTheLimitOfBodies(t *testing.T) {
	const size = 1 << 20
	b, all := bounded(t, clients.Bounds{Bodies: size + size/2}, Settings{})
	message := func(id string) string {
		return `{` + id + `"type":"subscribe","payload":{"query":"subscription silent { x }","variables":{"a":"` + strings.Repeat("x", size/2) + `"}}}`
	}
	p := b.hello(t)
	p.send(message(`"id":"1",`))
	wait.For(t, "the first runs", func() bool { return b.open.Load() == 1 })
	holds := all.Usage().BodyBytes
	if holds < size/2 {
		t.Errorf("a subscription of %d bytes holds %d", size/2, holds)
	}
	p.subscribe("small", "silent")
	wait.For(t, "a small one runs", func() bool { return b.open.Load() == 2 })
	if got := all.Usage().BodyBytes; got != holds {
		t.Errorf("a small one holds %d", got-holds)
	}
	p.send(message(`"id":"2",`))
	if got := p.read(); !strings.Contains(got, `"id":"2","type":"error"`) || !strings.Contains(got, "--body-memory") {
		t.Errorf("the second: %s", got)
	}
	other := b.hello(t)
	other.send(message(""))
	other.wantClose(websocket.StatusTryAgainLater, "--body-memory")
	p.send(`{"id":"1","type":"complete"}`)
	held(t, all, "there is room", func(bytes int64) bool { return bytes == 0 })
	p.send(message(`"id":"2",`))
	wait.For(t, "the second runs", func() bool { return b.open.Load() == 2 })
}

// A short text with many values takes a hundred times its bytes, also in an address or in
// connection_init.
func TestValuesInAddressesAndInitsAreBounded(t *testing.T) {
	b, all := bounded(t, clients.Bounds{Bodies: 1 << 20}, Settings{})
	many := `{"a":[` + strings.Repeat("{},", 3000) + `{}]}`
	for _, test := range []struct {
		variables, extensions string
		status                int
	}{
		{many, "", http.StatusServiceUnavailable}, {"", many, http.StatusServiceUnavailable},
		{`{"a":[{},{}]}`, "", http.StatusOK}, {"", "", http.StatusOK},
	} {
		address := url.Values{"query": {"query q { x }"}, "variables": {test.variables}, "extensions": {test.extensions}}
		response, err := http.Get(b.url + "/?" + address.Encode())
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != test.status || strings.Contains(string(text), "--body-memory") != (test.status != http.StatusOK) {
			t.Errorf("%.20q and %.20q: %s %s %v", test.variables, test.extensions, response.Status, text, err)
		}
	}
	p := b.dial(t)
	p.send(`{"type":"connection_init","payload":` + many + `}`)
	p.wantClose(websocket.StatusTryAgainLater, "--body-memory")
	if u := all.Usage(); u.Refused[clients.Bodies] != 3 {
		t.Errorf("these refusals were counted: %v", u.Refused)
	}
}

// An unfinished message holds what has arrived, not what was announced. After the end of its
// WebSocket it holds nothing.
func TestUnfinishedMessagesHoldWhatHasArrived(t *testing.T) {
	b, all := bounded(t, clients.Bounds{Bodies: 1 << 20}, Settings{})
	p := b.hello(t)
	writer, err := p.conn.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write([]byte(query(300 << 10))); err != nil {
		t.Fatal(err)
	}
	held(t, all, "what has come is held", func(bytes int64) bool { return bytes >= 256<<10 && bytes <= 512<<10 })
	if err := p.conn.CloseNow(); err != nil {
		t.Fatal(err)
	}
	held(t, all, "nothing is held", func(bytes int64) bool { return bytes == 0 })
}

// Operations and subscriptions are limited by the peer's and by the token's limits.
func TestOperationsAndSubscriptionsAreBounded(t *testing.T) {
	for _, test := range []struct {
		bounds                   clients.Bounds
		operations, subscription string // the settings in the messages
		refused                  [2]clients.Bound
	}{
		{clients.Bounds{Operations: 2, Subscriptions: 2}, "--peer-operations", "--peer-subscriptions", [2]clients.Bound{clients.PeerOperations, clients.PeerSubscriptions}},
		{clients.Bounds{TokenOperations: 2, TokenSubscriptions: 2}, "--token-operations", "--token-subscriptions", [2]clients.Bound{clients.TokenOperations, clients.TokenSubscriptions}},
	} {
		b, all := bounded(t, test.bounds, Settings{})
		p := b.hello(t)
		for _, id := range []string{"1", "2"} {
			p.subscribe(id, "silent")
		}
		wait.For(t, "two subscriptions run", func() bool { return b.open.Load() == 2 })
		p.subscribe("3", "silent")
		if got := p.read(); !strings.Contains(got, `"id":"3","type":"error"`) || !strings.Contains(got, test.subscription) {
			t.Errorf("the third subscription: %s", got)
		}
		status, answer, header := b.getEvents(t, "subscription silent { x }")
		if status != http.StatusTooManyRequests || !strings.Contains(answer, test.subscription) || header.Get("Retry-After") == "" {
			t.Errorf("a subscription by events: %d %s %v", status, answer, header)
		}
		wait.For(t, "what was refused has ended", func() bool { return all.Usage().Operations == 0 })
		var posters []poster
		for range 2 {
			posters = append(posters, b.poster(t, 1, 100))
		}
		wait.For(t, "two operations are read", func() bool { return all.Usage().Operations == 2 })
		third := b.poster(t, 1, 100)
		third.send(t, query(100))
		if status, answer, _ := third.answer(t); status != http.StatusTooManyRequests || !strings.Contains(answer, test.operations) {
			t.Errorf("the third operation: %d %s", status, answer)
		}
		p.send(`{"id":"q","type":"subscribe","payload":{"query":"query q { x }"}}`)
		if got := p.read(); !strings.Contains(got, `"id":"q","type":"error"`) || !strings.Contains(got, test.operations) {
			t.Errorf("a query on a WebSocket: %s", got)
		}
		for _, half := range posters {
			half.send(t, query(100))
			if status, answer, _ := half.answer(t); status != http.StatusOK {
				t.Errorf("one that had begun: %d %s", status, answer)
			}
		}
		wait.For(t, "none is left", func() bool { return all.Usage().Operations == 0 })
		p.send(`{"id":"2","type":"complete"}`)
		wait.For(t, "one has ended", func() bool { return all.Usage().Subscriptions == 1 })
		p.subscribe("4", "three")
		if got := p.read(); !strings.Contains(got, `"id":"4","type":"next"`) {
			t.Errorf("a later subscription: %s", got)
		}
		if u := all.Usage(); u.Refused[test.refused[0]] != 2 || u.Refused[test.refused[1]] != 2 {
			t.Errorf("these refusals were counted: %v", u.Refused)
		}
	}
}

// getEvents sends a request for server-sent events, and returns a response that has none.
func (b *bed) getEvents(t testing.TB, query string) (status int, text string, header http.Header) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", typeJSON)
	r.Header.Set("Accept", typeEvents)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all), response.Header
}

// A connection beyond the limit gets the reason, whatever it sends. Other peers are served, and so
// is the same peer after it closes a connection.
func TestConnectionsAreBounded(t *testing.T) {
	b, all := bounded(t, clients.Bounds{Connections: 2}, Settings{})
	first, second := b.poster(t, 2, 100), b.poster(t, 2, 100)
	wait.For(t, "two are there", func() bool { return all.Usage().Connections == 2 })
	third := b.poster(t, 2, 100)
	if status, answer, _ := third.answer(t); status != http.StatusTooManyRequests || !strings.Contains(answer, "--peer-connections") || !strings.Contains(answer, "QUOTA_EXCEEDED") {
		t.Errorf("the third: %d %s", status, answer)
	}
	other := b.poster(t, 3, 100)
	other.send(t, query(100))
	if status, answer, _ := other.answer(t); status != http.StatusOK {
		t.Errorf("another peer: %d %s", status, answer)
	}
	_ = first.Close()
	wait.For(t, "it is closed", func() bool { return all.Usage().Connections == 2 })
	next := b.poster(t, 2, 100)
	for _, p := range []poster{second, next} {
		p.send(t, query(100))
		if status, answer, _ := p.answer(t); status != http.StatusOK {
			t.Errorf("one of two: %d %s", status, answer)
		}
	}
	if u := all.Usage(); u.Refused[clients.PeerConnections] != 1 || u.Peers != 2 {
		t.Errorf("%+v", u)
	}
}

// Many addresses together have at most the connections of all peers.
func TestConnectionsOfAllPeersAreBounded(t *testing.T) {
	b, all := bounded(t, clients.Bounds{AllConnections: 2, Connections: 2}, Settings{})
	first := b.poster(t, 2, 100)
	second := b.poster(t, 3, 100)
	wait.For(t, "two are there", func() bool { return all.Usage().Connections == 2 })
	third := b.poster(t, 4, 100)
	third.send(t, query(100))
	if status, answer, _ := third.answer(t); status != http.StatusTooManyRequests || !strings.Contains(answer, "(--connections)") || !strings.Contains(answer, "QUOTA_EXCEEDED") {
		t.Errorf("the third: %d %s", status, answer)
	}
	if u := all.Usage(); u.Refused[clients.Connections] != 1 || u.Peers != 2 || u.Connections != 2 {
		t.Errorf("%+v", u)
	}
	_ = first.Close()
	wait.For(t, "it is closed", func() bool { return all.Usage().Connections == 1 })
	next := b.poster(t, 4, 100)
	for _, p := range []poster{second, next} {
		p.send(t, query(100))
		if status, answer, _ := p.answer(t); status != http.StatusOK {
			t.Errorf("one of two: %d %s", status, answer)
		}
	}
}

// Silent bodies are aborted, because they hold memory.
func TestSilentBodiesAreAborted(t *testing.T) {
	b, all := bounded(t, clients.Bounds{Bodies: 1 << 20}, Settings{Silence: 100 * time.Millisecond})
	p := b.poster(t, 2, 200<<10)
	_, _ = io.WriteString(p, query(200 << 10)[:100<<10]) // it may be aborted already
	if status, answer, _ := p.answer(t); status != http.StatusRequestTimeout {
		t.Errorf("%d %s", status, answer)
	}
	held(t, all, "nothing is held", func(bytes int64) bool { return bytes == 0 })
}

// A decoded text holds at most its bytes and clients.ValueBytes for each value, for the texts with
// the most of either.
func TestDecodingTakesTheCountedMemory(t *testing.T) {
	rate := goruntime.MemProfileRate
	goruntime.MemProfileRate = 1 // each allocation is in the profile
	defer func() { goruntime.MemProfileRate = rate }()
	if _, err := (&reservation{}).decodeParams(t.Context(), []byte(`{"query":"{ x }","variables":{"a":[{"a":"b"}]}}`)); err != nil { // fills the decoder's own caches
		t.Fatal(err)
	}
	for name, variables := range map[string]string{
		"one string":   `{"a":"` + strings.Repeat("x", 16<<20) + `"}`,
		"numbers":      `{"a":[` + strings.Repeat("0,", clients.MaxValues-10) + `0]}`,
		"strings":      `{"a":[` + strings.Repeat(`"y",`, clients.MaxValues-10) + `0]}`,
		"objects":      `{"a":[` + strings.Repeat(`{"a":0},`, clients.MaxValues/2-10) + `0]}`,
		"many members": `{"a":[` + strings.Repeat(`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0},`, clients.MaxValues/10-10) + `0]}`,
		"deep":         `{"a":[` + strings.Repeat(strings.Repeat(`[`, 90)+strings.Repeat(`]`, 90)+`,`, clients.MaxValues/91-10) + `0]}`,
		"objects deep": `{"a":[` + strings.Repeat(strings.Repeat(`{"a":`, 90)+`0`+strings.Repeat(`}`, 90)+`,`, clients.MaxValues/91-10) + `0]}`,
	} {
		text := []byte(`{"query":"{ x }","variables":` + variables + `}`)
		values, err := clients.Values(text)
		if err != nil {
			t.Fatal(name, err)
		}
		before := leftByDecoding()
		params, err := (&reservation{}).decodeParams(t.Context(), text)
		if err != nil {
			t.Fatal(name, err)
		}
		takes := leftByDecoding() - before
		if counted := int64(len(text) + values*clients.ValueBytes); takes > counted {
			t.Errorf("%s: %d bytes are left of %d with %d values: %d are counted", name, takes, len(text), values, counted)
		}
		t.Logf("%s: %d bytes, %d values: %d are left, %d for each value beyond the text", name, len(text), values, takes, (takes-int64(len(text)))/int64(values))
		goruntime.KeepAlive(params)
		goruntime.KeepAlive(text)
	}
}

// leftByDecoding returns the bytes in use that the decoding of JSON allocated. It reads the memory
// profile, because the heap's size includes other goroutines. The profile has the 32 innermost
// frames, so it doesn't always include decodeParams.
func leftByDecoding() int64 {
	goruntime.GC() // the profile is that of the last collection but one
	goruntime.GC()
	records := make([]goruntime.MemProfileRecord, 10_000)
	n, _ := goruntime.MemProfile(records, false)
	var all int64
	for _, record := range records[:n] {
		for frames := goruntime.CallersFrames(record.Stack()); ; {
			frame, more := frames.Next()
			if strings.HasPrefix(frame.Function, "encoding/json.") || strings.HasSuffix(frame.Function, ".decodeParams") {
				all += record.InUseBytes()
				break
			}
			if !more {
				break
			}
		}
	}
	return all
}
