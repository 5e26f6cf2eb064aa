package private

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// An Heir is a process that cleans up immediately if this one is killed. Without it, programs would run until
// the next private server starts.
type Heir struct {
	cmd   *exec.Cmd
	alive io.Closer // the kernel closes it when this process ends
}

// StartHeir starts an heir: cmd, which must call [Inherit]. It gets no signals of this process's terminal
// or group.
func StartHeir(cmd *exec.Cmd) (*Heir, error) {
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return &Heir{cmd, alive}, cmd.Start()
}

// Dismiss ends the heir after a clean end. A private server must have ended before.
func (h *Heir) Dismiss() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait() // it was killed
	_ = h.alive.Close()
}

// Inherit waits until the process that started this one has ended, and removes what its private server
// left. alive is this process's standard input.
func Inherit(ctx context.Context, c config.Config, alive io.Reader, parent int) error {
	_, _ = io.Copy(io.Discard, alive)
	// Only after this are all its files closed, and with them its lock.
	for os.Getppid() == parent {
		if err := backoff.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	deadline, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		busy, err := inheritOnce(ctx, c)
		if !busy || err != nil {
			return err
		}
		if err := backoff.Sleep(deadline, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// patience is how long an heir waits for the helpers of the killed server.
const patience = time.Minute

// inheritOnce removes what killed private servers left. It returns busy if helpers of one still run:
// it doesn't wait for them, because meanwhile no private server could start.
func inheritOnce(ctx context.Context, c config.Config) (busy bool, err error) {
	if left, _ := filepath.Glob(filepath.Join(parentOf(c), "run-*")); len(left) == 0 {
		return false, nil
	}
	quiet := func(string, ...any) {} // nobody reads it
	all, err := lockParent(ctx, parentOf(c), quiet)
	if err != nil {
		return false, err
	}
	defer all.Close()
	busy, err = sweep(ctx, c, all.Name(), false, quiet)
	_ = os.Remove(all.Name()) // fails if other servers use it
	return busy, err
}
