package main

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// orphanCheck is how often an agent on Nomad looks whether anybody can reach it.
const orphanCheck = 5 * time.Second

// endWhenOrphaned ends the program, as Nomad would, once the socket at path is
// gone or another agent's: then nobody can reach it any more, nor end what it
// runs. Nomad leaves such tasks behind where its client is killed before it has
// written down that a task was started, or that one was stopped.
func endWhenOrphaned(path string) error {
	own, err := os.Lstat(path)
	if err != nil {
		return err
	}
	go func() { // for as long as the program runs
		for range time.Tick(orphanCheck) {
			now, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, now) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			}
		}
	}()
	return nil
}
