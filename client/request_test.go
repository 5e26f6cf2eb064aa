package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRequestFollowsNoRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the redirect was followed with the authorization %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	response, err := New(server.URL).WithToken("secret").Request(t.Context(), http.MethodPost, "/mcp", http.Header{}, strings.NewReader("{}"))
	if err == nil || !strings.Contains(err.Error(), other.URL) {
		t.Errorf("got %v %v, want an error that names %s", response, err, other.URL)
	}
	if response != nil {
		_ = response.Body.Close()
	}
}
