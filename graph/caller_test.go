package graph

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

const (
	claimMutation = `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`
	runMutation   = `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`
)

// An answerFrom is an answer, and the client that got it.
type answerFrom struct{ client, text string }

// A sendFunc sends an operation n times concurrently, and puts each answer into the channel.
type sendFunc func(t *testing.T, b bed, operation string, n int, client string, answers chan<- answerFrom)

// overWebSocket sends operations over one WebSocket.
func overWebSocket(t *testing.T, b bed, operation string, n int, client string, answers chan<- answerFrom) {
	c, err := dial(t, b.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.send(message{Type: "connection_init"})
	c.receive("connection_ack")
	for i := range n {
		c.send(message{ID: fmt.Sprint(i), Type: "subscribe", Payload: json.RawMessage(operation)})
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			_, text, err := c.conn.Read(context.Background())
			if err != nil {
				return // the test has ended
			}
			if strings.Contains(string(text), `"type":"next"`) {
				answers <- answerFrom{client, string(text)}
			}
		}
	})
	t.Cleanup(func() { _ = c.conn.CloseNow(); reading.Wait() })
}

// overHTTP sends POST requests from an address, each over a separate connection.
func overHTTP(address string) sendFunc {
	return func(t *testing.T, b bed, operation string, n int, client string, answers chan<- answerFrom) {
		transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext}
		ctx, cancel := context.WithCancel(context.Background())
		var asked sync.WaitGroup
		for range n {
			asked.Go(func() {
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/graphql", strings.NewReader(operation))
				if err != nil {
					t.Error(err)
					return
				}
				request.Header.Set("Content-Type", "application/json")
				response, err := transport.RoundTrip(request)
				if err != nil {
					return // the test has ended
				}
				defer response.Body.Close()
				if text, err := io.ReadAll(response.Body); err == nil {
					answers <- answerFrom{client, string(text)}
				}
			})
		}
		t.Cleanup(func() { cancel(); asked.Wait(); transport.CloseIdleConnections() })
	}
}

// 120 claims of one caller wait when another caller claims. The other one is served second.
func TestWaitingClaimsOfOneCallerDelayNoOther(t *testing.T) {
	for _, test := range []struct {
		name       string
		many, one  sendFunc
		manyOf, of string
	}{
		{"WebSockets", overWebSocket, overWebSocket, claimMutation, claimMutation},
		{"WebSockets, run", overWebSocket, overWebSocket, claimMutation, runMutation},
		{"many by run", overWebSocket, overWebSocket, runMutation, claimMutation},
		{"HTTP", overHTTP("127.0.0.2"), overHTTP("127.0.0.3"), claimMutation, claimMutation},
		{"HTTP, run", overHTTP("127.0.0.2"), overHTTP("127.0.0.3"), runMutation, runMutation},
		{"a WebSocket of the same address", overHTTP("127.0.0.1"), overWebSocket, claimMutation, claimMutation},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := clustertest.NewFake()
			ready := make(chan struct{})
			fake.OnStart(func(runtime.RunnerID) error { <-ready; return nil })
			b := newBedWith(t, fake, fake, bedOptions{site: site{Settings: transport.Settings{MaxOperations: 200}}})
			t.Cleanup(func() { close(ready) })
			b.environment("a", 0)
			waiting := func(n int) {
				t.Helper()
				wait.For(t, fmt.Sprint(n, " claims wait"), func() bool {
					var out struct {
						Environment struct{ Pool struct{ Waiting int } }
					}
					b.send(`{ environment(id: "a") { pool { waiting } } }`, nil, &out)
					return out.Environment.Pool.Waiting == n
				})
			}
			operation := func(query string) string {
				input := in{"environmentId": "a", "waitFor": 3600}
				if query == runMutation {
					input["command"] = []string{"true"}
				}
				text, _ := json.Marshal(in{"query": query, "variables": in{"in": input}})
				return string(text)
			}
			answers := make(chan answerFrom, 121)
			test.many(t, b, operation(test.manyOf), 120, "many", answers)
			waiting(120)
			test.one(t, b, operation(test.of), 1, "one", answers)
			waiting(121)
			var served []string
			for range 2 {
				ready <- struct{}{}
				answer := wait.Receive(t, answers, "an answer")
				if served = append(served, answer.client); strings.Contains(answer.text, `"errors"`) {
					t.Error(answer.text)
				}
			}
			if fmt.Sprint(served) != "[many one]" {
				t.Errorf("served were %q", served)
			}
		})
	}
}

// A retry over another connection gets the same execution.
func TestRetriesOverAnotherConnectionGetTheSameExecution(t *testing.T) {
	b := newBed(t)
	b.environment("a", 1)
	text, _ := json.Marshal(in{"query": runMutation, "variables": in{"in": in{
		"environmentId": "a", "command": []string{"true"}, "waitFor": 3600, "idempotencyKey": "k",
	}}})
	answers := make(chan answerFrom, 2)
	overHTTP("127.0.0.2")(t, b, string(text), 1, "", answers)
	first := wait.Receive(t, answers, "the first answer")
	overHTTP("127.0.0.3")(t, b, string(text), 1, "", answers)
	if second := wait.Receive(t, answers, "the second answer"); second != first || strings.Contains(first.text, `"errors"`) {
		t.Errorf("%s, then %s", first.text, second.text)
	}
}

// A from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.address))
}

// A caller with a whole IPv6 network has one turn.
func TestCallersArePeersOrWebSockets(t *testing.T) {
	all := new(api)
	caller := func(address, upgrade string) string {
		r := httptest.NewRequest(http.MethodPost, "/graphql", nil)
		r.RemoteAddr = address
		r.Header.Set("Upgrade", upgrade)
		return callerOf(all.named(r.WithContext(clients.ConnContext(r.Context(), from{address: address}))))
	}
	for _, test := range []struct {
		a, b, upgrade string
		same          bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", "", true},
		{"192.0.2.1:1", "192.0.2.2:1", "", false},
		{"[2001:db8::1]:1", "[2001:db8::ffff:1:2:3]:1", "", true},
		{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", "", false},
		{"[::ffff:192.0.2.1]:1", "192.0.2.1:1", "", true},
		{"192.0.2.1:1", "192.0.2.1:1", "websocket", false},
	} {
		if a, b := caller(test.a, test.upgrade), caller(test.b, test.upgrade); (a == b) != test.same || a == "" {
			t.Errorf("%+v: %q and %q", test, a, b)
		}
	}
}
