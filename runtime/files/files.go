// Package files reads, writes and searches the files of claimed runners, and follows their changes,
// through the agents in the runners.
package files

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"unsafe"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/paths"
	"github.com/rockpool/rockpool/runtime/quota"
)

// Bounds of file calls.
const (
	maxListedBytes = 16 << 20 // of paths and entries in one list; twice that is charged, because a growing slice is copied
	maxPaths       = 10_000   // of one update
)

// Runners gives access to runners.
type Runners interface {
	// Runner returns a runner, and whether it exists.
	Runner(id runtime.RunnerID) (runtime.Runner, bool)
	// Use marks a runner's claim as used until done is called.
	Use(ctx context.Context, id runtime.RunnerID) (done func(), err error)
	// Dial opens a stream to a runner's agent.
	Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error)
}

// Access gives access to the files of runners. Its methods are safe for concurrent use, and return
// errors of type runtime.Error.
type Access struct {
	runners  Runners
	memory   *quota.Memory
	lists    *callLimiter
	searches *callLimiter
}

// New returns access to the files of runners. memory is for lists; nil means without a limit.
func New(runners Runners, memory *quota.Memory) *Access {
	return &Access{runners: runners, memory: memory, lists: newCallLimiter("lists", maxLists), searches: newCallLimiter("searches", maxSearches)}
}

// Updated is the result of UpdateFiles.
type Updated struct {
	Written []string
	Deleted []string
	Failed  []runtime.FileFailure
}

// An Update is a change of files. The user of programs makes it and owns what is written. If it is
// Protected, root does, so that programs can't change that.
type Update struct {
	Empty, Delete []string
	Write         []runtime.FileWrite
	Protected     bool
}

// UpdateFiles empties directories, deletes paths and then writes files, in a claimed runner. It
// checks all paths first: after an error nothing was changed. A valid file that could not be
// written, for example because the workspace is full, is in Failed and unchanged. field is the name
// of Write in errors.
func (a *Access) UpdateFiles(ctx context.Context, id runtime.RunnerID, field string, of Update) (Updated, error) {
	if err := ValidateUpdate(field, of); err != nil {
		return Updated{}, err
	}
	write := of.Write
	update := agent.Update{Empty: of.Empty, Delete: of.Delete, Protected: of.Protected}
	r, known := a.runners.Runner(id)
	for i, w := range write {
		if known && int64(len(w.Data)) > int64(r.Environment.Resources.WorkspaceMiB)<<20 {
			return Updated{}, tooLarge(fmt.Sprintf("%s.%d", field, i), r)
		}
		update.Write = append(update.Write, agent.Write{Path: w.Path, Size: int64(len(w.Data)), Directory: w.Directory, Mode: w.Mode})
	}
	var updated agent.Updated
	err := a.use(ctx, id, func(conn net.Conn) (err error) {
		updated, err = agent.UpdateFiles(ctx, conn, update, func(i int) io.Reader { return bytes.NewReader(write[i].Data) })
		if refused, ok := errors.AsType[*agent.Error](err); ok && refused.Code == agent.ErrInvalid && refused.Field == "write" {
			return &runtime.Error{Code: runtime.CodeInvalidInput, Field: fmt.Sprintf("%s.%d.path", field, refused.Index), Message: refused.Message}
		}
		return err
	})
	if err != nil {
		return Updated{}, err
	}
	result := Updated{Written: updated.Written, Deleted: updated.Deleted}
	for _, f := range updated.Failed {
		result.Failed = append(result.Failed, runtime.FileFailure{Path: f.Path, Message: f.Message})
	}
	return result, nil
}

// MoveFile renames an entry of a claimed runner atomically, and returns it at its new path. It
// doesn't replace an existing entry: that is FILE_ERROR. Protected is as in an [Update].
func (a *Access) MoveFile(ctx context.Context, id runtime.RunnerID, from, to string, protected bool) (moved runtime.File, err error) {
	if err := cmp.Or(validateTarget("from", from), validateTarget("to", to)); err != nil {
		return runtime.File{}, err
	}
	err = a.use(ctx, id, func(conn net.Conn) error {
		info, err := agent.MoveFile(ctx, conn, agent.Move{From: from, To: to, Protected: protected})
		moved = at(id, to, info)
		return err
	})
	return moved, err
}

