package connection

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhichToken: what is named most directly is used.
func TestWhichToken(t *testing.T) {
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

// TestWithATokenNoServerIsStarted: a server of one's own would know nothing of the token's tenant.
func TestWithATokenNoServerIsStarted(t *testing.T) {
	there := httptest.NewServer(http.NotFoundHandler())
	defer there.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, c := range []struct {
		flags   Flags
		token   string
		address string
		alone   bool
		refused bool
	}{
		{address: gone.URL, alone: true},
		{address: there.URL},
		{address: there.URL, token: "x"},
		{address: gone.URL, flags: Flags{Server: gone.URL}, token: "x"},
		{address: gone.URL, token: "x", refused: true},
		{address: gone.URL, flags: Flags{TokenFile: "file"}, refused: true},
	} {
		t.Setenv("ROCKPOOL_TOKEN", c.token)
		alone, err := c.flags.alone(t.Context(), c.address)
		if alone != c.alone || errors.Is(err, ErrNoServer) != c.refused || !c.refused && err != nil {
			t.Errorf("%+v: %t, %v", c, alone, err)
		}
		if c.refused && !strings.Contains(err.Error(), "a command with a token starts none for itself: start the server, ") {
			t.Error(err)
		}
	}
}
