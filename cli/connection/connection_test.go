package connection

import (
	"os"
	"path/filepath"
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
