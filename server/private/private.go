// Package private runs a temporary server for one process: on a Unix socket that only its user can
// reach, and with its own data directory. It removes everything at the end. If the process is
// killed, the next private server cleans up.
package private

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/server"
)

// Run runs a private server while use runs, and then removes it and its runners. It reports with
// say what it can't remove. The context of use ends with ctx, or when the server fails. Run returns
// the error of use, of the server, or both.
func Run(ctx context.Context, c config.Config, logger *zap.Logger, say Sayer, use func(ctx context.Context, server *server.Server) error) (err error) {
	directory, err := newDirectory(ctx, c, say)
	if err != nil {
		return err
	}
	clean := false
	defer func() { directory.remove(context.WithoutCancel(ctx), clean, say) }()
	srv := server.New(directory.config, logger)
	srv.Socket = directory.socket()
	if err := srv.Open(ctx); err != nil {
		return err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx)) // it must end after use, which cleans up on the server
	using, endUse := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := srv.Run(serving)
		endUse(err)
		ended <- err
	}()
	defer func() {
		end()
		failed := <-ended
		clean = failed == nil
		err = errors.Join(err, failed)
	}()
	select {
	case <-srv.Engine.Restored():
	case <-using.Done():
		return context.Cause(using)
	}
	return use(using, srv)
}

// A Sayer prints a line for the user.
type Sayer func(format string, args ...any)

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
