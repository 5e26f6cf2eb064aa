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
	if err == nil || !strings.Contains(err.Error(), "the server redirects to "+other.URL) {
		t.Errorf("%v %v", response, err)
	}
	if response != nil {
		_ = response.Body.Close()
	}
}