// ValidateUpdate returns INVALID_INPUT for everything that UpdateFiles can check without the runner.
func ValidateUpdate(field string, of Update) error {
	if len(of.Empty)+len(of.Delete)+len(of.Write) > maxPaths {
		return runtime.Invalid(field, "must be at most %d paths in total", maxPaths)
	}
	for i, p := range of.Empty {
		if err := ValidatePath(fmt.Sprintf("empty.%d", i), p); err != nil {
			return err
		}
	}
	for i, p := range of.Delete {
		if err := validateTarget(fmt.Sprintf("delete.%d", i), p); err != nil {
			return err
		}
	}
	for i, w := range of.Write {
		at := fmt.Sprintf("%s.%d", field, i)
		if err := validateTarget(at+".path", w.Path); err != nil {
			return err
		}
		if !w.Directory && paths.IsDirectory(w.Path) {
			return runtime.Invalid(at+".path", "must not end in a slash, which only a directory may: leave it out, or set directory")
		}
		if w.Mode > 0o7777 {
			return runtime.Invalid(at+".mode", "must be octal, 0 to 7777")
		}
		if w.Directory && len(w.Data) > 0 {
			return runtime.Invalid(at+".directory", "must not be set together with content: leave out text and base64")
		}
	}
	return nil
}

func validateTarget(field, p string) error {
	if err := ValidatePath(field, p); err != nil {
		return err
	}
	if clean := paths.Resolve(runtime.Workspace, p); clean == "/" || clean == runtime.Workspace {
		return runtime.Invalid(field, "must not be the workspace itself: updateFiles(empty:) deletes everything in it")
	}
	return nil
}

// ValidatePath returns INVALID_INPUT for a text that can't be the path of a file in a runner.
func ValidatePath(field, p string) error {
	if _, err := paths.Parse(p); err != nil {
		return runtime.Invalid(field, "%s", err)
	}
	return nil
}

// Files returns the entries of a directory, ordered by path; "" is the workspace. With recursive it
// includes all entries below. It returns LIMIT_EXCEEDED for more than 16 MiB of entries, and if too
// many other lists run, and QUOTA_EXCEEDED if the tenant has its share of memory. The list has its
// memory until ctx ends, since the caller has it until then.
func (a *Access) Files(ctx context.Context, id runtime.RunnerID, dir string, recursive bool) ([]runtime.File, error) {
	if dir != "" {
		if err := ValidatePath("path", dir); err != nil {
			return nil, err
		}
	}
	var files []runtime.File
	held := 0
	r, _ := a.runners.Runner(id)
	kept := a.memory.Adopt(r.Tenant(), 0)
	context.AfterFunc(ctx, kept.Free)
	err := a.useWithin(ctx, id, a.lists, func(ctx context.Context, conn net.Conn) error {
		return agent.ListFiles(ctx, conn, agent.ListDir{Path: dir, Recursive: recursive}, func(info agent.FileInfo) error {
			entry := below(id, dir, info)
			bytes := int(unsafe.Sizeof(entry)) + len(entry.Path) + len(entry.At) + len(entry.LinkTarget)
			if held += bytes; held > maxListedBytes {
				return runtime.Errorf(runtime.CodeLimitExceeded, "the list exceeds %d MiB: list a subdirectory instead", maxListedBytes>>20)
			}
			files = append(files, entry)
			return kept.Grow(int64(bytes), "a list of files")
		})
	})
	if err == nil {
		err = context.Cause(ctx) // after it kept was freed, and may have grown again
	}
	if err != nil {
		kept.Free()
		return nil, err
	}
	slices.SortFunc(files, func(a, b runtime.File) int { return cmp.Compare(a.Path, b.Path) })
	return files, nil
}

