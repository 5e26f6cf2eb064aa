package connection

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime/timing"
)

// A CallKind is the kind of a call to Nomad's API.
type CallKind string

// The kinds that code names. docs/reference/metrics.md explains all kinds.
const (
	ListJobs      CallKind = "LIST_JOBS"
	writeVariable CallKind = "WRITE_VARIABLE"
	LockVariable  CallKind = "LOCK" // acquires, renews or releases the lock
	OtherCall     CallKind = "OTHER"
)

// A CallResult is the result of a call.
type CallResult string

// The results.
const (
	CallDone       CallResult = "DONE"       // Nomad answered, including that something doesn't exist or has changed
	CallRefused    CallResult = "REFUSED"    // the token lacks a permission, or the call is invalid
	CallFailed     CallResult = "FAILED"     // Nomad reported a failure
	CallUnanswered CallResult = "UNANSWERED" // Nomad didn't answer in time
	CallCancelled  CallResult = "CANCELLED"  // the caller no longer waits
)

// kinds has the kind of each method with the beginning of a path.
var kinds = map[string]CallKind{
	"GET jobs": ListJobs, "GET allocations": "LIST_ALLOCATIONS", "GET evaluations": "LIST_EVALUATIONS", "GET vars": "LIST_VARIABLES", "GET nodes": "LIST_NODES",
	"PUT jobs": "REGISTER_JOB", "GET job/": "READ_JOB", "DELETE job/": "STOP_JOB", "GET evaluation/": "READ_EVALUATION",
	"GET var/": "READ_VARIABLE", "PUT var/": writeVariable, "DELETE var/": "DELETE_VARIABLE", "GET client/": "EXEC", "GET event/": "EVENTS",
}

func kindOf(r *http.Request) CallKind {
	_, path, _ := strings.Cut(r.URL.Path, "/v1/")
	// The rest of such a path is an id. In kinds these paths end in a slash.
	if first, _, deeper := strings.Cut(path, "/"); deeper {
		path = first + "/"
	}
	kind, known := kinds[r.Method+" "+path]
	switch query := r.URL.Query(); {
	case !known:
		return OtherCall
	case kind == writeVariable && (query.Has("lock-acquire") || query.Has("lock-renew") || query.Has("lock-release")):
		return LockVariable
	}
	return kind
}

// resultOf returns the result of a request. Response is nil if err isn't.
func resultOf(r *http.Request, response *http.Response, err error) CallResult {
	switch {
	case err != nil && errors.Is(r.Context().Err(), context.Canceled):
		return CallCancelled
	case err != nil:
		return CallUnanswered
	case response.StatusCode == http.StatusNotFound, response.StatusCode == http.StatusConflict:
		return CallDone
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= http.StatusInternalServerError:
		return CallFailed
	case response.StatusCode >= http.StatusBadRequest:
		return CallRefused
	}
	return CallDone
}

// counts are the counters of calls. They are atomic, so they need no lock.
type counts struct {
	kinds   map[CallKind]*kindCounts // never modified
	retries atomic.Int64
}

type kindCounts struct {
	results map[CallResult]*atomic.Int64 // never modified
	took    *timing.Histogram
}

// newCounts returns maps that never change, so they need no lock.
func newCounts() *counts {
	const ms = time.Millisecond
	c := &counts{kinds: map[CallKind]*kindCounts{}}
	for _, kind := range slices.AppendSeq([]CallKind{LockVariable, OtherCall}, maps.Values(kinds)) {
		of := &kindCounts{map[CallResult]*atomic.Int64{}, timing.New(ms, 2500*time.Microsecond, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 500*ms, 1000*ms, 2500*ms, 5000*ms, 10000*ms)}
		for _, result := range []CallResult{CallDone, CallRefused, CallFailed, CallUnanswered, CallCancelled} {
			of.results[result] = &atomic.Int64{}
		}
		c.kinds[kind] = of
	}
	return c
}

// A counted transport counts its calls, each attempt separately. A call ends when its answer
// begins, since an event stream or a bridge may continue for days.
type countingTransport struct {
	*http.Transport
	counts *counts
}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := c.Transport.RoundTrip(r)
	of := c.counts.kinds[kindOf(r)]
	of.results[resultOf(r, response, err)].Add(1)
	of.took.Add(time.Since(began))
	return response, err
}

// Stats are a Client's counts.
type Stats struct {
	Calls   map[CallKind]CallStats
	Retries int64 // repeated calls, because Nomad didn't answer
}

// CallStats are the counts of one kind of call.
type CallStats struct {
	Results map[CallResult]int64
	Took    timing.Reading // until their answers began
}

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	s := Stats{Calls: map[CallKind]CallStats{}, Retries: c.counts.retries.Load()}
	for kind, of := range c.counts.kinds {
		results := map[CallResult]int64{}
		for result, n := range of.results {
			results[result] = n.Load()
		}
		s.Calls[kind] = CallStats{results, of.took.Read()}
	}
	return s
}
