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
	return r.request(ctx, helper.Request{Command: helper.Hello}, nil)
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

// Create works as Direct.Create. The helper chooses the sandbox's users.
func (r Remote) Create(ctx context.Context, group string, q helper.Request, listener *os.File) (helper.Answer, error) {
	if err := r.owns(group, q.ID); err != nil {
		return helper.Answer{}, err
	}
	q.Slot = 0
	return r.request(ctx, q, listener)
}

// Remove works as Direct.Remove.
func (r Remote) Remove(ctx context.Context, id, group string) error {
	if err := r.owns(group, id); err != nil {
		return err
	}
	_, err := r.request(ctx, helper.Request{Command: helper.Remove, ID: id}, nil)
	return err
}

// Do works as Direct.Do.
func (r Remote) Do(ctx context.Context, group string, q helper.Request) error {
	if err := r.owns(group, q.ID); err != nil {
		return err
	}
	q.Slot = 0
	_, err := r.request(ctx, q, nil)
	return err
}

// owns returns an error unless the helper manages the cgroup.
func (r Remote) owns(group, id string) error {
	if group != path.Join(r.Parent, id) {
		return fmt.Errorf("the sandbox helper manages cgroups in %[2]s and can't reach %[1]s: start a server as root once, with that --cgroup-parent, to end its runners", group, r.Parent)
	}
	return nil
}

// request is exchange for a request about a sandbox, which the error names.
func (r Remote) request(ctx context.Context, q helper.Request, file *os.File) (helper.Answer, error) {
	answer, err := r.exchange(ctx, q, file)
	if err != nil {
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", q.Command, q.ID, err)
	}
	return answer, nil
}

// exchange sends one packet and waits for one. If ctx ends first, closing the connection makes the
// helper give up. The error is a [*RefusalError], ctx's cause, or an [*UnreachableError] if there was
// no answer.
func (r Remote) exchange(ctx context.Context, q helper.Request, file *os.File) (answer helper.Answer, err error) {
	dialed, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", r.Socket)
	if err == nil {
		conn := dialed.(*net.UnixConn)
		answer, err = roundTrip(ctx, conn, q, file)
		_ = conn.Close()
	}
	var refusal *RefusalError
	switch {
	case err == nil || errors.As(err, &refusal):
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
	dialed, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", r.Socket)
	if err != nil {
		return nil, &UnreachableError{r.Socket, err}
	}
	conn := dialed.(*net.UnixConn)
	if _, err := roundTrip(ctx, conn, helper.Request{Command: helper.Work}, dir); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func roundTrip(ctx context.Context, conn *net.UnixConn, q helper.Request, file *os.File) (helper.Answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := checkRoot(conn); err != nil {
		return helper.Answer{}, err
	}
	q.Protocol = helper.Protocol
	text, err := json.Marshal(q)
	if err != nil {
		return helper.Answer{}, err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix(text, rights, nil); err != nil {
		return helper.Answer{}, err
	}
	packet := make([]byte, helper.MaxMessage)
	n, err := conn.Read(packet)
	if err != nil {
		return helper.Answer{}, err
	}
	return parse(packet[:n])
}

// checkRoot returns an error unless the other side runs as root: it gets sockets through which
// agents are controlled.
func checkRoot(conn *net.UnixConn) error {
	peer, err := helper.Peer(conn)
	if err == nil && peer.Uid != 0 {
		err = errors.New("the program that listens there doesn't run as root")
	}
	return err
}
