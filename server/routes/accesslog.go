package routes

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

	"github.com/rockpool/rockpool/clients"
)

// A line is a request's line of JSON in the access log. It has no secrets of clients: no query string,
// no header except the user agent, no body. For a GraphQL operation it has type and name, but no
// variables. Lines are ASCII: other characters are escaped, so that a log can't control the terminal
// that shows it. For a WebSocket it is written at its end, with status 101
// and the bytes before the upgrade.
type line struct {
	Time       time.Time   `json:"time"` // start of the request
	Client     netip.Addr  `json:"client"`
	Method     string      `json:"method"`
	Path       string      `json:"path"`
	Operations []operation `json:"operations,omitempty"` // the first maxOperations different ones; only a WebSocket has several
	Protocol   string      `json:"protocol"`
	Status     int         `json:"status"`
	Bytes      int64       `json:"bytes"` // of the response body
	Millis     float64     `json:"ms"`
	Agent      string      `json:"userAgent,omitempty"`
}

// An operation is a GraphQL operation.
type operation struct {
	Type string `json:"type"` // query, mutation or subscription
	Name string `json:"name,omitempty"`
}

// Longer texts are cut.
const (
	maxMethod     = 32
	maxPath       = 1 << 10
	maxAgent      = 256
	maxName       = 128
	maxOperations = 16
)

// Handler returns a handler that serves requests with next and logs each one at its end. A nil Log
// logs nothing.
func (l *Log) Handler(next http.Handler) http.Handler {
	if l == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		// next may change these values.
		method, path, agent, from := r.Method, r.URL.EscapedPath(), r.UserAgent(), clients.ClientAddress(r.Context())
		counted, carried := &clients.Recorder{ResponseWriter: w}, &operations{}
		defer func() { // also if next panics to abort the response
			status := counted.Status
			if status == 0 {
				status = http.StatusOK
			}
			text, err := json.Marshal(line{
				Time: began.UTC(), Client: from, Method: first(method, maxMethod), Path: first(path, maxPath), Operations: carried.list(), Protocol: r.Proto,
				Status: status, Bytes: counted.Bytes, Millis: float64(time.Since(began).Microseconds()) / 1e3, Agent: first(agent, maxAgent),
			})
			if err == nil { // can't fail: a line has only simple values
				l.add(ascii(text))
			}
		}()
		next.ServeHTTP(counted, r.WithContext(context.WithValue(r.Context(), operationsKey{}, carried)))
	})
}

// Operation adds a GraphQL operation to the log line of its request. ctx must be derived from the
// request's context. Without a Log it does nothing.
func Operation(ctx context.Context, kind, name string) {
	if of, ok := ctx.Value(operationsKey{}).(*operations); ok {
		of.add(operation{kind, first(name, maxName)})
	}
}

// operations has the GraphQL operations of one request.
type operations struct {
	mu  sync.Mutex // guards all
	all []operation
}

// An operationsKey is the key of *operations in a request's context.
type operationsKey struct{}

// add adds an operation, unless it is known or there are maxOperations.
func (o *operations) add(one operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) < maxOperations && !slices.Contains(o.all, one) {
		o.all = append(o.all, one)
	}
}

// list returns the operations so far. The caller must not change them.
func (o *operations) list() []operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all
}

// ascii escapes non-ASCII characters and DEL in JSON, where both occur only in strings.
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

// first returns at most the first most bytes of a text.
func first(text string, most int) string { return text[:min(len(text), most)] }
