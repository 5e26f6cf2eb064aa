package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// Bounds of file calls.
const (
	maxListed = 100_000 // entries of one list
	maxPaths  = 10_000  // of one update
)

// UpdateFiles deletes paths, then writes files, in a claimed runner. All paths
// are checked first: after an error nothing was touched. What could not be
// written although nothing spoke against it (a full workspace) is in Failed,
// and is as it was.
func (e *Engine) UpdateFiles(ctx context.Context, id runtime.RunnerID, remove []string, write []runtime.FileWrite) (FilesUpdated, error) {
	if err := validateUpdate("", remove, write); err != nil {
		return FilesUpdated{}, err
	}
	update := agent.Update{Delete: remove}
	for _, w := range write {
		update.Write = append(update.Write, agent.Write{Path: w.Path, Size: int64(len(w.Data)), Directory: w.Directory, Mode: w.Mode})
	}
	var updated agent.Updated
	err := e.useAgent(ctx, id, func(conn net.Conn) (err error) {
		updated, err = agent.UpdateFiles(ctx, conn, update, func(i int) io.Reader { return bytes.NewReader(write[i].Data) })
		return err
	})
	if err != nil {
		return FilesUpdated{}, err
	}
	result := FilesUpdated{Written: updated.Written, Deleted: updated.Deleted}
	for _, f := range updated.Failed {
		result.Failed = append(result.Failed, runtime.FileFailure{Path: f.Path, Message: f.Message})
	}
	return result, nil
}

func validateUpdate(prefix string, remove []string, write []runtime.FileWrite) error {
	if len(remove)+len(write) > maxPaths {
		return runtime.Invalid(prefix+"write", "must be at most %d paths in all", maxPaths)
	}
	for i, path := range remove {
		if err := validatePath(fmt.Sprintf("%sdelete.%d", prefix, i), path); err != nil {
			return err
		}
	}
	for i, w := range write {
		field := fmt.Sprintf("%swrite.%d", prefix, i)
		if prefix != "" {
			field = fmt.Sprintf("%s%d", prefix, i)
		}
		if err := validatePath(field+".path", w.Path); err != nil {
			return err
		}
		if w.Mode > 0o7777 {
			return runtime.Invalid(field+".mode", "must be octal, 0 to 7777")
		}
		if w.Directory && len(w.Data) > 0 {
			return runtime.Invalid(field+".directory", "a directory has no content: leave text and base64 out")
		}
	}
	return nil
}

func validatePath(field, path string) error {
	if path == "" || len(path) > maxPathBytes || strings.ContainsRune(path, 0) {
		return runtime.Invalid(field, "must be 1 to %d bytes without NUL", maxPathBytes)
	}
	return nil
}

// Files returns the entries of a directory, sorted by path; "" is the
// workspace. With recursive also those below.
func (e *Engine) Files(ctx context.Context, id runtime.RunnerID, path string, recursive bool) ([]runtime.File, error) {
	if path != "" {
		if err := validatePath("path", path); err != nil {
			return nil, err
		}
	}
	var files []runtime.File
	err := e.useAgent(ctx, id, func(conn net.Conn) error {
		return agent.ListFiles(ctx, conn, agent.ListDir{Path: path, Recursive: recursive}, func(info agent.FileInfo) error {
			if len(files) == maxListed {
				return runtime.Errorf(runtime.CodeLimitExceeded, "more than %d entries: list a directory below", maxListed)
			}
			files = append(files, file(info))
			return nil
		})
	})
	return files, err
}

// File returns one entry, and whether it is there.
func (e *Engine) File(ctx context.Context, id runtime.RunnerID, path string) (entry runtime.File, found bool, err error) {
	if err := validatePath("path", path); err != nil {
		return runtime.File{}, false, err
	}
	err = e.useAgent(ctx, id, func(conn net.Conn) error {
		info, err := agent.StatFile(ctx, conn, path)
		entry = file(info)
		return err
	})
	var refused *agent.Error
	if errors.As(err, &refused) && refused.Code == agent.ErrNotFound {
		return runtime.File{}, false, nil
	}
	return entry, err == nil, err
}

// useAgent calls f with a new stream to the agent of a claimed runner, as a use
// of the claim.
func (e *Engine) useAgent(ctx context.Context, id runtime.RunnerID, f func(net.Conn) error) error {
	conn, done, err := e.dialAgent(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return e.agentError(id, f(conn))
}

// agentError turns what an agent, or the way to it, failed with into an error
// of ours.
func (e *Engine) agentError(id runtime.RunnerID, err error) error {
	var typed *runtime.Error
	var broken *agent.ContentError
	var refused *agent.Error
	switch {
	case err == nil || errors.As(err, &typed) || errors.As(err, &broken):
		return err
	case errors.As(err, &refused):
		return fileError(refused)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if r, ok := e.Runner(id); !ok || r.State != runtime.RunnerClaimed {
		return goneError(id)
	}
	return runtime.Wrap(runtime.CodeClusterUnavailable, err, "the agent of runner %s doesn't answer", id)
}

func fileError(err *agent.Error) error {
	switch err.Code {
	case agent.ErrInvalid:
		field := "path"
		if err.Field != "" {
			field = fmt.Sprintf("%s.%d", err.Field, err.Index)
		}
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: field, Message: err.Message, Err: err}
	case agent.ErrNotFound, agent.ErrWrongType, agent.ErrDenied:
		return runtime.Wrap(runtime.CodeFileError, err, "%s", err.Error())
	case agent.ErrFull:
		return runtime.Wrap(runtime.CodeStorageFull, err, "%s", err.Error())
	case agent.ErrTooMany:
		return runtime.Wrap(runtime.CodeLimitExceeded, err, "%s", err.Error())
	default:
		return fmt.Errorf("the agent: %w", err)
	}
}

func file(info agent.FileInfo) runtime.File {
	types := map[string]runtime.FileType{"file": runtime.FileRegular, "directory": runtime.FileDirectory, "link": runtime.FileLink}
	kind, ok := types[info.Type]
	if !ok {
		kind = runtime.FileOther
	}
	return runtime.File{
		Path: string(info.Path), Type: kind, Size: info.Size, ModifiedAt: info.ModifiedAt,
		Mode: info.Mode, Owner: info.Owner, Group: info.Group, LinkTarget: string(info.LinkTarget),
	}
}
