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
	"sync"
	"syscall"
)

// environment is the whole environment of Nomad and Docker. Variables of the tests, above all
// NOMAD_*, must not reach them.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}

// crashes is how often a crashed process is restarted.
const crashes = 3

// A process can be started again, and dies with this one. If it crashes, it is restarted
// immediately, as systemd does with a Nomad in production, and stderr says so.
type process struct {
	binary string
	args   []string
	log    string // path; the process appends to it
	mercy  syscall.Signal

	ended chan struct{} // closed when it has ended and isn't restarted
	err   error         // how it ended; valid after ended

	mu    sync.Mutex // guards the fields below
	cmd   *exec.Cmd
	begin int64 // where the log of the last start begins
	asked bool  // kill was called
}

// start starts the process and returns when it runs. The process may be started again after kill.
func (p *process) start() error {
	p.asked = false
	started, ended := make(chan error, 1), make(chan struct{})
	go func() { // until it ends, which kill waits for
		defer close(ended)
		// The parent's death signal comes when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.once()
		started <- err
		for n := 0; err == nil; n++ {
			p.err = p.cmd.Wait()
			if !p.crashed() || n == crashes {
				return
			}
			err = p.once()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.ended = ended
	return nil
}

// once starts it, unless it was stopped meanwhile.
func (p *process) once() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked {
		return os.ErrProcessDone
	}
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if p.begin, err = log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd := exec.Command(p.binary, p.args...)
	// A killed Nomad leaves the sockets of its plugins; they are removed with its files.
	cmd.Env = append(slices.Clip(environment), "TMPDIR="+filepath.Dir(p.log))
	cmd.Stdout, cmd.Stderr = log, log
	dying := p.mercy
	if dying == 0 {
		dying = syscall.SIGKILL
	}
	// In its own process group: a terminal's Ctrl-C doesn't reach it, and this process ends it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: dying}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	return nil
}

// crashed reports whether it ended without being stopped, and prints that.
func (p *process) crashed() bool {
	p.mu.Lock()
	asked := p.asked
	p.mu.Unlock()
	if !asked {
		said := p.said()
		fmt.Fprintf(os.Stderr, "nomadtest: %s: it crashed: %v\n%s\n", p.log, p.err, said[max(0, len(said)-tail):])
	}
	return !asked
}

// kill kills it, if it runs, and returns after its end.
func (p *process) kill() error { return p.signal(syscall.SIGKILL) }

// signal ends the process with a signal and waits for its end. It does nothing if the process was
// never started.
func (p *process) signal(signal syscall.Signal) error {
	if p == nil || p.ended == nil {
		return nil
	}
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	if err := p.send(signal); err != nil {
		return err
	}
	<-p.ended
	return nil
}

// send sends a signal, if it runs, and doesn't wait.
func (p *process) send(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// said returns its log since its last start.
func (p *process) said() string {
	p.mu.Lock()
	begin := p.begin
	p.mu.Unlock()
	text, _ := os.ReadFile(p.log)
	return string(text[min(begin, int64(len(text))):])
}
