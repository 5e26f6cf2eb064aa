package doors

import (
	"net/http"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime/timing"
)

// Routes takes a door's routes. Each is counted.
type Routes struct {
	mux    *http.ServeMux
	counts *Counts
	door   string
}

// Handle serves what matches a pattern of http.ServeMux with handler. Metrics have the pattern as the route.
func (r *Routes) Handle(pattern string, handler http.Handler) {
	route := r.counts.route(r.door, pattern)
	r.mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := time.Now()
		answer := &answer{ResponseWriter: w}
		returned := false
		defer func() { route.add(answer.class(returned), time.Since(began)) }()
		handler.ServeHTTP(answer, req)
		returned = true
	}))
}

// HandleFunc is Handle for a function.
func (r *Routes) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(handler))
}

// Counting returns a function that counts one use of what isn't a route of HTTP: a method in a request's body. The set of
// names must be bounded.
func (r *Routes) Counting(name string) func(failed bool, took time.Duration) {
	route := r.counts.route(r.door, name)
	return func(failed bool, took time.Duration) {
		class := http.StatusOK/100 - 1
		if failed {
			class = http.StatusBadRequest/100 - 1
		}
		route.add(class, took)
	}
}

// Counts are the requests of all doors. Its methods are safe for concurrent use.
type Counts struct {
	mu     sync.Mutex // guards routes
	routes []*route
}

// A Count is what was counted of one route.
type Count struct {
	Door    string
	Pattern string
	Class   string // of the answers: "2xx" for example
	Took    timing.Reading
}

// Read returns what was counted until now, without what never happened.
func (c *Counts) Read() []Count {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Count
	for _, route := range c.routes {
		for class, took := range route.took {
			if reading := took.Read(); reading.Count() > 0 {
				all = append(all, Count{route.door, route.pattern, classes[class], reading})
			}
		}
	}
	return all
}

func (c *Counts) route(door, pattern string) *route {
	made := &route{door: door, pattern: pattern}
	for class := range made.took {
		made.took[class] = timing.New(5*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond, 500*time.Millisecond, 2*time.Second, 10*time.Second, time.Minute)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routes = append(c.routes, made)
	return made
}

var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

type route struct {
	door    string
	pattern string
	took    [len(classes)]*timing.Histogram
}

func (r *route) add(class int, took time.Duration) { r.took[class].Add(took) }

// An answer knows its status. What else it can do http.ResponseController finds by Unwrap.
type answer struct {
	http.ResponseWriter
	status int // 0: none yet
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// class is the index of the status' class. A handler that writes nothing answers with 200, unless it panics.
func (a *answer) class(returned bool) int {
	switch {
	case a.status >= 100 && a.status <= 599:
		return a.status/100 - 1
	case a.status == 0 && returned:
		return 1
	default:
		return 4
	}
}
