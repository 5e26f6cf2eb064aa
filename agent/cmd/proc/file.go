package proc

import (
	"bytes"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxLines is how many lines of a file are read: of locks, and of sockets of TCP. A runner
// that has more has too many, and reading them all would take long.
const MaxLines = 16 << 10

// A File is a file of /proc that is read again and again. It stays open, so that the agent can
// still read it when the machine has no open file left. Its methods are safe for concurrent use.
// A nil File has no lines.
type File struct {
	mu sync.Mutex // one reading at a time: the kernel goes on where the last one ended
	fd int
}

// Open returns a file of /proc; nil where the machine doesn't have it.
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

// EachLine calls each with the first [MaxLines] lines, and reports whether these were all.
func (f *File) EachLine(each func(line []byte)) (all bool, err error) {
	if f == nil {
		return true, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var buf [4096]byte
	kept := 0 // of a line whose end was not read yet
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
