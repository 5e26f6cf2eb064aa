package output

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// A Location is where one log is stored: a file, or rows of a database. Methods return [fs.ErrNotExist] if
// nothing was written.
type Location interface {
	Size() (int64, error)
	Open() (Bytes, error)     // for reading
	Create() (Written, error) // the log must not exist yet
	Reopen() (Written, error) // to continue an existing log
	PutAside() error          // keeps an unrecoverable log for inspection
}

// Unreadable is the suffix of files with logs that can't be recovered.
const Unreadable = ".unreadable"

// Bytes are the bytes of a log. At the end, ReadAt may return fewer bytes than requested, with or without
// io.EOF.
type Bytes interface {
	io.ReaderAt
	io.Closer
}

// Written are the bytes of a log, for its only writer.
type Written interface {
	Bytes
	io.WriterAt // at the current size only, which a failed write doesn't change
	Truncate(size int64) error
}

// File is the path of a log that is stored in a file.
type File string

// Size implements Location.
func (f File) Size() (int64, error) {
	info, err := os.Stat(string(f))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Open implements Location.
func (f File) Open() (Bytes, error) { return opened(os.Open(string(f))) }

// opened returns an open file, and no nil pointer in an interface.
func opened(file *os.File, err error) (Written, error) {
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Create implements Location.
func (f File) Create() (Written, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL
	file, err := os.OpenFile(string(f), flags, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
			return nil, err
		}
		file, err = os.OpenFile(string(f), flags, 0o600)
	}
	return opened(file, err)
}

// Reopen implements Location.
func (f File) Reopen() (Written, error) { return opened(os.OpenFile(string(f), os.O_RDWR, 0)) }

// PutAside implements Location.
func (f File) PutAside() error { return os.Rename(string(f), string(f)+Unreadable) }
