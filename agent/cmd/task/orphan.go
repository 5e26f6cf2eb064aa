package task

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// orphanCheck is how often an agent on Nomad checks that its socket is there.
const orphanCheck = 5 * time.Second

// endWhenOrphaned ends the program, as Nomad would, once the socket at path is gone or another
// agent's: then no client can reach the agent, nor end what it runs. Nomad leaves such tasks
// behind if its client is killed before it has recorded that a task was started or stopped.
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
