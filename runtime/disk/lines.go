package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// A LineFile appends lines to the file at a path. It follows the path: once the file was renamed or removed,
// later lines go to a new file, so programs that rotate logs need no signal. An incomplete line, after a
// full disk or a kill, is ended before the next line begins. It is for one goroutine.
type LineFile struct {
	path string // "" means that to is a stream
	mode fs.FileMode
	to   io.Writer // nil means not open
	torn bool      // the last line may be incomplete
}

// OpenLines returns a LineFile that appends to the file at path, which it creates with mode if necessary.
// Close it.
func OpenLines(path string, mode fs.FileMode) (*LineFile, error) {
	f := &LineFile{path: path, mode: mode}
	return f, f.follow()
}

// StreamLines returns a LineFile that writes to a stream. Close doesn't close the stream.
func StreamLines(to io.Writer) *LineFile { return &LineFile{to: to} }

// Write appends whole lines. It returns how many bytes it wrote; after an error, these may end
// within a line. It may be called again after an error.
func (f *LineFile) Write(lines []byte) (n int, err error) {
	if err := f.follow(); err != nil {
		return 0, err
	}
	if f.torn {
		if _, err := f.to.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		f.torn = false
	}
	n, err = f.to.Write(lines)
	f.torn = n > 0 && lines[n-1] != '\n'
	return n, err
}

// Close closes the file. A later Write opens it again.
func (f *LineFile) Close() {
	if file, ok := f.to.(*os.File); ok && f.path != "" {
		_ = file.Close() // nothing is buffered, so an error loses nothing
		f.to = nil
	}
}

// follow opens the file unless it is open and still at its path.
func (f *LineFile) follow() error {
	if f.path == "" {
		return nil
	}
	if file, ok := f.to.(*os.File); ok {
		there, err := os.Stat(f.path)
		opened, err2 := file.Stat()
		if errors.Join(err, err2) == nil && os.SameFile(there, opened) {
			return nil
		}
		// The open file is no longer the one at the path.
		f.Close()
	}
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_RDWR, f.mode)
	if err != nil {
		return err
	}
	f.to = file
	last := []byte{'\n'}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
	}
	f.torn = last[0] != '\n' // the writer was killed, or the disk was full
	return nil
}
