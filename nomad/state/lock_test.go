package state

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/test/wait"
)

// A variable is a Nomad variable with a lock.
type variable struct {
	mu       sync.Mutex
	holder   string // the lock's id; "" means nobody
	items    api.VariableItems
	refuse   int // so many releases fail
	released []string
}

// ServeHTTP implements http.Handler.
func (v *variable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var sent api.Variable
	_ = json.NewDecoder(r.Body).Decode(&sent)
	query := r.URL.Query()
	switch {
	case query.Has("lock-acquire") && v.holder != "":
		w.WriteHeader(http.StatusConflict)
		return
	case query.Has("lock-acquire"):
		v.holder, v.items = "mine", sent.Items
	case query.Has("lock-release"):
		v.released = append(v.released, sent.Lock.ID)
		if v.refuse--; v.refuse >= 0 {
			http.Error(w, "No cluster leader", http.StatusInternalServerError)
			return
		}
		if sent.Lock.ID == v.holder {
			v.holder = ""
		}
	}
	answer := api.Variable{Path: "rockpool/lock", Items: v.items}
	if v.holder != "" {
		answer.Lock = &api.VariableLock{ID: v.holder, TTL: "10s"}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (v *variable) change(do func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	do()
}

// standby returns a lock on a variable that another server holds. Its watch over an owner ends with
// a value of ends.
func standby(t *testing.T, v *variable, ends <-chan string) (l *Lock, watched chan Peer) {
	t.Helper()
	v.holder, v.items = "theirs", api.VariableItems{"peer": "10.0.0.5:8081", "secret": "first"}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	nomad, err := connection.New(connection.Config{Address: server.URL, Calls: 16}, &connection.Group{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nomad.Close)
	watched = make(chan Peer, 10)
	return &Lock{
		Nomad: nomad, Prefix: "rockpool", TTL: wait.Limit, Logger: zap.NewNop(), Problems: health.NewProblems(zap.NewNop()),
		AwaitEnd: func(ctx context.Context, address, secret string) (string, error) {
			watched <- Peer{address, secret}
			select {
			case id := <-ends:
				return id, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		},
	}, watched
}

// The release is repeated if Nomad rejects it.
func TestLockOfADeadOwnerIsReleased(t *testing.T) {
	v := &variable{refuse: 2}
	ends := make(chan string, 1)
	l, watched := standby(t, v, ends)
	got := make(chan *Held, 1)
	go func() {
		held, err := l.Acquire(t.Context())
		if err == nil {
			got <- held
		}
	}()
	if of := wait.Receive(t, watched, "the owner is watched"); of != (Peer{"10.0.0.5:8081", "first"}) {
		t.Errorf("it watches %+v", of)
	}
	ends <- "theirs"
	if wait.Receive(t, got, "it has the lock"); l.ID() != "mine" {
		t.Errorf("it has %q, want \"mine\"", l.ID())
	}
	if v.change(func() {}); len(v.released) != 3 {
		t.Errorf("released: %q", v.released)
	}
}

// A server that was killed and restarted has its lock under the same id.
func TestLockOfARestartedOwnerIsKept(t *testing.T) {
	v := &variable{}
	ends := make(chan string, 1)
	l, watched := standby(t, v, ends)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = l.Acquire(ctx)
	}()
	wait.Receive(t, watched, "the owner is watched")
	v.change(func() { v.items = api.VariableItems{"peer": "10.0.0.5:8081", "secret": "second"} })
	ends <- "theirs"
	if of := wait.Receive(t, watched, "its next process is watched"); of.Secret != "second" {
		t.Errorf("it watches %+v", of)
	}
	cancel()
	wait.Receive(t, done, "it ends")
	if len(v.released) > 0 || v.holder != "theirs" {
		t.Errorf("released: %q, and %q has the lock", v.released, v.holder)
	}
}
