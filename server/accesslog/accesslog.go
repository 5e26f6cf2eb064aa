// Package accesslog writes a line of JSON for each request that was served. A line has nothing
// that a client keeps secret: no query of an address, no header but the user agent, no body. Of a
// GraphQL operation it has the type and the name, but no variables. It is ASCII: what else a client
// sends is escaped, so that a terminal that shows the line obeys nothing.
package accesslog

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// A line is what is logged of a request. For a WebSocket it is written at its end: status 101,
// and the bytes before it was one.
type line struct {
	Time       time.Time   `json:"time"` // when it began
	Client     netip.Addr  `json:"client"`
	Method     string      `json:"method"`
	Path       string      `json:"path"`
	Operations []operation `json:"operations,omitempty"` // the first maxOperations different ones; more than one only of a WebSocket
	Protocol   string      `json:"protocol"`
	Status     int         `json:"status"`
	Bytes      int64       `json:"bytes"` // of the answer's body
	Millis     float64     `json:"ms"`
	Agent      string      `json:"userAgent,omitempty"`
}

// An operation is one of GraphQL.
type operation struct {
	Type string `json:"type"` // query, mutation or subscription
	Name string `json:"name,omitempty"`
}

// Of longer texts the beginning is logged.
const (
	maxMethod     = 32
	maxPath       = 1 << 10
	maxAgent      = 256
	maxName       = 128
	maxOperations = 16
)

// Handler serves requests with next, and logs each at its end. Client returns where one comes
// from. A nil Log logs nothing.
func (l *Log) Handler(client func(r *http.Request) netip.Addr, next http.Handler) http.Handler {
	if l == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		// next may change them.
		method, path, agent, from := r.Method, r.URL.EscapedPath(), r.UserAgent(), client(r)
		counted, carried := &writer{ResponseWriter: w}, &operations{}
		defer func() { // also where next panics to cut the answer off
			status := counted.status
			if status == 0 {
				status = http.StatusOK
			}
			text, err := json.Marshal(line{
				Time: began.UTC(), Client: from, Method: first(method, maxMethod), Path: first(path, maxPath), Operations: carried.list(), Protocol: r.Proto,
				Status: status, Bytes: counted.bytes, Millis: float64(time.Since(began).Microseconds()) / 1e3, Agent: first(agent, maxAgent),
			})
			if err == nil { // there is nothing in it that can fail
				l.add(ascii(text))
			}
		}()
		next.ServeHTTP(counted, r.WithContext(context.WithValue(r.Context(), operationsKey{}, carried)))
	})
}

// Operation adds a GraphQL operation to the line of the request that carries it, to whose context ctx belongs. Without
// a Log it does nothing.
func Operation(ctx context.Context, kind, name string) {
	if of, ok := ctx.Value(operationsKey{}).(*operations); ok {
		of.add(operation{kind, first(name, maxName)})
	}
}

// operations are those of one request.
type operations struct {
	mu  sync.Mutex // guards all
	all []operation
}

type operationsKey struct{}

func (o *operations) add(one operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) < maxOperations && !slices.Contains(o.all, one) {
		o.all = append(o.all, one)
	}
}

func (o *operations) list() []operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all
}

// ascii escapes in JSON what isn't ASCII, and DEL. JSON has both in strings only.
func ascii(text []byte) []byte {
	plain := func(c byte) bool { return c < 0x7f }
	if !slices.ContainsFunc(text, func(c byte) bool { return !plain(c) }) {
		return text
	}
	var out []byte
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if plain(text[0]) {
			out = append(out, text[0])
		} else {
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		text = text[size:]
	}
	return out
}

func first(text string, most int) string { return text[:min(len(text), most)] }

// A writer counts an answer. What else it can do http.ResponseController finds by Unwrap.
type writer struct {
	http.ResponseWriter
	status int // 0: none yet
	bytes  int64
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}
