package confinement

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestThreadIsNeverTheFirst starts so many threads at a time that Go would use the first one, too. A thread
// joins the control groups of commands. A new server finds an agent by the groups of its first thread.
func TestThreadIsNeverTheFirst(t *testing.T) {
	for range 20 {
		var all []*Thread
		for range 20 {
			thread, err := startThread(func() error {
				if unix.Gettid() == unix.Getpid() {
					return errors.New("it is the process's first thread")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			all = append(all, thread)
		}
		for _, thread := range all {
			thread.End()
		}
	}
}
