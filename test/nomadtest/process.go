package nomadtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// environment is all that Nomad and Docker get: what the tests' own environment
// has, NOMAD_* above all, is none of theirs.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}

// A process is one that can be started again. It dies with this one.
type process struct {
	binary string
	args   []string
	log    string // a file, to which it is appended
	mercy  syscall.Signal

	begin int64 // where in the log this start begins
	asked bool  // whether it was told to end
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	err   error         // how, then
}

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if p.begin, err = log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd := exec.Command(p.binary, p.args...)
	// The sockets of its plugins, which one that is killed leaves, go with its files.
	cmd.Env = append(slices.Clip(environment), "TMPDIR="+filepath.Dir(p.log))
	cmd.Stdout, cmd.Stderr = log, log
	dying := p.mercy
	if dying == 0 {
		dying = syscall.SIGKILL
	}
	// Its own group: what a terminal's ^C reaches ends it in its turn.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: dying}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() { // until it ends, for which kill waits
		// Its parent's death is that of the thread which started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.ended, p.asked = cmd, ended, false
	return nil
}

// kill ends it, if it runs, and returns after its end.
func (p *process) kill() error { return p.signal(syscall.SIGKILL) }

func (p *process) signal(signal syscall.Signal) error {
	if p == nil || p.cmd == nil {
		return nil
	}
	err := p.crashed()
	p.asked = true
	if err := errors.Join(err, p.send(signal)); err != nil {
		return err
	}
	<-p.ended
	return nil
}

// crashed returns an error with the end of the log if it ended by itself.
func (p *process) crashed() error {
	select {
	case <-p.ended:
		if p.asked {
			return nil
		}
		said := p.said()
		return fmt.Errorf("%s ended by itself: %w\n%s", filepath.Base(p.log), p.err, said[max(0, len(said)-tail):])
	default:
		return nil
	}
}

// send sends a signal, if it runs, and doesn't wait.
func (p *process) send(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// said returns what it has logged since its last start.
func (p *process) said() string {
	text, _ := os.ReadFile(p.log)
	return string(text[min(p.begin, int64(len(text))):])
}
