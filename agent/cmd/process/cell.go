package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

// A cell is a command in a cell of its own, beside this runner. It implements serve.Process. What the kernel
// counts for it is known outside: the server asks the maker.
type cell struct {
	socket         *os.File
	stdin          *os.File // nil without one
	stdout, stderr *outlet

	commandEnded chan struct{} // status and used are set
	gone         chan struct{} // no process of the cell is left
	status       serve.Status
	used         serve.Usage

	closing sync.Once
}

// Adopt takes over a cell: its socket, its outputs, and its stdin if it has one. It starts the command. Errors are
// as for [Starter.Start]. After an error the cell has ended. The files belong to the cell from now on.
func Adopt(start agent.Start, files []*os.File) (serve.Process, error) {
	want := 3
	if start.Stdin {
		want = 4
	}
	if len(files) != want {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, &agent.Error{Code: agent.ErrInvalid, Message: "the cell came with a wrong number of descriptors"}
	}
	c := &cell{
		socket: files[0], stdout: newOutlet(files[1], false), stderr: newOutlet(files[2], false),
		commandEnded: make(chan struct{}), gone: make(chan struct{}),
	}
	if start.Stdin {
		c.stdin = files[3]
	}
	if err := c.begin(start.Argv[0]); err != nil {
		c.close()
		return nil, err
	}
	go c.follow() // until the cell has ended
	return c, nil
}

// startWithin bounds how long init may take for each step of a start.
const startWithin = 20 * time.Second

// begin starts the command.
func (c *cell) begin(name string) error {
	_ = c.socket.SetReadDeadline(time.Now().Add(startWithin))
	for {
		r, err := c.next()
		switch {
		case err != nil:
			return &agent.Error{Code: agent.ErrInternal, Message: "the cell has ended before the command's start"}
		case r.Kind == agent.CellPrepared:
			if _, err := c.socket.Write([]byte{agent.CellGo}); err != nil {
				return &agent.Error{Code: agent.ErrInternal, Message: "the cell has ended before the command's start"}
			}
		case r.Kind == agent.CellStarted:
			_ = c.socket.SetReadDeadline(time.Time{})
			return nil
		case r.Kind == agent.CellUnprepared:
			return notWritten(unix.Errno(r.Errno))
		case r.Kind == agent.CellUnstarted:
			return execError(name, unix.Errno(r.Errno))
		}
	}
}

// notWritten returns the error for a file of the run that init couldn't write. The maker knows which one.
func notWritten(errno unix.Errno) *agent.Error {
	e := &agent.Error{Code: agent.ErrInternal, Field: "files", Message: "a file can't be written: " + errno.Error()}
	switch errno {
	case unix.ENOSPC, unix.EDQUOT, unix.ENOMEM:
		e.Code = agent.ErrFull
	case unix.ENOTDIR, unix.EISDIR, unix.EEXIST, unix.ENAMETOOLONG:
		e.Code = agent.ErrInvalid
	}
	return e
}

// next returns init's next report. The kernel reports a reset before what was sent first, so that is read again.
func (c *cell) next() (agent.CellReport, error) {
	b := make([]byte, agent.CellReportSize+1)
	n, err := c.socket.Read(b)
	if errors.Is(err, unix.ECONNRESET) {
		n, err = c.socket.Read(b)
	}
	if err != nil {
		return agent.CellReport{}, err
	}
	return agent.ParseCellReport(b[:n])
}

// follow receives reports until init has ended.
func (c *cell) follow() {
	defer close(c.gone)
	var once sync.Once
	end := func(r agent.CellReport) {
		once.Do(func() {
			c.status = statusOf(unix.WaitStatus(r.Status))
			c.used.User, c.used.System = r.CPU()
			c.used.PeakMemory = r.Resident << 10
			close(c.commandEnded)
		})
	}
	// Without a report, the cell was killed from outside.
	defer end(agent.CellReport{Status: 9})
	for {
		r, err := c.next()
		if err != nil {
			return
		}
		if r.Kind == agent.CellEnded {
			end(r)
		}
	}
}

// Pipes implements serve.Process.
func (c *cell) Pipes() (stdin io.WriteCloser, stdout, stderr io.Reader) {
	if c.stdin != nil { // a nil *os.File would be a non-nil interface
		stdin = c.stdin
	}
	return stdin, c.stdout, c.stderr
}

// StartedWarm implements serve.Process.
func (c *cell) StartedWarm() (warm bool, cold string) { return false, "" }

// Wait implements serve.Process.
func (c *cell) Wait() serve.Status {
	<-c.commandEnded
	return c.status
}

// Kill implements serve.Process.
func (c *cell) Kill(grace time.Duration) {
	if grace > 0 {
		_ = c.signal(unix.SIGTERM)
		select {
		case <-c.gone:
		case <-time.After(grace):
		}
	}
	_, _ = c.socket.Write([]byte{agent.CellKill}) // it fails if the cell has ended
	<-c.gone
	c.stdout.finish()
	c.stderr.finish()
}

// Resize implements serve.Process. A cell has no terminal.
func (c *cell) Resize(agent.Size) {}

// Signal implements serve.Process.
func (c *cell) Signal(name string) bool {
	number := unix.SignalNum(name)
	if number == 0 {
		return false
	}
	_ = c.signal(number)
	return true
}

func (c *cell) signal(number unix.Signal) error {
	_, err := c.socket.Write([]byte{agent.CellSignal, byte(number)})
	return err
}

// Measure implements serve.Process.
func (c *cell) Measure() serve.Measure { return serve.Measure{} }

// Now implements serve.Process.
func (c *cell) Now() agent.Used { return agent.Used{} }

// Refused implements serve.Process.
func (c *cell) Refused() int64 { return 0 }

// Excessive implements serve.Process.
func (c *cell) Excessive() bool { return false }

// Close implements serve.Process.
func (c *cell) Close() serve.Usage {
	<-c.gone
	c.close()
	return c.used
}

func (c *cell) close() {
	c.closing.Do(func() {
		for _, f := range []*os.File{c.socket, c.stdin, c.stdout.file, c.stderr.file} {
			if f != nil {
				_ = f.Close()
			}
		}
	})
}
