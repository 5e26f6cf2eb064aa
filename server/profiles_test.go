package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestProfiles(t *testing.T) {
	for _, test := range []struct {
		host, path string
		status     int
		body       string
	}{
		{"127.0.0.1:6060", "/debug/pprof/", http.StatusOK, "goroutine"},
		{"localhost:6060", "/debug/pprof/goroutine?debug=1", http.StatusOK, "goroutine profile: total"},
		{"[::1]:6060", "/debug/pprof/heap?debug=1", http.StatusOK, "heap profile"},
		{"127.0.0.1:6060", "/graphql", http.StatusNotFound, ""},
		{"evil.example.org:6060", "/debug/pprof/heap", http.StatusForbidden, "loopback"},
		{"192.0.2.1:6060", "/debug/pprof/", http.StatusForbidden, "loopback"},
		{"", "/debug/pprof/", http.StatusForbidden, "loopback"},
	} {
		request := httptest.NewRequest(http.MethodGet, test.path, http.NoBody)
		request.Host = test.host
		answer := httptest.NewRecorder()
		profiles().ServeHTTP(answer, request)
		if answer.Code != test.status || !strings.Contains(answer.Body.String(), test.body) {
			t.Errorf("%s %s: %d %.100q", test.host, test.path, answer.Code, answer.Body.String())
		}
	}
}

func TestProfilesEndWithTheServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serveProfiles(ctx, listener) }()
	response, err := http.Get("http://" + listener.Addr().String() + "/debug/pprof/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it still listens: got %v, want %v", err, net.ErrClosed)
	}
}
