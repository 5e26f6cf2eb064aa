package bed

import (
	"bytes"
	"strings"
	"testing"
)

// Command runs a command of the CLI against the server, in this process.
func (b Bed) Command(t testing.TB, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = RunCLI(append(args, "--server", b.Address), strings.NewReader(stdin), &out, &errs)
	return out.String(), errs.String(), code
}

// Works runs a command that must succeed, and returns its output.
func (b Bed) Works(t testing.TB, args ...string) string {
	t.Helper()
	out, errs, code := b.Command(t, "", args...)
	if code != 0 {
		t.Fatalf("%q: exit %d, %s", args, code, errs)
	}
	return out
}
