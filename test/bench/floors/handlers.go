package floors

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/test/bench/socket"
)

// An appender writes the body of each request to a file and answers. A claim must do at least that,
// since it survives the server's death.
type appender struct {
	mu   sync.Mutex // guards the file's end
	file *os.File
}

func (a *appender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		a.mu.Lock()
		_, err = a.file.Write(body)
		a.mu.Unlock()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"data":{"claimRunner":{"runner":{"id":"00000000-0000-0000-0000-000000000000"}}}}`)
}

// lastMessage ends a floor's stream, as a server ends a subscription.
var lastMessage = []byte(`{"id":"1","type":"complete"}`)

// number returns a number from the request's query; 0 means it is missing.
func number(r *http.Request, name string) int {
	n, _ := strconv.Atoi(r.URL.Query().Get(name)) // the only client is the bench
	return n
}

// accept opens a WebSocket without compression. After an error, the response is already written.
func accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	return websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
}

// serveSocket sends messages as fast as the client reads them.
func serveSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := accept(w, r)
	if err != nil {
		return // the client got an error response
	}
	defer conn.CloseNow()
	message := append([]byte(`{"__typename":"ExecutionOutput","text":"`), bytes.Repeat([]byte("x"), number(r, "size"))...)
	for range number(r, "messages") {
		if conn.Write(r.Context(), websocket.MessageText, message) != nil {
			return
		}
	}
	_ = conn.Write(r.Context(), websocket.MessageText, lastMessage)
	_, _, _ = conn.Read(r.Context()) // until the client has read all, and closes
}

// serveIdle opens a WebSocket and sends nothing.
func serveIdle(w http.ResponseWriter, r *http.Request) {
	conn, err := accept(w, r)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	_, _, _ = conn.Read(r.Context())
}

// A pacer sends the same to all readers: small pieces that begin with the time, a megabyte per
// second. It starts when the last reader has connected, and ends after some seconds.
type pacer struct {
	mu      sync.Mutex // guards what follows
	readers []chan []byte
}

const (
	paceEvery = 10 * time.Millisecond
	paceBytes = 10_000
)

func (p *pacer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, err := accept(w, r)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	messages := make(chan []byte, 1024)
	p.mu.Lock()
	p.readers = append(p.readers, messages)
	if len(p.readers) == number(r, "readers") {
		go pace(p.readers, number(r, "seconds"))
		p.readers = nil
	}
	p.mu.Unlock()
	for message := range messages {
		if conn.Write(r.Context(), websocket.MessageText, message) != nil {
			return
		}
	}
	_ = conn.Write(r.Context(), websocket.MessageText, lastMessage)
	_, _, _ = conn.Read(r.Context())
}

// pace sends to all readers until the time is over, then closes their channels. It never blocks on
// a reader.
func pace(readers []chan []byte, seconds int) {
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		at := <-tick.C
		message := append([]byte(`{"__typename":"ExecutionOutput","text":"`), pacePiece(at)...)
		for _, reader := range readers {
			select {
			case reader <- message:
			default: // this reader is ten seconds late: it has left
			}
		}
	}
	for _, reader := range readers {
		close(reader)
	}
}

// pacePiece is one piece that a paced program prints: the time and padding.
func pacePiece(at time.Time) []byte {
	piece := append(strconv.AppendInt([]byte("at="), at.UnixNano(), 10), ';')
	return append(piece, bytes.Repeat([]byte("."), paceBytes-len(piece))...)
}

// serveUpload writes the body to a file.
func serveUpload(w http.ResponseWriter, r *http.Request) {
	file, err := os.CreateTemp("", "rockpool-bench-upload-")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer file.Close()
	if _, err := io.Copy(file, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// serveDownload sends the requested number of bytes from memory.
func serveDownload(w http.ResponseWriter, r *http.Request) {
	size := number(r, "size")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	piece := bytes.Repeat([]byte("x"), 256<<10)
	for size > 0 {
		n, err := w.Write(piece[:min(size, len(piece))])
		if size -= n; err != nil {
			return
		}
	}
}

// Dial opens a WebSocket to one of the floors.
func (f *Process) Dial(ctx context.Context, path string) (*socket.Conn, error) {
	conn, _, err := websocket.Dial(ctx, "ws"+f.URL[len("http"):]+path, nil)
	if err != nil {
		return nil, err
	}
	return socket.New(conn), nil
}

// Poster returns a function that posts a body to one of the floors and reads the answer.
func (f *Process) Poster(path string, body []byte) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", path, response.Status)
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
}
