package logdir

import (
	"context"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
)

// Place returns the place of an execution's log, whether it exists or not.
func (d *Dir) Place(id runtime.ExecutionID) output.Place {
	if d.options.Store != nil && d.options.Store.Shared() {
		return rows{d.options.Store, id}
	}
	return output.File(d.Path(id))
}

// Path returns the path of an execution's log, unless that is in the database.
func (d *Dir) Path(id runtime.ExecutionID) string {
	// By the last two digits, which are random, so that no directory grows too large.
	return filepath.Join(d.path, string(id[max(0, len(id)-2):]), string(id))
}

// rows is a log in a shared database. Each write is stored completely or not at all.
type rows struct {
	store *store.Store
	id    runtime.ExecutionID
}

func (r rows) Size() (int64, error) {
	size, err := r.store.OutputSize(context.Background(), r.id)
	if err == nil && size == 0 {
		err = fs.ErrNotExist
	}
	return size, err
}

func (r rows) Open() (output.Bytes, error) { return r, nil }

func (r rows) Create() (output.Written, error) { return r, nil }

func (r rows) Reopen() (output.Written, error) {
	_, err := r.Size()
	return r, err
}

func (r rows) PutAside() error { return r.store.PutOutputAside(context.Background(), r.id) }

// ReadAt implements io.ReaderAt.
func (r rows) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.store.ReadOutput(context.Background(), r.id, at, p)
	switch {
	case err != nil || n == len(p):
	case n == 0 && at == 0: // removed by retention
		err = fs.ErrNotExist
	default:
		err = io.EOF
	}
	return n, err
}

// WriteAt implements io.WriterAt.
func (r rows) WriteAt(p []byte, at int64) (int, error) {
	if err := r.store.AppendOutput(context.Background(), r.id, at, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Truncate does nothing, because nothing can follow the last whole write.
func (rows) Truncate(int64) error { return nil }

// Close does nothing.
func (rows) Close() error { return nil }
