package launch

import (
	"bytes"
	"os"
	"syscall"
)

// WriteProgram writes a program that will be executed. It replaces the file by a rename, because a
// running program's file can't be written. A file with the same content is left alone, so that a
// full disk doesn't prevent clean-up.
//
// No process is started while the file is open for writing, because the kernel refuses to execute
// such a file. A forked child holds its parent's descriptors until it executes its own program.
func WriteProgram(path string, data []byte) error {
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, data) {
		return nil
	}
	temp := path + ".new"
	syscall.ForkLock.RLock()
	err := os.WriteFile(temp, data, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	return os.Rename(temp, path)
}
