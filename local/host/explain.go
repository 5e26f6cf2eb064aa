package host

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// Explained returns err with what clients are told of it, and whether trying
// again can help. The log has all of it.
func Explained(err error) error {
	f := &taskrunner.Failure{Err: err, Message: "the sandbox could not be made; the server's log says why"}
	var refusal *launch.RefusalError
	refused := errors.As(err, &refusal)
	var away *launch.UnreachableError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.Message = "the sandbox wasn't ready in time: the machine is too busy, or its CPU limit too low"
	case refused && strings.Contains(refusal.Line, "OOM-killed"): // libcontainer's words
		f.Message, f.Unrecoverable = "its memory limit is too low for its agent: raise it", true
	case errors.As(err, &away):
		f.Message = "the sandbox helper doesn't answer: see that it runs (rockpool helper)"
	case IsFull(err):
		f.Message = "the server's disk is full: free some room in its data directory"
	case refused:
		f.Unrecoverable = refusal.Final
		if line := showable(refusal.Line); line != "" {
			f.Message = "the sandbox could not be made: " + line
		}
	case errors.Is(err, fs.ErrNotExist):
		f.Message = "the program rockpool-sandbox, or the runner's directory, was deleted from the server's data directory: restart the server, which puts it there again"
	case errors.Is(err, fs.ErrPermission):
		f.Message = "the program rockpool-sandbox can't be executed: let the server's data directory be on a file system that isn't mounted noexec"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		f.Message = "the server got no more processes, memory or files from the machine: raise its limits, or have fewer runners"
	}
	return f
}

// noUserIDs is Explained where no range of user ids is free.
func noUserIDs(err error) error {
	return &taskrunner.Failure{Message: "the machine has no user ids left for it: remove some runners", Err: err}
}

// showable returns the first line of what the helper said, and nothing if it
// names a path: that of the machine is nobody's business.
func showable(line string) string {
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	if strings.Contains(line, "/") || len(line) > 300 {
		return ""
	}
	return line
}

// IsFull reports whether an error comes of a full disk.
func IsFull(err error) bool {
	var refusal *launch.RefusalError
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || runtime.CodeOf(err) == runtime.CodeStorageFull ||
		errors.As(err, &refusal) && strings.Contains(refusal.Line, unix.ENOSPC.Error())
}
