package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// OpenFile opens a regular file of a claimed runner. The content is exactly
// File.Size bytes, read from the runner as fast as the caller reads; a reader
// error says that fewer came. It counts as a use of the runner until it is
// closed. Ctx bounds the whole, reading too.
func (e *Engine) OpenFile(ctx context.Context, id runtime.RunnerID, path string) (runtime.File, io.ReadCloser, error) {
	if err := validatePath("path", path); err != nil {
		return runtime.File{}, nil, err
	}
	conn, done, err := e.dialAgent(ctx, id)
	if err != nil {
		return runtime.File{}, nil, err
	}
	info, content, err := agent.OpenFile(ctx, conn, path)
	if err != nil {
		done()
		return runtime.File{}, nil, e.agentError(id, err)
	}
	return file(info), &download{engine: e, id: id, content: content, done: done}, nil
}

// A download is what OpenFile returns.
type download struct {
	engine  *Engine
	id      runtime.RunnerID
	content io.ReadCloser
	done    func() // nil once closed
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.content.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = d.engine.agentError(d.id, err)
	}
	return n, err
}

func (d *download) Close() error {
	err := d.content.Close()
	if d.done != nil {
		d.done()
		d.done = nil
	}
	return err
}

// UploadFile writes one file of a claimed runner, of exactly size bytes, or for
// a size of -1 of all that content has, read as fast as the runner writes. The
// file is put in place by rename: after an error, of content too, the old one
// is as it was. It is root-owned 0744; missing parents are made.
func (e *Engine) UploadFile(ctx context.Context, id runtime.RunnerID, path string, size int64, content io.Reader) (runtime.File, error) {
	if err := validatePath("path", path); err != nil {
		return runtime.File{}, err
	}
	if size < -1 {
		return runtime.File{}, runtime.Invalid("file", "must not have a negative size")
	}
	update := agent.Update{Write: []agent.Write{{Path: path, Size: size}}}
	err := e.useAgent(ctx, id, func(conn net.Conn) error {
		updated, err := agent.UpdateFiles(ctx, conn, update, func(int) io.Reader { return content })
		if err == nil && len(updated.Failed) > 0 {
			failed := updated.Failed[0]
			return &agent.Error{Code: failed.Code, Path: failed.Path, Message: failed.Message}
		}
		return err
	})
	var broken *agent.ContentError
	var refused *runtime.Error
	switch {
	case errors.As(err, &broken):
		return runtime.File{}, contentError(broken)
	case errors.As(err, &refused) && refused.Field == "write.0":
		named := *refused
		named.Field = "path"
		return runtime.File{}, &named
	case err != nil:
		return runtime.File{}, err
	}
	uploaded, found, err := e.File(ctx, id, path)
	if err == nil && !found {
		err = runtime.Errorf(runtime.CodeFileError, "%s: was deleted at once", path)
	}
	return uploaded, err
}

// contentError tells why an upload's content could not be read; an error of
// ours stays what it is.
func contentError(broken *agent.ContentError) error {
	var typed *runtime.Error
	if errors.As(broken.Err, &typed) {
		return typed
	}
	return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "file", Message: "the upload ended early; nothing was changed", Err: broken}
}

// dialAgent opens a stream to the agent of a claimed runner, as a use of the
// claim until done is called.
func (e *Engine) dialAgent(ctx context.Context, id runtime.RunnerID) (conn net.Conn, done func(), err error) {
	p, err := e.poolOf(id)
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.Use(ctx, id); err != nil {
		return nil, nil, err
	}
	done = func() { p.Done(ctx, id) }
	if conn, err = e.cluster.Dial(ctx, id); err != nil {
		done()
		return nil, nil, e.agentError(id, fmt.Errorf("dial: %w", err))
	}
	return conn, done, nil
}
