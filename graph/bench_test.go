package graph

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const textEvents = `subscription($id: ID!) { executionEvents(executionId: $id) { cursor ... on ExecutionOutput { text } } }`

// drain reads messages until the connection or the subscription ends.
func drain(ctx context.Context, conn *websocket.Conn, each func(message []byte)) error {
	buffer := bytes.NewBuffer(make([]byte, 0, 256<<10))
	for {
		_, reader, err := conn.Reader(ctx)
		if err != nil {
			return err
		}
		buffer.Reset()
		if _, err := buffer.ReadFrom(reader); err != nil {
			return err
		}
		if bytes.HasSuffix(buffer.Bytes(), []byte(`"type":"complete"}`)) {
			return nil
		}
		each(buffer.Bytes())
	}
}

// benchDial opens a connection with a subscription to an execution.
func benchDial(tb testing.TB, url, id string) *websocket.Conn {
	conn, _, err := websocket.Dial(tb.Context(), "ws"+strings.TrimPrefix(url, "http")+"/graphql", &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		tb.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	payload, _ := json.Marshal(in{"query": textEvents, "variables": in{"id": id}})
	for _, text := range []string{`{"type":"connection_init"}`, `{"id":"1","type":"subscribe","payload":` + string(payload) + `}`} {
		if err := conn.Write(tb.Context(), websocket.MessageText, []byte(text)); err != nil {
			tb.Fatal(err)
		}
	}
	if _, text, err := conn.Read(tb.Context()); err != nil || !bytes.Contains(text, []byte("connection_ack")) {
		tb.Fatal(string(text), err)
	}
	return conn
}

// floor serves a bare WebSocket that sends n messages of size bytes.
func floor(tb testing.TB, n, size int) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			tb.Error(err)
			return
		}
		defer conn.CloseNow()
		message := bytes.Repeat([]byte("x"), size)
		for range n {
			if conn.Write(r.Context(), websocket.MessageText, message) != nil {
				return
			}
		}
		_ = conn.Write(r.Context(), websocket.MessageText, []byte(`"type":"complete"}`))
	}))
	tb.Cleanup(server.Close)
	return server
}

// BenchmarkSubscription measures one watcher of one program that prints text as fast as it is read.
// It measures while the program runs, after it has ended (from the log), and a bare WebSocket. b.N
// counts 32 KiB.
func BenchmarkSubscription(b *testing.B) {
	const size = 32 << 10
	run := func(b *testing.B, stored bool) {
		bed := newBed(b)
		bed.limitless("bench")
		id := bed.start(in{"runnerId": bed.claim("bench"), "command": []string{"lines", strconv.Itoa(b.N * size)}})
		if stored {
			bed.send(`query($id: ID!) { execution(id: $id, waitFor: 600) { outcome } }`, in{"id": id}, &struct{}{})
		}
		b.SetBytes(size)
		b.ResetTimer()
		conn := benchDial(b, bed.url, id)
		defer conn.CloseNow()
		got, messages := 0, 0
		if err := drain(b.Context(), conn, func(message []byte) { got += len(message); messages++ }); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if got < b.N*size {
			b.Fatalf("%d of %d bytes", got, b.N*size)
		}
		b.ReportMetric(float64(messages)/b.Elapsed().Seconds(), "messages/s")
	}
	b.Run("floor", func(b *testing.B) {
		server := floor(b, b.N, size)
		b.SetBytes(size)
		b.ResetTimer()
		conn, _, err := websocket.Dial(b.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), nil)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.CloseNow()
		conn.SetReadLimit(1 << 20)
		if err := drain(b.Context(), conn, func([]byte) {}); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("live", func(b *testing.B) { run(b, false) })
	b.Run("stored", func(b *testing.B) { run(b, true) })
}

// BenchmarkWatchers measures the delay of output for the watchers of a program that prints 1 MB/s
// for five seconds: the time from printing to reading.
func BenchmarkWatchers(b *testing.B) {
	for _, watchers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(watchers), func(b *testing.B) {
			for range b.N {
				lags, size := watchPaced(b, watchers, 1_000_000, 5)
				slices.Sort(lags)
				at := func(q float64) float64 { return float64(lags[int(q*float64(len(lags)-1))]) / 1e6 }
				b.ReportMetric(at(0.5), "p50-ms")
				b.ReportMetric(at(0.99), "p99-ms")
				b.ReportMetric(at(1), "max-ms")
				b.ReportMetric(float64(size)/5/1e6, "MB/s")
				b.ReportMetric(float64(len(lags))/5, "messages/s")
			}
		})
	}
}

func watchPaced(b *testing.B, watchers, perSecond, seconds int) (lags []time.Duration, size int) {
	bed := newBed(b)
	bed.limitless("bench")
	runner := bed.claim("bench")
	id := bed.start(in{"runnerId": runner, "command": []string{"pace", strconv.Itoa(perSecond), strconv.Itoa(seconds)}})
	var mu sync.Mutex
	var group sync.WaitGroup
	began := time.Now()
	var joined time.Time
	conns := make([]*websocket.Conn, watchers)
	for i := range conns {
		conns[i] = benchDial(b, bed.url, id)
	}
	joined = time.Now()
	b.Logf("%d watchers in %v", watchers, joined.Sub(began))
	for _, conn := range conns {
		group.Go(func() {
			defer conn.CloseNow()
			var own []time.Duration
			bytesRead := 0
			err := drain(b.Context(), conn, func(message []byte) {
				bytesRead += len(message)
				i := bytes.Index(message, []byte("at="))
				if i < 0 {
					return
				}
				stamp, _, _ := bytes.Cut(message[i+3:], []byte(";"))
				nanos, err := strconv.ParseInt(string(stamp), 10, 64)
				if err != nil {
					return
				}
				if at := time.Unix(0, nanos); at.After(joined.Add(200 * time.Millisecond)) {
					own = append(own, time.Since(at)) // the first piece, which waited longest
				}
			})
			if err != nil && err != io.EOF {
				b.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			lags = append(lags, own...)
			size += bytesRead
		})
	}
	group.Wait()
	return lags, size
}
