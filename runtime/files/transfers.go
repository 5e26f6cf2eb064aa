package files

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/paths"
)

// OpenFile opens a regular file of a claimed runner, from offset on, which is at most its size. The
// content has exactly File.Size minus offset bytes; if fewer arrive, Read returns an error. It is
// read from the runner as fast as the caller reads. Until it is closed, it counts as a use of the
// runner. ctx also limits reading.
func (a *Access) OpenFile(ctx context.Context, id runtime.RunnerID, path string, offset int64) (runtime.File, io.ReadCloser, error) {
	if err := ValidatePath("path", path); err != nil {
		return runtime.File{}, nil, err
	}
	if offset < 0 {
		return runtime.File{}, nil, runtime.Invalid("offset", "must not be negative")
	}
	conn, done, err := a.dial(ctx, id)
	if err != nil {
		return runtime.File{}, nil, err
	}
	info, content, err := agent.OpenFile(ctx, conn, path, offset)
	if err != nil {
		done()
		return runtime.File{}, nil, a.translate(id, err)
	}
	return at(id, path, info), &download{access: a, id: id, content: content, done: done}, nil
}

type download struct {
	access  *Access
	id      runtime.RunnerID
	content io.ReadCloser
	done    func() // nil once closed
}

// Read returns the agent's errors with the codes that callers get.
func (d *download) Read(p []byte) (int, error) {
	n, err := d.content.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = d.access.translate(d.id, err)
	}
	return n, err
}

// Close ends the transfer and the use of the runner. It may be called again.
func (d *download) Close() error {
	err := d.content.Close()
	if d.done != nil {
		d.done()
		d.done = nil
	}
	return err
}

// UploadFile writes one file of a claimed runner, of exactly size bytes or, for a size of -1, of
// all that content has. It reads content as fast as the runner writes. The file is put in place by
// rename. After an error, also of content, the old file is unchanged, unless the agent no longer
// answers (RUNNER_GONE or CLUSTER_UNAVAILABLE): then the result is unknown. A mode of
// 0 is 0644. Protected is as in an [Update]; missing parents are created. It returns STORAGE_FULL as soon as
// possible, and INVALID_INPUT at the latest when it has read more than the runner's workspace can
// ever hold.
func (a *Access) UploadFile(ctx context.Context, id runtime.RunnerID, path string, mode uint32, protected bool, size int64, content io.Reader) (runtime.File, error) {
	if err := validateTarget("path", path); err != nil {
		return runtime.File{}, err
	}
	if paths.IsDirectory(path) {
		return runtime.File{}, runtime.Invalid("path", "must not end in a slash, which only a directory may")
	}
	if size < -1 {
		return runtime.File{}, runtime.Invalid("file", "must not have a negative size")
	}
	if mode > 0o7777 {
		return runtime.File{}, runtime.Invalid("mode", "must be octal, 0 to 7777")
	}
	if r, ok := a.runners.Runner(id); ok {
		room := int64(r.Environment.Resources.WorkspaceMiB) << 20
		if size > room {
			return runtime.File{}, tooLarge("file", r)
		}
		content = &boundedReader{content, room, tooLarge("file", r)}
	}
	update := agent.Update{Write: []agent.Write{{Path: path, Size: size, Mode: mode}}, Protected: protected}
	var updated agent.Updated
	err := a.use(ctx, id, func(conn net.Conn) (err error) {
		updated, err = agent.UpdateFiles(ctx, conn, update, func(int) io.Reader { return content })
		if err == nil && len(updated.Failed) > 0 {
			failed := updated.Failed[0]
			return &agent.Error{Code: failed.Code, Path: failed.Path, Message: failed.Message}
		}
		if err == nil && updated.File == nil {
			err = errors.New("it doesn't describe the file")
		}
		return err
	})
	if broken, ok := errors.AsType[*agent.ContentError](err); ok {
		return runtime.File{}, contentError(broken)
	}
	if err != nil {
		return runtime.File{}, err
	}
	return at(id, path, *updated.File), nil
}

// tooLarge is the error for a file that can never be in the runner's workspace, so that a retry
// doesn't help.
func tooLarge(field string, r runtime.Runner) error {
	return runtime.Invalid(field, "is larger than the runner's whole workspace of %d MiB, so nothing was changed: send a smaller file, or claim a runner of an environment with a larger workspace (resources.workspaceMiB)", r.Environment.Resources.WorkspaceMiB)
}

// A boundedReader fails with tooMuch once more than left bytes were read.
type boundedReader struct {
	io.Reader
	left    int64
	tooMuch error
}

// Read reads one byte more than allowed, so that it can tell content of exactly the limit from
// content that exceeds it.
func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p[:min(int64(len(p)), r.left+1)])
	if r.left -= int64(n); r.left < 0 {
		return 0, r.tooMuch
	}
	return n, err
}

// contentError returns why an upload's content could not be read. A runtime.Error is returned unchanged.
func contentError(broken *agent.ContentError) error {
	if typed, ok := errors.AsType[*runtime.Error](broken.Err); ok {
		return typed
	}
	return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "file", Message: "the upload ended early; nothing was changed", Err: broken}
}
