package gate

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/rockpool/rockpool/graph/presenter"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
)

// An Admission lets in callers with the token. A nil Admission lets everybody in.
type Admission struct{ sum [sha256.Size]byte }

// NewAdmission returns one for a token; nil where that is "".
func NewAdmission(token string) *Admission {
	if token == "" {
		return nil
	}
	return &Admission{sha256.Sum256([]byte(token))}
}

// Admit returns UNAUTHENTICATED unless the header Authorization has the token, or
// for a WebSocket the payload of connection_init has it under that name: a
// browser can't send a WebSocket with a header of its own.
func (a *Admission) Admit(header http.Header, payload map[string]any) *runtime.Error {
	if a == nil {
		return nil
	}
	if given := header.Get("Authorization"); given != "" {
		return a.check(given)
	}
	for name, value := range payload {
		if given, isText := value.(string); isText && strings.EqualFold(name, "authorization") {
			return a.check(given)
		}
	}
	return runtime.Errorf(runtime.CodeUnauthenticated,
		`this server needs a token: send the header "Authorization: Bearer TOKEN", or the same in the payload of connection_init`)
}

// check takes the same time for every token that is wrong.
func (a *Admission) check(given string) *runtime.Error {
	scheme, token, _ := strings.Cut(given, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	if subtle.ConstantTimeCompare(sum[:], a.sum[:]) == 1 && strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	return runtime.Errorf(runtime.CodeUnauthenticated, "the token isn't this server's")
}

// Guard serves next to those who are admitted.
func (a *Admission) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.Admit(r.Header, nil); err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="rockpool"`)
			presenter.RefuseTyped(w, http.StatusUnauthorized, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// GuardOperations guards the API. It lets a WebSocket in, which says who it is once it is open.
func (a *Admission) GuardOperations(next http.Handler) http.Handler {
	guarded := a.Guard(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (transport.WebSocket{}).Supports(r) {
			next.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}
