package host

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
)

// Explained returns err as a sandbox.Failure: with a message for clients, and whether retrying
// can help. Err has all of it, for the log.
func Explained(err error) error {
	f := &sandbox.Failure{Err: err, Message: "the sandbox couldn't be made; the server's log says why"}
	refusal, refused := errors.AsType[*launch.RefusalError](err)
	_, away := errors.AsType[*launch.UnreachableError](err)
	switch {
	case errors.Is(err, uids.ErrNone):
		f.Message = "no range of user ids is free for it: remove some runners"
	case errors.Is(err, context.DeadlineExceeded):
		f.Message = "the sandbox wasn't ready in time: the machine is too busy, or its CPU limit too low"
	case refused && strings.Contains(refusal.Line, "OOM-killed"): // libcontainer's text
		f.Message, f.Unrecoverable = "its memory limit is too low for its agent: raise it", true
	case away:
		f.Message = "the sandbox helper doesn't answer: check that it runs (rockpool helper)"
	case IsFull(err):
		f.Message = "the server's disk is full: free some space in its data directory"
	case refused:
		f.Unrecoverable = refusal.Final
		if line := showable(refusal.Line); line != "" {
			f.Message = "the sandbox couldn't be made: " + line
		}
	case errors.Is(err, fs.ErrNotExist):
		f.Message = "the program rockpool-sandbox, or the runner's directory, was deleted from the server's data directory: restart the server to restore it"
	case errors.Is(err, fs.ErrPermission):
		f.Message = "the program rockpool-sandbox can't be executed: move the server's data directory to a file system that isn't mounted noexec"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		f.Message = "the server has reached the machine's limit of processes, memory or files: raise its limits, or run fewer runners"
	}
	return f
}

// showable returns the first line of the helper's output; "" if it contains a path, since clients
// must not learn the machine's paths.
func showable(line string) string {
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	if strings.Contains(line, "/") || len(line) > 300 {
		return ""
	}
	return line
}

// IsFull reports whether an error is due to a full disk or an exceeded disk quota.
func IsFull(err error) bool {
	refusal, refused := errors.AsType[*launch.RefusalError](err)
	return tree.IsFull(err) || runtime.CodeOf(err) == runtime.CodeStorageFull || refused && strings.Contains(refusal.Line, unix.ENOSPC.Error())
}
