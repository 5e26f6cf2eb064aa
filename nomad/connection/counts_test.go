package connection

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/test/wait"
)

// Each call counts with its kind and its result.
func TestCallsAreCounted(t *testing.T) {
	status, waits := http.StatusOK, make(chan bool)
	nomad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/event") {
			<-waits
		}
		w.Header().Set("X-Nomad-Index", strconv.Itoa(1))
		w.WriteHeader(status)
		_, _ = w.Write([]byte("null"))
	}))
	defer nomad.Close()
	defer close(waits)
	var g Group
	patient := func(patience time.Duration) *Client {
		t.Helper()
		c, err := New(Config{Address: nomad.URL, Patience: patience, Calls: 16}, &g)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	c := patient(wait.Limit)
	want := func(kind CallKind, result CallResult, n int64) {
		t.Helper()
		of := c.Stats().Calls[kind]
		var all int64
		for _, n := range of.Results {
			all += n
		}
		if of.Results[result] != n || of.Took.Count() != all {
			t.Errorf("%s: %v in %d times, want %d %s", kind, of.Results, of.Took.Count(), n, result)
		}
	}
	ctx := t.Context()
	variable := &api.Variable{Path: "a/b", Lock: &api.VariableLock{ID: "x"}}
	for kind, call := range map[CallKind]func() error{
		ListJobs:           func() error { _, _, err := c.API().Jobs().List(Query(ctx)); return err },
		"LIST_ALLOCATIONS": func() error { _, _, err := c.API().Allocations().List(Query(ctx)); return err },
		"LIST_EVALUATIONS": func() error { _, _, err := c.API().Evaluations().List(Query(ctx)); return err },
		"LIST_VARIABLES":   func() error { _, _, err := c.API().Variables().PrefixList("a", Query(ctx)); return err },
		"LIST_NODES":       func() error { _, _, err := c.API().Nodes().List(Query(ctx)); return err },
		"REGISTER_JOB": func() error {
			_, _, err := c.API().Jobs().Register(&api.Job{ID: new("jobs")}, Writing(ctx))
			return err
		},
		"READ_JOB":        func() error { _, _, err := c.API().Jobs().Info("jobs", Query(ctx)); return err },
		"STOP_JOB":        func() error { _, _, err := c.API().Jobs().Deregister("jobs", true, Writing(ctx)); return err },
		"READ_EVALUATION": func() error { _, _, err := c.API().Evaluations().Info("x", Query(ctx)); return err },
		"READ_VARIABLE":   func() error { _, _, err := c.API().Variables().Peek("a/b", Query(ctx)); return err },
		"WRITE_VARIABLE":  func() error { _, _, err := c.API().Variables().CheckedUpdate(variable, Writing(ctx)); return err },
		"DELETE_VARIABLE": func() error { _, err := c.API().Variables().Delete("a/b", Writing(ctx)); return err },
		LockVariable:      func() error { _, _, err := c.API().Variables().RenewLock(variable, Writing(ctx)); return err },
		OtherCall:         func() error { _, err := c.Leader(ctx); return err },
	} {
		if err := call(); err != nil {
			t.Logf("%s: %v", kind, err) // null is no answer to some
		}
		want(kind, CallDone, 1)
	}
	if _, err := c.Exec(ctx, "", "a", "runner", []string{"true"}); err == nil {
		t.Error("an answer of null is accepted as an exec")
	}
	want("EXEC", CallDone, 1)

	for code, result := range map[int]CallResult{404: CallDone, 409: CallDone, 403: CallRefused, 400: CallRefused, 429: CallFailed, 500: CallFailed, 503: CallFailed} {
		status = code
		before := c.Stats().Calls[ListJobs].Results[result]
		_, _, _ = c.API().Jobs().List(Query(ctx))
		want(ListJobs, result, before+1)
	}
	leaving, leave := context.WithCancel(ctx)
	time.AfterFunc(10*time.Millisecond, leave)
	if _, err := c.Events(leaving, nil, 0); err == nil {
		t.Error("a cancelled event stream succeeds")
	}
	want("EVENTS", CallCancelled, 1)
	if n := c.Stats().Retries; n != 0 {
		t.Errorf("%d retries, want 0", n)
	}
	nomad.CloseClientConnections()
	nomad.Listener.Close()
	c = patient(time.Second) // in which it is asked more than once
	if _, err := c.Leader(ctx); err == nil {
		t.Error("Leader succeeds without an answer")
	}
	s := c.Stats()
	if n := s.Calls[OtherCall].Results[CallUnanswered]; n < 2 || s.Retries != n-1 {
		t.Errorf("%d weren't answered, with %d retries", n, s.Retries)
	}
}
