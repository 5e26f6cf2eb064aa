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

// Remote asks a rockpool-sandbox that listens on a socket. Its methods may be
// called at once, for different sandboxes.
type Remote struct {
	Socket string
	Parent string // the group that it makes sandboxes' groups in; see Hello
}

// An UnreachableError says that no helper answers.
type UnreachableError struct {
	Socket string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the sandbox helper at %s doesn't answer: start it as root with `rockpool helper`, and see whether its --user is the server's: %v", e.Socket, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Hello returns what the helper says of itself.
func (r Remote) Hello(ctx context.Context) (helper.Answer, error) {
	return r.ask(ctx, helper.Request{Command: helper.Hello}, nil)
}

// probeWithin is more than the helper lets a runtime take.
const probeWithin = 15 * time.Second

// Probe returns what a runtime of the helper's says of its version, and whether it
// knows time namespaces; see oci.Runtimes.Probe.
func (r Remote) Probe(ctx context.Context, name string) (version string, noTime bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	answer, err := r.exchange(ctx, helper.Request{Command: helper.Probe, Runtime: name}, nil)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", false, context.Cause(ctx)
	case err != nil:
		return "", false, &UnreachableError{r.Socket, err}
	case answer.Error != "":
		return "", false, refused(answer)
	}
	return answer.Version, answer.NoTime, nil
}

// Create is as Direct's. The helper chooses the sandbox's users.
func (r Remote) Create(ctx context.Context, group string, q helper.Request, listener *os.File) (helper.Answer, error) {
	if err := r.owns(group, q.ID); err != nil {
		return helper.Answer{}, err
	}
	q.Slot = 0
	return r.ask(ctx, q, listener)
}

// Remove is as Direct's.
func (r Remote) Remove(ctx context.Context, id, group string) error {
	if err := r.owns(group, id); err != nil {
		return err
	}
	_, err := r.ask(ctx, helper.Request{Command: helper.Remove, ID: id}, nil)
	return err
}

// Ask is as Direct's.
func (r Remote) Ask(ctx context.Context, group string, q helper.Request) error {
	if err := r.owns(group, q.ID); err != nil {
		return err
	}
	q.Slot = 0
	_, err := r.ask(ctx, q, nil)
	return err
}

// owns returns an error for a group that isn't the helper's to make or remove.
func (r Remote) owns(group, id string) error {
	if group != path.Join(r.Parent, id) {
		return fmt.Errorf("the group %s is out of reach for the sandbox helper, which has those in %s: start a server as root with that one's --cgroup-parent once, to end its runners", group, r.Parent)
	}
	return nil
}

func (r Remote) ask(ctx context.Context, q helper.Request, file *os.File) (helper.Answer, error) {
	answer, err := r.exchange(ctx, q, file)
	switch {
	case err != nil && ctx.Err() != nil:
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", q.Command, q.ID, context.Cause(ctx))
	case err != nil:
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", q.Command, q.ID, &UnreachableError{r.Socket, err})
	case answer.Error != "":
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", q.Command, q.ID, refused(answer))
	}
	return answer, nil
}

// exchange sends one packet and waits for one. Where ctx ends before, the
// connection's end tells the helper to give up.
func (r Remote) exchange(ctx context.Context, q helper.Request, file *os.File) (helper.Answer, error) {
	dialed, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", r.Socket)
	if err != nil {
		return helper.Answer{}, err
	}
	conn := dialed.(*net.UnixConn)
	defer conn.Close()
	return say(ctx, conn, q, file)
}

// Work has the helper start a process that is root among the owners of images'
// files, and nobody else, which works on a directory; see image.Work. The
// connection that it returns is to that process, and its end ends it.
func (r Remote) Work(ctx context.Context, dir *os.File) (*net.UnixConn, error) {
	dialed, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", r.Socket)
	if err != nil {
		return nil, &UnreachableError{r.Socket, err}
	}
	conn := dialed.(*net.UnixConn)
	answer, err := say(ctx, conn, helper.Request{Command: helper.Work}, dir)
	if err == nil && answer.Error != "" {
		err = refused(answer)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// say sends a request, and returns the answer.
func say(ctx context.Context, conn *net.UnixConn, q helper.Request, file *os.File) (helper.Answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := isRoots(conn); err != nil {
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
	var answer helper.Answer
	err = json.Unmarshal(packet[:n], &answer)
	return answer, err
}

// isRoots returns an error unless the other side is root's: it gets sockets that
// agents are asked through.
func isRoots(conn *net.UnixConn) error {
	peer, err := helper.Peer(conn)
	if err == nil && peer.Uid != 0 {
		err = errors.New("it isn't root's")
	}
	return err
}
