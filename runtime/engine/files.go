package engine

import (
	"context"
	"io"
	"net"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/files"
)

// Files serves the files of claimed runners to callers. A runner that a caller doesn't see doesn't
// exist for it: the error is RUNNER_GONE. See [files.Access] for the other guarantees.
type Files struct{ e *Engine }

// List lists files; see [files.Access.Files].
func (s *Files) List(ctx context.Context, id runtime.RunnerID, dir string, recursive bool) ([]runtime.File, error) {
	return audit.Do(ctx, s.e.auth, "files", s.e.runner(id), func() ([]runtime.File, error) { return s.e.fileAccess.Files(ctx, id, dir, recursive) })
}

// Get returns a file, and whether it exists; see [files.Access.File].
func (s *Files) Get(ctx context.Context, id runtime.RunnerID, path string, follow bool) (runtime.File, bool, error) {
	if err := s.e.auth.See(ctx, "file", s.e.runner(id)); err != nil {
		return runtime.File{}, false, err
	}
	return s.e.fileAccess.File(ctx, id, path, follow)
}

// Search searches files; see [files.Access.SearchFiles].
func (s *Files) Search(ctx context.Context, id runtime.RunnerID, search files.Search) (runtime.FileSearch, error) {
	return audit.Do(ctx, s.e.auth, "searchFiles", s.e.runner(id), func() (runtime.FileSearch, error) { return s.e.fileAccess.SearchFiles(ctx, id, search) })
}

// Watch reports changes of files; see [files.Access.WatchFiles].
func (s *Files) Watch(ctx context.Context, id runtime.RunnerID, dir string, recursive bool) (*files.Watch, error) {
	return audit.Do(ctx, s.e.auth, "fileChanges", s.e.runner(id), func() (*files.Watch, error) { return s.e.fileAccess.WatchFiles(ctx, id, dir, recursive) })
}

// OpenFile opens a file; see [files.Access.OpenFile].
func (s *Files) OpenFile(ctx context.Context, id runtime.RunnerID, path string, offset int64) (runtime.File, io.ReadCloser, error) {
	if err := s.e.auth.See(ctx, "file", s.e.runner(id)); err != nil {
		return runtime.File{}, nil, err
	}
	return s.e.fileAccess.OpenFile(ctx, id, path, offset)
}

// Update writes, empties and deletes files; see [files.Access.UpdateFiles].
func (s *Files) Update(ctx context.Context, id runtime.RunnerID, field string, of files.Update) (files.Updated, error) {
	return audit.Do(ctx, s.e.auth, "updateFiles", s.e.runner(id), func() (files.Updated, error) { return s.e.fileAccess.UpdateFiles(ctx, id, field, of) })
}

// Move moves a file; see [files.Access.MoveFile].
func (s *Files) Move(ctx context.Context, id runtime.RunnerID, from, to string, protected bool) (runtime.File, error) {
	return audit.Do(ctx, s.e.auth, "moveFile", s.e.runner(id), func() (runtime.File, error) { return s.e.fileAccess.MoveFile(ctx, id, from, to, protected) })
}

// Upload writes a file; see [files.Access.UploadFile].
func (s *Files) Upload(ctx context.Context, id runtime.RunnerID, path string, mode uint32, protected bool, size int64, content io.Reader) (runtime.File, error) {
	return audit.Do(ctx, s.e.auth, "uploadFile", s.e.runner(id), func() (runtime.File, error) {
		return s.e.fileAccess.UploadFile(ctx, id, path, mode, protected, size, content)
	})
}

// reach gives [files.Access] its way to runners.
type reach struct{ e *Engine }

// Runner returns a runner that isn't gone, and whether there is one.
func (r reach) Runner(id runtime.RunnerID) (runtime.Runner, bool) { return r.e.runnerIndex.get(id) }

// Use marks a runner's claim as used until done is called.
func (r reach) Use(ctx context.Context, id runtime.RunnerID) (done func(), err error) {
	p, err := r.e.poolOf(id)
	if err != nil {
		return nil, err
	}
	if _, err := p.Use(ctx, id); err != nil {
		return nil, err
	}
	return func() { p.Done(ctx, id) }, nil
}

// Dial opens a stream to a runner's agent.
func (r reach) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	return r.e.cluster.Dial(ctx, id)
}
