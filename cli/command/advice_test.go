package command

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

func refused(code runtime.Code) error {
	err := &client.Error{Message: "no"}
	err.Extensions.Code = code
	return fmt.Errorf("put it: %w", err)
}

func TestRules(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		says string // "" means nothing
	}{
		{"no token", refused(runtime.CodeUnauthenticated), "--token-file (or ROCKPOOL_TOKEN_FILE)"},
		{"no right", refused(runtime.CodeForbidden), "rockpool whoami"},
		{"an older server", &client.Error{Message: `Cannot query field "tenant" on type "Execution".`}, "use the same version for both"},
		{"another error", refused(runtime.CodeConflict), ""},
		{"another kind of error", errors.New("UNAUTHENTICATED"), ""},
		{"no TLS", fmt.Errorf("post: %w", http.ErrSchemeMismatch), "with http://"},
		{"no server", fmt.Errorf("post: %w", syscall.ECONNREFUSED), "rockpool serve"},
	} {
		if got := Advice(test.err); test.says == "" && got != "" || !strings.Contains(got, test.says) {
			t.Errorf("%s: %q, not %q", test.name, got, test.says)
		}
	}
}
