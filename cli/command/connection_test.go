package command

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTokenPrecedence: the flag takes precedence over ROCKPOOL_TOKEN, and that over ROCKPOOL_TOKEN_FILE.
func TestTokenPrecedence(t *testing.T) {
	flag, variable := filepath.Join(t.TempDir(), "flag"), filepath.Join(t.TempDir(), "variable")
	for file, text := range map[string]string{flag: "of the flag\n", variable: "of the variable's file\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ flag, token, file, want string }{
		{want: ""},
		{token: "itself", want: "itself"},
		{file: variable, want: "of the variable's file"},
		{token: "itself", file: variable, want: "itself"},
		{flag: flag, token: "itself", file: variable, want: "of the flag"},
	} {
		t.Setenv("ROCKPOOL_TOKEN", c.token)
		t.Setenv("ROCKPOOL_TOKEN_FILE", c.file)
		given := c.flag
		if given == "" {
			given = c.file // as the flag's variable gives it
		}
		if got, err := Token(given); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// TestNoTemporaryServerWithAToken: a temporary server wouldn't know the token's tenant.
func TestNoTemporaryServerWithAToken(t *testing.T) {
	there := httptest.NewServer(http.NotFoundHandler())
	defer there.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, c := range []struct {
		flags   Flags
		token   string
		address string
		private bool
		refused bool
	}{
		{address: gone.URL, private: true},
		{address: there.URL},
		{address: there.URL, token: "x"},
		{address: gone.URL, flags: Flags{Server: gone.URL}, token: "x"},
		{address: gone.URL, token: "x", refused: true},
		{address: gone.URL, flags: Flags{TokenFile: "file"}, refused: true},
	} {
		t.Setenv("ROCKPOOL_TOKEN", c.token)
		private, err := c.flags.needsPrivate(t.Context(), c.address)
		if private != c.private || errors.Is(err, ErrNoServer) != c.refused || !c.refused && err != nil {
			t.Errorf("%+v: %t, %v", c, private, err)
		}
		if c.refused && !strings.Contains(err.Error(), "with a token") {
			t.Errorf("got %v, want the token as the reason", err)
		}
	}
}

func TestExplainedErrorsBeginWithPlainWords(t *testing.T) {
	for want, cause := range map[string]error{
		"the host name nohost.example can't be resolved; check --server (or ROCKPOOL_SERVER): ": &net.DNSError{Err: "no such host", Name: "nohost.example", IsNotFound: true},
		"the server doesn't use TLS, but its URL begins with https://: ":                        http.ErrSchemeMismatch,
	} {
		given := &url.Error{Op: "Post", URL: "https://nohost.example:8080/graphql", Err: cause}
		if err := Explained(given); !errors.Is(err, given) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want the beginning %q", err, want)
		}
	}
	if other := errors.New("other"); Explained(other) != other {
		t.Error("another error is changed")
	}
}
