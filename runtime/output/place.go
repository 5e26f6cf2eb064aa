package output

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// A Place is where one log is or is to be: a file, or rows of a database. Its methods return
// [fs.ErrNotExist] where nothing was written.
type Place interface {
	Size() (int64, error)
	Open() (Bytes, error)     // for reading
	Create() (Written, error) // there is none yet
	Reopen() (Written, error) // there is one, which goes on
	PutAside() error          // what can't be recovered goes where a person can look at it
}

// Unreadable ends the names of files that were to be logs and can't be recovered.
const Unreadable = ".unreadable"

// Bytes are a log's. ReadAt may return less than was asked for, with io.EOF or without, where
// there is no more.
type Bytes interface {
	io.ReaderAt
	io.Closer
}

// Written are a log's bytes, for its only writer.
type Written interface {
	Bytes
	io.WriterAt // at the size, or again at the size before a write that failed
	Truncate(size int64) error
}

// File is the path of a log that is a file.
type File string

// Size implements Place.
func (f File) Size() (int64, error) {
	info, err := os.Stat(string(f))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Open implements Place.
func (f File) Open() (Bytes, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Create implements Place.
func (f File) Create() (Written, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL
	file, err := os.OpenFile(string(f), flags, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
			return nil, err
		}
		file, err = os.OpenFile(string(f), flags, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Reopen implements Place.
func (f File) Reopen() (Written, error) {
	file, err := os.OpenFile(string(f), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return file, nil
}

// PutAside implements Place.
func (f File) PutAside() error { return os.Rename(string(f), string(f)+Unreadable) }
