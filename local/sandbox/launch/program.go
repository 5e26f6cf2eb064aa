package launch

import (
	"bytes"
	"os"
	"syscall"
)

// WriteProgram writes a program that is executed next. It replaces a file by rename,
// since one that runs can't be written. A file with this content stays, so that a full
// disk stops no clean-up.
//
// Nothing is started while the file is open. The kernel refuses to execute a file that
// is open for writing, and a child has its parent's descriptors until it executes its
// own program.
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
