package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/launch"
)

// Messages for clients say what to do, and name no paths of the machine.
func TestExplainedHidesPathsAndSaysWhatToDo(t *testing.T) {
	refusal := func(line string, final bool) error {
		return fmt.Errorf("create sandbox a: %w", &launch.RefusalError{Line: line, Final: final})
	}
	for _, test := range []struct {
		err     error
		says    string
		forGood bool
	}{
		{context.DeadlineExceeded, "too busy", false},
		{refusal("run: container init was OOM-killed", false), "raise it", true},
		{refusal("the spec has hooks", true), "the spec has hooks", true},
		{refusal("run: no room\nsecond line", false), "run: no room", false},
		{refusal("mkdir /srv/secret: no room", false), "log says why", false},
		{&fs.PathError{Op: "fork/exec", Path: "/srv/secret", Err: unix.ENOENT}, "restart the server", false},
		{&fs.PathError{Op: "fork/exec", Path: "/srv/secret", Err: unix.EACCES}, "noexec", false},
		{&fs.PathError{Op: "mkdir", Path: "/srv/secret", Err: unix.ENOSPC}, "free some space", false},
		{refusal("mkdir /srv/secret: no space left on device", false), "free some space", false},
		{&fs.PathError{Op: "fork/exec", Path: "/srv/secret", Err: unix.EAGAIN}, "raise its limits", false},
		{errors.New("an unexpected error"), "log says why", false},
	} {
		var f *sandbox.Failure
		if !errors.As(Explained(test.err), &f) || !strings.Contains(f.Message, test.says) || f.Unrecoverable != test.forGood ||
			strings.Contains(f.Message, "secret") || strings.Contains(f.Message, "second") || !errors.Is(f, test.err) {
			t.Errorf("%v: %+v", test.err, f)
		}
	}
}
