package execution

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
)

// TestClaimReportsInOrder: first what it waits for, then the result, even if the result arrives
// while it requests the reason.
func TestClaimReportsInOrder(t *testing.T) {
	asked, answered := make(chan struct{}), make(chan struct{})
	var claims atomic.Value // the address of the claim's connection
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), "claimRunner") {
			<-asked
			claims.Store(r.RemoteAddr)
			_, _ = io.WriteString(w, `{"data":{"claimRunner":{"runner":{"id":"r"},"resumed":true}}}`)
			return
		}
		close(asked)
		<-answered
		_, _ = io.WriteString(w, `{"data":{"environment":{"pool":{"idle":0,"starting":1,"claimed":0,"stopping":0,"reason":"","image":null}}}}`)
	}))
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateIdle && claims.CompareAndSwap(conn.RemoteAddr().String(), "") {
			close(answered)
		}
	}
	server.Start()
	defer server.Close()
	var said bytes.Buffer
	runner, err := Claim(t.Context(), &said, client.New(server.URL), Request{Environment: "e", Wait: 30 * time.Second, Holder: new("ada")})
	if err != nil || runner != "r" {
		t.Fatal(runner, err)
	}
	if want := "rockpool: waiting for a runner of e (a runner is starting)\nrockpool: resumed runner r of this holder\n"; said.String() != want {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
}

// TestLostClaimsNameTheKey breaks every connection.
func TestLostClaimsNameTheKey(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	_, err := Claim(ctx, io.Discard, client.New(server.URL), Request{Environment: "e", Wait: time.Second, Key: "mine"})
	if err == nil || !strings.Contains(err.Error(), "--key mine") {
		t.Errorf("got %v, want --key mine in it", err)
	}
	_, err = Claim(ctx, io.Discard, client.New(server.URL), Request{Environment: "e", Wait: time.Second, Holder: new("ada")})
	if err == nil || !strings.Contains(err.Error(), "--holder") || strings.Contains(err.Error(), "--key") {
		t.Errorf("got %v, want --holder in it, not --key", err)
	}
	server.Close()
	_, err = Claim(t.Context(), io.Discard, client.New(server.URL), Request{Environment: "e", Wait: time.Second, Key: "mine"})
	if !errors.Is(err, command.ErrNoServer) || strings.Contains(err.Error(), "--key") {
		t.Errorf("got %v, want %v without --key", err, command.ErrNoServer)
	}
}

// TestInterruptedClaimsCancelTheirTicket: also if a query for the ticket is interrupted.
func TestInterruptedClaimsCancelTheirTicket(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var cancelled atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(body), "cancelTicket"):
			cancelled.Store(true)
			_, _ = io.WriteString(w, `{"data":{"cancelTicket":{"ticket":{"id":"t"}}}}`)
		case strings.Contains(string(body), "claimRunner"):
			_, _ = io.WriteString(w, `{"data":{"claimRunner":{"ticket":{"id":"t","state":"WAITING"}}}}`)
		default:
			cancel()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	if _, _, err := claimByTicket(ctx, client.New(server.URL), client.ClaimRunnerInput{}); !errors.Is(err, context.Canceled) || !cancelled.Load() {
		t.Errorf("%v; the ticket was cancelled: %t", err, cancelled.Load())
	}
}
