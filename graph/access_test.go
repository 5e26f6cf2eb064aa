package graph

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	rockpool "github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/clustertest"
)

const testToken = "correct horse battery"

func newGuarded(t *testing.T) bed {
	t.Helper()
	fake := clustertest.NewFake()
	return newBedWith(t, fake, fake, bedOptions{Token: testToken, site: site{Agents: http.NotFoundHandler(), Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "figures")
	})}})
}

func TestEveryTransportNeedsTheToken(t *testing.T) {
	b := newGuarded(t)
	requests := map[string]func() *http.Request{
		"metrics": func() *http.Request {
			r, _ := http.NewRequest("GET", b.url+"/metrics", nil)
			return r
		},
		"metrics that pretend to be a WebSocket": func() *http.Request {
			r, _ := http.NewRequest("GET", b.url+"/metrics", nil)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			return r
		},
		"POST": func() *http.Request {
			r, _ := http.NewRequest("POST", b.url+"/graphql", strings.NewReader(`{"query":"{ version }"}`))
			r.Header.Set("Content-Type", "application/json")
			return r
		},
		"GET": func() *http.Request {
			r, _ := http.NewRequest("GET", b.url+"/graphql?query=%7Bversion%7D", nil)
			return r
		},
		"SSE": func() *http.Request {
			r, _ := http.NewRequest("POST", b.url+"/graphql", strings.NewReader(`{"query":"{ version }"}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "text/event-stream")
			return r
		},
		"multipart": func() *http.Request {
			const boundary = "b"
			form := "--b\r\nContent-Disposition: form-data; name=operations\r\n\r\n" + `{"query":"{ version }"}` +
				"\r\n--b\r\nContent-Disposition: form-data; name=map\r\n\r\n{}\r\n--b--\r\n"
			r, _ := http.NewRequest("POST", b.url+"/graphql", strings.NewReader(form))
			r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
			r.Header.Set("GraphQL-Require-Preflight", "1")
			return r
		},
	}
	for name, request := range requests {
		for _, test := range []struct {
			header string
			status int
		}{
			{"Bearer " + testToken, 200}, {"bearer  " + testToken, 200},
			{"", 401}, {"Bearer", 401}, {"Bearer wrong", 401}, {"Bearer " + testToken + "x", 401}, {"Basic " + testToken, 401}, {testToken, 401},
		} {
			r := request()
			if test.header != "" {
				r.Header.Set("Authorization", test.header)
			}
			response, err := http.DefaultClient.Do(r.WithContext(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != test.status {
				t.Errorf("%s with %q: %s %s", name, test.header, response.Status, text)
			}
			if test.status == 401 && (!strings.Contains(string(text), `"UNAUTHENTICATED"`) || strings.Contains(string(text), testToken) || response.Header.Get("WWW-Authenticate") == "") {
				t.Errorf("%s with %q: %s %v", name, test.header, text, response.Header)
			}
		}
	}
	// These need no token.
	for path, status := range map[string]int{"/": 200, "/agent/x": 404, "/files/x": 403, "/outputs/x": 403} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", b.url+path, nil)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

func TestWebSocketAcceptsTheTokenInHeaderOrInit(t *testing.T) {
	b := newGuarded(t)
	with := func(header string) http.Header {
		if header == "" {
			return nil
		}
		return http.Header{"Authorization": {header}}
	}
	for _, test := range []struct {
		header, payload string
		admitted        bool
	}{
		{"Bearer " + testToken, ``, true},
		{"", `{"Authorization":"Bearer ` + testToken + `"}`, true},
		{"", `{"authorization":"Bearer ` + testToken + `"}`, true},
		{"", ``, false},
		{"", `{}`, false},
		{"", `{"authorization":"Bearer wrong"}`, false},
		{"", `{"authorization":["Bearer ` + testToken + `"]}`, false},
		{"Bearer wrong", `{"authorization":"Bearer ` + testToken + `"}`, false},
	} {
		c, err := dial(t, b.url, with(test.header))
		if err != nil {
			t.Fatal(err)
		}
		c.send(message{Type: "connection_init", Payload: json.RawMessage(test.payload)})
		_, text, err := c.conn.Read(t.Context())
		switch {
		case test.admitted && (err != nil || !strings.Contains(string(text), "connection_ack")):
			t.Errorf("%+v: %s, %v", test, text, err)
		case !test.admitted && websocket.CloseStatus(err) != 4403:
			t.Errorf("%+v: %s, %v", test, text, err)
		}
	}
}

func TestClientSendsItsToken(t *testing.T) {
	b := newGuarded(t)
	for token, want := range map[string]bool{testToken: true, "wrong": false, "": false} {
		c := rockpool.New(b.url).WithToken(token)
		err := c.Do(t.Context(), `{ version }`, nil, nil)
		if (err == nil) != want {
			t.Errorf("%q: %v", token, err)
		}
		err = c.Subscribe(t.Context(), rockpool.Request{Query: `subscription { poolEvents { __typename } }`}, func(json.RawMessage) error { return io.EOF })
		if websocket.CloseStatus(err) == 4403 == want {
			t.Errorf("%q: subscribe: %v", token, err)
		}
		c.CloseIdle()
	}
}
