package proc

import (
	"bytes"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxLines is how many lines of a file are read, for lists of locks and TCP sockets. A runner with
// more has too many, and reading all would take too long.
const MaxLines = 16 << 10

// A File is a file of /proc that is read repeatedly. It stays open, so that it can be read when the
// machine has no free descriptor. Its methods are safe for concurrent use. A nil File has no lines.
type File struct {
	mu sync.Mutex // held while the file is read, since readers share its offset
	fd int
}

// Open opens a file of /proc. It returns nil without an error if the machine doesn't have it.
func Open(path string) (*File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		return &File{fd: fd}, nil
	case unix.ENOENT, unix.EACCES, unix.EPERM:
		return nil, nil
	default:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
}

// EachLine calls each with the first [MaxLines] lines. It reports whether these are all.
func (f *File) EachLine(each func(line []byte)) (all bool, err error) {
	if f == nil {
		return true, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var buf [4096]byte
	kept := 0 // bytes of a line whose end wasn't read yet
	at := int64(0)
	for lines := 0; lines < MaxLines; {
		n, err := unix.Pread(f.fd, buf[kept:], at)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return true, err
		}
		at += int64(n)
		text := buf[:kept+n]
		end := bytes.LastIndexByte(text, '\n') + 1
		for line := range bytes.Lines(text[:end]) {
			lines++
			each(line)
		}
		kept = copy(buf[:], text[end:])
	}
	return false, nil
}
