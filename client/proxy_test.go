package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAProxysAnswerIsNoStrangers: a proxy that doesn't reach the server says so in HTML.
func TestAProxysAnswerIsNoStrangers(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("<html>nginx</html>"))
	}))
	defer server.Close()
	for _, test := range []struct {
		status  int
		says    string
		passing bool
	}{
		{502, "502 Bad Gateway", true}, {503, "503 Service Unavailable", true}, {504, "504 Gateway Timeout", true},
		{200, "200 OK", false}, {404, "404 Not Found", false},
	} {
		status = test.status
		err := New(server.URL).Do(t.Context(), "{ version }", nil, nil)
		if err == nil || !strings.Contains(err.Error(), test.says) || Passing(err) != test.passing {
			t.Errorf("got %v, passing %v, want %q, passing %v", err, Passing(err), test.says, test.passing)
		}
	}
	if awaitSeconds >= 55 {
		t.Error("a call outlasts a proxy that waits 60 s")
	}
}
