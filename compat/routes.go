package compat

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Routes registers the routes of one API, and counts their requests.
type Routes struct {
	mux     *http.ServeMux
	counts  *Counts
	api     string
	methods []string // of all routes, with repetitions
}

// Handle registers a handler for a pattern of http.ServeMux. Metrics have the pattern as the route.
func (r *Routes) Handle(pattern string, handler http.Handler) {
	route := r.counts.route(r.api, pattern)
	if method, _, has := strings.Cut(pattern, " "); has {
		r.methods = append(r.methods, method)
	}
	r.mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := time.Now()
		answer := &clients.Recorder{ResponseWriter: w}
		returned := false
		defer func() { route.add(class(answer.Status, returned), time.Since(began)) }()
		handler.ServeHTTP(answer, req)
		returned = true
	}))
}

// Counting returns a function that counts one use of something that isn't an HTTP route, such as a
// method in a request's body. The set of names must be bounded, since each becomes a metric.
func (r *Routes) Counting(name string) func(failed bool, took time.Duration) {
	route := r.counts.route(r.api, name)
	return func(failed bool, took time.Duration) {
		class := http.StatusOK/100 - 1
		if failed {
			class = http.StatusBadRequest/100 - 1
		}
		route.add(class, took)
	}
}

// Counts has the counts of the requests of all APIs. Its methods are safe for concurrent use.
type Counts struct {
	mu     sync.Mutex // guards routes
	routes []*route
}

// A Count is the count of one route and class of answers.
type Count struct {
	API     string
	Pattern string
	Class   string // of the status codes, for example "2xx"
	Took    timing.Reading
}

// Read returns the counts so far. It leaves out routes and classes without any request.
func (c *Counts) Read() []Count {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Count
	for _, route := range c.routes {
		for class, took := range route.took {
			if reading := took.Read(); reading.Count() > 0 {
				all = append(all, Count{route.api, route.pattern, classes[class], reading})
			}
		}
	}
	return all
}

// route adds a route to the counts and returns it.
func (c *Counts) route(api, pattern string) *route {
	made := &route{api: api, pattern: pattern}
	for class := range made.took {
		made.took[class] = timing.New(5*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond, 500*time.Millisecond, 2*time.Second, 10*time.Second, time.Minute)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routes = append(c.routes, made)
	return made
}

// classes are the names of the classes of statuses, in the order of route.took.
var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

// A route counts the requests of one route of an API, by class of the status.
type route struct {
	api     string
	pattern string
	took    [len(classes)]*timing.Histogram
}

func (r *route) add(class int, took time.Duration) { r.took[class].Add(took) }

// class returns the index of the status' class. A handler that writes nothing answers 200, unless
// it panics.
func class(status int, returned bool) int {
	switch {
	case status >= 100 && status <= 599:
		return status/100 - 1
	case status == 0 && returned:
		return 1
	default:
		return 4
	}
}