// File returns an entry, and whether it exists. With follow it returns the target of a link.
func (a *Access) File(ctx context.Context, id runtime.RunnerID, path string, follow bool) (entry runtime.File, found bool, err error) {
	if err := ValidatePath("path", path); err != nil {
		return runtime.File{}, false, err
	}
	err = a.use(ctx, id, func(conn net.Conn) error {
		info, err := agent.StatFile(ctx, conn, path, follow)
		entry = at(id, path, info)
		return err
	})
	if refused, ok := errors.AsType[*agent.Error](err); ok && refused.Code == agent.ErrNotFound {
		return runtime.File{}, false, nil
	}
	return entry, err == nil, err
}

// use calls f with a new stream to the agent of a claimed runner. It counts as a use of the claim.
func (a *Access) use(ctx context.Context, id runtime.RunnerID, f func(net.Conn) error) error {
	conn, done, err := a.dial(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return a.translate(id, f(conn))
}

func (a *Access) useWithin(ctx context.Context, id runtime.RunnerID, of *callLimiter, f func(context.Context, net.Conn) error) error {
	r, _ := a.runners.Runner(id)
	return of.within(ctx, id, r.Tenant(), func(ctx context.Context) error {
		return a.use(ctx, id, func(conn net.Conn) error { return f(ctx, conn) })
	})
}

// dial opens a stream to the agent of a claimed runner. It counts as a use of the claim until done
// is called.
func (a *Access) dial(ctx context.Context, id runtime.RunnerID) (conn net.Conn, done func(), err error) {
	if done, err = a.runners.Use(ctx, id); err != nil {
		return nil, nil, err
	}
	if conn, err = a.runners.Dial(ctx, id); err != nil {
		done()
		return nil, nil, a.translate(id, fmt.Errorf("dial: %w", err))
	}
	return conn, done, nil
}

// translate converts an error of an agent, or of the way to it, to a runtime.Error.
func (a *Access) translate(id runtime.RunnerID, err error) error {
	_, typed := errors.AsType[*runtime.Error](err)
	_, broken := errors.AsType[*agent.ContentError](err)
	if err == nil || typed || broken {
		return err
	}
	if refused, ok := errors.AsType[*agent.Error](err); ok {
		return fileError(refused)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if r, ok := a.runners.Runner(id); !ok || r.State != runtime.RunnerClaimed {
		return runtime.Gone(id)
	}
	return runtime.Wrap(runtime.CodeClusterUnavailable, err, "the agent of runner %s doesn't answer", id)
}

// fileError gives an agent's error the code and the field that callers get. An unknown code is an
// internal error.
func fileError(err *agent.Error) error {
	switch err.Code {
	case agent.ErrInvalid:
		field := "path"
		switch err.Field {
		case "empty", "delete":
			field = fmt.Sprintf("%s.%d", err.Field, err.Index)
		case "from", "to", "protected":
			field = err.Field
		}
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: field, Message: err.Message, Err: err}
	case agent.ErrNotFound, agent.ErrWrongType, agent.ErrDenied:
		return runtime.Wrap(runtime.CodeFileError, err, "%s", err.Error())
	case agent.ErrFull:
		return runtime.Wrap(runtime.CodeStorageFull, err, "%s", err.Error())
	case agent.ErrIncompatible:
		return runtime.Wrap(runtime.CodeConflict, err, "this runner was started by another version of the server, and its agent has another protocol: claim a new one")
	case agent.ErrTooMany:
		return runtime.Wrap(runtime.CodeLimitExceeded, err, "%s", err.Error())
	default:
		return fmt.Errorf("the agent: %w", err)
	}
}

func at(id runtime.RunnerID, path string, info agent.FileInfo) runtime.File {
	entry := file(id, info)
	entry.Path, entry.At = path, path
	return entry
}

func file(id runtime.RunnerID, info agent.FileInfo) runtime.File {
	types := map[string]runtime.FileType{"file": runtime.FileRegular, "directory": runtime.FileDirectory, "link": runtime.FileLink}
	kind, ok := types[info.Type]
	if !ok {
		kind = runtime.FileOther
	}
	return runtime.File{
		Runner: id, Path: paths.Text(string(info.Path)), At: paths.Text(string(info.Path)), Type: kind, Size: info.Size, ModifiedAt: info.ModifiedAt,
		Mode: info.Mode, Owner: info.Owner, Group: info.Group, LinkTarget: paths.Text(string(info.LinkTarget)),
	}
}
