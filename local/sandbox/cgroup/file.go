package cgroup

import (
	"os"

	"golang.org/x/sys/unix"
)

// The files of cgroups are opened some hundred times for each sandbox. Package os would register
// each file with its poller, which takes up to five more system calls; so this file uses system
// calls directly.

// readFile returns a file's contents. Its errors are those of os.ReadFile.
func readFile(at string) ([]byte, error) {
	fd, err := open(at, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	return readAll(fd, at)
}

// exchange writes text to an existing file, and returns what the file contains then.
func exchange(at, text string) (string, error) {
	fd, err := open(at, unix.O_RDWR)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := uninterrupted(func() (int, error) { return unix.Write(fd, []byte(text)) }); err != nil {
		return "", &os.PathError{Op: "write", Path: at, Err: err}
	}
	got, err := readAll(fd, at)
	return string(got), err
}

// open opens an existing file, close-on-exec. The caller closes the descriptor.
func open(at string, flags int) (int, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Open(at, flags|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: at, Err: err}
	}
	return fd, nil
}

func readAll(fd int, at string) (all []byte, err error) {
	all = make([]byte, 0, 512)
	for {
		n, err := uninterrupted(func() (int, error) { return unix.Pread(fd, all[len(all):cap(all)], int64(len(all))) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: at, Err: err}
		}
		if n == 0 {
			return all, nil
		}
		if all = all[:len(all)+n]; len(all) == cap(all) {
			all = append(all, 0)[:len(all)]
		}
	}
}

// uninterrupted repeats do while a signal interrupts it.
func uninterrupted(do func() (int, error)) (n int, err error) {
	for {
		if n, err = do(); err != unix.EINTR {
			return n, err
		}
	}
}
