// Package linefile appends lines to the file at a path, and follows the path: once the file there was renamed or
// removed, the next lines go to a new one. So programs that rotate logs need no signal. A line that was cut off, by a
// full disk or by a kill, is ended before the next one begins.
package linefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// A File is where lines go. It is for one goroutine.
type File struct {
	path string // "": to is a stream
	mode fs.FileMode
	to   io.Writer // nil: the file isn't open
	torn bool      // the last line may have no end
}

// Open returns a File that appends to the file at path, which it makes with a mode if there is none.
func Open(path string, mode fs.FileMode) (*File, error) {
	f := &File{path: path, mode: mode}
	return f, f.follow()
}

// Stream returns a File that writes to a stream, which stays the caller's to close.
func Stream(to io.Writer) *File { return &File{to: to} }

// Write appends whole lines. It returns how many bytes of them it wrote, which after an error may end within a line.
// After an error it can be called again.
func (f *File) Write(lines []byte) (n int, err error) {
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

// Close closes the file. A Write after it opens the file again.
func (f *File) Close() {
	if file, ok := f.to.(*os.File); ok && f.path != "" {
		_ = file.Close() // what was written is written
		f.to = nil
	}
}

// follow opens the file unless it is open, and at its path yet.
func (f *File) follow() error {
	if f.path == "" {
		return nil
	}
	if file, ok := f.to.(*os.File); ok {
		there, err := os.Stat(f.path)
		opened, err2 := file.Stat()
		if errors.Join(err, err2) == nil && os.SameFile(there, opened) {
			return nil
		}
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
	f.torn = last[0] != '\n' // the server that wrote it was killed, or the disk was full
	return nil
}
