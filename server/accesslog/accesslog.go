// Package accesslog writes a line of JSON for each request that was served. A line has nothing
// that a client keeps secret: no query of an address, no header but the user agent, no body.
package accesslog

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"time"
)

// A line is what is logged of a request. For a WebSocket it is written at its end: status 101,
// and the bytes before it was one.
type line struct {
	Time     time.Time  `json:"time"` // when it began
	Client   netip.Addr `json:"client"`
	Method   string     `json:"method"`
	Path     string     `json:"path"`
	Protocol string     `json:"protocol"`
	Status   int        `json:"status"`
	Bytes    int64      `json:"bytes"` // of the answer's body
	Millis   float64    `json:"ms"`
	Agent    string     `json:"userAgent,omitempty"`
}

// Of longer texts the beginning is logged.
const (
	maxMethod = 32
	maxPath   = 1 << 10
	maxAgent  = 256
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
		counted := &writer{ResponseWriter: w}
		defer func() { // also where next panics to cut the answer off
			status := counted.status
			if status == 0 {
				status = http.StatusOK
			}
			text, err := json.Marshal(line{
				Time: began.UTC(), Client: from, Method: first(method, maxMethod), Path: first(path, maxPath), Protocol: r.Proto, Status: status,
				Bytes: counted.bytes, Millis: float64(time.Since(began).Microseconds()) / 1e3, Agent: first(agent, maxAgent),
			})
			if err == nil { // there is nothing in it that can fail
				l.add(text)
			}
		}()
		next.ServeHTTP(counted, r)
	})
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
