package execution

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/client"
)

// TestClaimTellsItsKey breaks every connection.
func TestClaimTellsItsKey(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	_, err := Claim(ctx, io.Discard, client.New(server.URL), Request{Environment: "e", Wait: time.Second, Key: "mine"})
	if err == nil || !strings.Contains(err.Error(), "--key mine") {
		t.Error(err)
	}
	_, err = Claim(ctx, io.Discard, client.New(server.URL), Request{Environment: "e", Wait: time.Second, Holder: new("ada")})
	if err == nil || !strings.Contains(err.Error(), "the same --holder") || strings.Contains(err.Error(), "--key") {
		t.Error(err)
	}
	server.Close()
	_, err = Claim(t.Context(), io.Discard, client.New(server.URL), Request{Environment: "e", Wait: time.Second, Key: "mine"})
	if !errors.Is(err, connection.ErrNoServer) || strings.Contains(err.Error(), "--key") {
		t.Error(err)
	}
}
