package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
)

// A Maker is a rockpool-sandbox that makes many sandboxes. It is started for the first one, and
// restarted if it has ended. Its methods are safe for concurrent use, for different sandboxes.
// Close ends it; sandboxes stay.
type Maker struct {
	mu     sync.Mutex // guards conn and closed; held while the process starts
	conn   *net.UnixConn
	closed bool
	ending sync.WaitGroup // processes of makers; Close waits
}

// readsWithin bounds how long a maker may take to read an order. A maker that hangs is abandoned,
// and another one is started.
const readsWithin = 10 * time.Second

var errMakerClosed = errors.New("the maker of sandboxes was closed")

// Close ends the process after the requests that it is serving, and waits for its end.
func (m *Maker) Close() {
	m.mu.Lock()
	m.closed = true
	if m.conn != nil {
		_ = m.conn.Close()
		m.conn = nil
	}
	m.mu.Unlock()
	m.ending.Wait()
}

// send sends an order with its descriptors to the maker; it starts one if necessary.
func (m *Maker) send(command func() *exec.Cmd, text, rights []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errMakerClosed
	}
	if m.conn != nil {
		_ = m.conn.SetWriteDeadline(time.Now().Add(readsWithin))
		if _, _, err := m.conn.WriteMsgUnix(text, rights, nil); err == nil {
			return nil
		}
		_ = m.conn.Close() // it has ended or hangs
		m.conn = nil
	}
	if err := m.start(command()); err != nil {
		return fmt.Errorf("start the maker of sandboxes: %w", err)
	}
	_, _, err := m.conn.WriteMsgUnix(text, rights, nil)
	return err
}

// start starts the process of a maker. The caller holds mu.
func (m *Maker) start(cmd *exec.Cmd) error {
	conn, its, err := socketPair()
	if err != nil {
		return err
	}
	defer its.Close()
	cmd.ExtraFiles = append([]*os.File{its}, cmd.ExtraFiles...)
	if err := cmd.Start(); err != nil {
		return errors.Join(err, conn.Close())
	}
	m.ending.Go(func() { _ = cmd.Wait() }) // it logs its errors itself
	m.conn = conn
	return nil
}

func (l Direct) order(ctx context.Context, parent string, q helper.Request, files []*os.File) (helper.Answer, error) {
	text, _ := json.Marshal(helper.Order{Request: q, Parent: parent}) // it can't fail
	own, its, err := socketPair()
	if err != nil {
		return helper.Answer{}, err
	}
	defer own.Close()
	fds := []int{int(its.Fd())}
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	err = l.Maker.send(func() *exec.Cmd { return l.makerCommand(parent) }, text, unix.UnixRights(fds...))
	// The maker has its own copy now. With this one open, Read wouldn't notice that the maker
	// ended.
	_ = its.Close()
	if err != nil {
		return helper.Answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = own.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	packet := make([]byte, helper.MaxMessage)
	n, err := own.Read(packet)
	switch {
	case err != nil && ctx.Err() != nil:
		return helper.Answer{}, context.Cause(ctx)
	case err != nil || n == 0:
		return helper.Answer{}, fmt.Errorf("the maker of sandboxes ended without an answer: %w", err)
	}
	return parse(packet[:n])
}

// socketPair returns both ends of a socket for packets: this process's, and one to pass on.
func socketPair() (own *net.UnixConn, its *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(pair[0]), "socket")
	conn, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		_ = unix.Close(pair[1])
		return nil, nil, err
	}
	return conn.(*net.UnixConn), os.NewFile(uintptr(pair[1]), "socket"), nil
}

// makerCommand returns the command of a maker. Each order has its own parent.
func (l Direct) makerCommand(parent string) *exec.Cmd {
	cmd := l.command(context.Background(), helper.Maker, parent)
	cmd.Env, cmd.Stderr = []string{"GOGC=400"}, os.Stderr
	return cmd
}
