package routes

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
)

// A page with a grant has only the grant's rights, also in the browser of a signed-in user.
func TestConnectionInitPrecedesACookie(t *testing.T) {
	const secret = "the secret of a session"
	registry := identity.New(identity.Config{FirstToken: secret, Key: make([]byte, 32), Logger: zap.NewNop()})
	session, err := registry.Authenticate(secret)
	if err != nil {
		t.Fatal(err)
	}
	grant, _, err := registry.Sign(session.Principal, access.Grant{Execution: "x", Rights: []access.Right{access.Watch}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, header, payload string
		cookie                bool
		want                  access.Kind // "" means refused
	}{
		{"nothing", "", "", false, ""},
		{"a cookie", "", "", true, access.KindToken},
		{"a grant", "", "Bearer " + grant, false, access.KindGrant},
		{"a grant beside a cookie", "", "Bearer " + grant, true, access.KindGrant},
		{"a wrong token beside a cookie", "", "Bearer wrong", true, ""},
		{"something else beside a cookie", "", "Basic x", true, ""},
		{"a header beside a payload", "Bearer " + secret, "Bearer " + grant, true, access.KindToken},
		{"a wrong header", "Bearer wrong", "Bearer " + grant, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			admission := Admission{Registry: registry, Session: func(*http.Request) (string, bool) { return secret, test.cookie }}
			r := httptest.NewRequest("GET", "/graphql", nil)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			if test.header != "" {
				r.Header.Set("Authorization", test.header)
			}
			payload := map[string]any{}
			if test.payload != "" {
				payload["authorization"] = test.payload
			}
			admission.GuardOperations(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ctx, refusal := admission.Admit(r.Context(), payload)
				if (refusal != "") != (test.want == "") {
					t.Fatalf("refused: %q", refusal)
				}
				if test.want != "" && access.FromContext(ctx).Kind != test.want {
					t.Errorf("acts as %s, not %s", access.FromContext(ctx).Kind, test.want)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
		})
	}
}
