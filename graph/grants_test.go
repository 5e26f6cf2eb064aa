package graph

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/test/wait"
)

// follows follows the holder's execution, and returns the refusal; "" if it follows, until the test ends.
func (h holder) follows(shown string) string {
	h.t.Helper()
	response, err := http.DefaultClient.Do(h.request(shown, following, true))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode == http.StatusOK {
		return ""
	}
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		h.t.Errorf("%s %v", response.Status, err)
	}
	return string(text)
}

// TestGrantsHaveBoundsOfTheirOwn: a platform hands one to each of its users, and has one token. Its
// tenant's quota counts them all.
func TestGrantsHaveBoundsOfTheirOwn(t *testing.T) {
	h := newBoundedHolder(t, testToken, peers.Bounds{TokenSubscriptions: 1})
	_, token := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	one := h.granted(token, time.Hour)
	for what, shown := range map[string]string{"a grant": one, "another one": h.granted(token, time.Hour), "its token": token} {
		if refused := h.follows(shown); refused != "" {
			t.Errorf("%s: %s", what, refused)
		}
	}
	wait.For(t, "all follow", func() bool { return h.engine.Usage("physics").Subscriptions.Used == 3 })
	for what, shown := range map[string]string{"the same grant": one, "its token": token} {
		if refused := h.follows(shown); !strings.Contains(refused, "--token-subscriptions") {
			t.Errorf("%s again: %q", what, refused)
		}
	}
	if _, _, err := h.book.PutTenant(t.Context(), "physics", nil, &runtime.Quotas{Subscriptions: ptr(3)}); err != nil {
		t.Fatal(err)
	}
	if refused := h.follows(h.granted(token, time.Hour)); !strings.Contains(refused, `"quota":"subscriptions"`) {
		t.Errorf("beyond the tenant's quota: %q", refused)
	}
}
