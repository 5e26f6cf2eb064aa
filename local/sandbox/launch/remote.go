package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
)

// Remote uses a rockpool-sandbox that listens on a socket. Its methods are safe for concurrent use,
// for different sandboxes.
type Remote struct {
	Socket string
	Parent string // parent cgroup of the helper's sandboxes; see Hello
}

// An UnreachableError means that no helper answers on the socket.
type UnreachableError struct {
	Socket string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the sandbox helper at %s doesn't answer: start it as root with `rockpool helper`, and check that its --user is the server's user: %v", e.Socket, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Hello returns the helper's configuration.
func (r Remote) Hello(ctx context.Context) (helper.Answer, error) {
	return r.exchange(ctx, helper.Request{Command: helper.Hello}, nil)
}

// probeWithin is longer than the helper's own limit for a runtime.
const probeWithin = 15 * time.Second

// Probe implements oci.Runtimes.Probe for the helper's runtimes.
func (r Remote) Probe(ctx context.Context, name string) (version string, noTime bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	answer, err := r.exchange(ctx, helper.Request{Command: helper.Probe, Runtime: name}, nil)
	return answer.Version, answer.NoTime, err
}

// Create works as Direct.Create. It returns an error unless the helper manages the cgroup. The helper
// chooses the sandbox's users.
func (r Remote) Create(ctx context.Context, group string, q helper.Request, file *os.File) (helper.Answer, error) {
	if group != path.Join(r.Parent, q.ID) {
		return helper.Answer{}, fmt.Errorf("the sandbox helper manages cgroups in %[2]s and can't reach %[1]s: start a server as root once, with that --cgroup-parent, to end its runners", group, r.Parent)
	}
	q.Slot = 0
	answer, err := r.exchange(ctx, q, file)
	if err != nil {
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", q.Command, q.ID, err)
	}
	return answer, nil
}

// Remove works as Direct.Remove.
func (r Remote) Remove(ctx context.Context, id, group string) error {
	return r.Do(ctx, group, helper.Request{Command: helper.Remove, ID: id})
}

// Do works as Direct.Do.
func (r Remote) Do(ctx context.Context, group string, q helper.Request) error {
	_, err := r.Create(ctx, group, q, nil)
	return err
}

// exchange sends one packet and waits for one. If ctx ends first, closing the connection makes the
// helper give up. The error is a [*RefusalError], ctx's cause, or an [*UnreachableError] if there was
// no answer.
func (r Remote) exchange(ctx context.Context, q helper.Request, file *os.File) (answer helper.Answer, err error) {
	conn, answer, err := r.begin(ctx, q, file)
	if conn != nil {
		_ = conn.Close()
	}
	_, refused := errors.AsType[*RefusalError](err)
	switch {
	case err == nil || refused:
		return answer, err
	case ctx.Err() != nil:
		return helper.Answer{}, context.Cause(ctx)
	}
	return helper.Answer{}, &UnreachableError{r.Socket, err}
}

// Work lets the helper start a process that works on a directory (see image.Work). The process is
// root among the owners of images' files, and has no other rights. Closing the returned connection
// ends it.
func (r Remote) Work(ctx context.Context, dir *os.File) (*net.UnixConn, error) {
	conn, _, err := r.begin(ctx, helper.Request{Command: helper.Work}, dir)
	switch {
	case conn == nil:
		return nil, &UnreachableError{r.Socket, err}
	case err != nil:
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// begin connects, and exchanges one packet each. The caller closes the connection, if there is one,
// also after an error.
func (r Remote) begin(ctx context.Context, q helper.Request, file *os.File) (conn *net.UnixConn, answer helper.Answer, err error) {
	dialed, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", r.Socket)
	if err != nil {
		return nil, answer, err
	}
	conn = dialed.(*net.UnixConn)
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	peer, err := helper.Peer(conn)
	if err == nil && peer.Uid != 0 { // it gets sockets through which agents are controlled
		err = errors.New("the program that listens there doesn't run as root")
	}
	if err != nil {
		return conn, answer, err
	}
	q.Protocol = helper.Protocol
	text, _ := json.Marshal(q) // it can't fail
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix(text, rights, nil); err != nil {
		return conn, answer, err
	}
	packet := make([]byte, helper.MaxMessage)
	n, err := conn.Read(packet)
	if err == nil {
		answer, err = parse(packet[:n])
	}
	return conn, answer, err
}
