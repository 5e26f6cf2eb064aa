package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Bounds of a request.
const (
	atOnce     = 64               // concurrent connections; further ones wait
	saidWithin = 2 * time.Second  // from the connection to the request, and for writing the answer
	doneWithin = 30 * time.Second // for performing the request
	goneWithin = 5 * time.Second  // for running requests when the helper must end
)

// serve accepts connections until ctx ends, and waits for the running requests for at most
// goneWithin.
func (d *daemon) serve(ctx context.Context, listener *net.UnixListener) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	// Running requests outlive ctx, until giveUp: they shouldn't end half done.
	working, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var requests sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		slots <- struct{}{}
		conn, err := listener.AcceptUnix()
		if err != nil {
			<-slots
			if ctx.Err() == nil {
				d.log.Printf("accept: %v", err)
				_ = backoff.Sleep(ctx, 100*time.Millisecond) // for example, no descriptors are left
			}
			continue
		}
		requests.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			d.answer(working, conn)
		})
	}
	late := time.AfterFunc(goneWithin, giveUp)
	defer late.Stop()
	requests.Wait()
}

// answer serves one connection, which carries one request.
func (d *daemon) answer(ctx context.Context, conn *net.UnixConn) {
	if peer, err := helper.Peer(conn); err != nil || int(peer.Uid) != d.config.UID {
		d.log.Printf("refused a connection that isn't from the server's user: %+v (%v)", peer, err)
		return
	}
	answer, made, err := d.handle(ctx, conn)
	if errors.Is(err, errAnswered) {
		return
	}
	if err != nil {
		d.log.Print(err)
		answer = helper.Answer{Error: err.Error()}
		if refusal, ok := errors.AsType[*launch.RefusalError](err); ok {
			answer = helper.Answer{Error: refusal.Line, Final: refusal.Final, Changed: refusal.Changed}
		}
	}
	if err = send(conn, answer); err == nil {
		return
	}
	d.log.Printf("answer: %v", err)
	if made != "" { // the client is gone, and may have requested the removal before
		if err := d.clean(ctx, made); err != nil {
			d.log.Printf("remove sandbox %s, whose client is gone: %v", made, err)
		}
	}
}

func send(conn *net.UnixConn, answer helper.Answer) error {
	text, _ := json.Marshal(answer) // it can't fail
	_ = conn.SetWriteDeadline(time.Now().Add(saidWithin))
	_, err := conn.Write(text)
	return err
}

// clean removes a sandbox whose client is gone.
func (d *daemon) clean(ctx context.Context, id string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), doneWithin)
	defer stop()
	end, err := d.turns.take(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	return d.remove(ctx, id)
}

// handle reads a request and performs it; it gives up if the client disconnects. It also returns
// the id of the sandbox that it made, if any.
func (d *daemon) handle(ctx context.Context, conn *net.UnixConn) (answer helper.Answer, made string, err error) {
	q, file, err := d.receive(conn)
	if file != nil {
		defer file.Close()
	}
	switch {
	case err != nil:
		return helper.Answer{}, "", err
	case q.Command == helper.Hello:
		return helper.Answer{Parent: d.config.Parent, Network: d.config.Network, Runtimes: slices.Sorted(maps.Keys(d.config.Runtimes))}, "", nil
	case q.Command == helper.Probe:
		answer.Version, answer.NoTime, err = d.config.Runtimes.Probe(ctx, q.Runtime)
		return answer, "", err
	case q.Command == helper.Work:
		return helper.Answer{}, "", d.work(ctx, conn, file)
	}
	// The other commands work on one sandbox, and only one of them at a time.
	ctx, stop := context.WithTimeout(ctx, doneWithin)
	defer stop()
	gone := watch(conn, stop)
	defer gone()
	end, err := d.turns.take(ctx, q.ID)
	if err != nil {
		return helper.Answer{}, "", err
	}
	defer end()
	switch q.Command {
	case helper.Create:
		answer, err = d.create(ctx, q, file)
		return answer, q.ID, err
	case helper.Remove:
		return helper.Answer{}, "", d.remove(ctx, q.ID)
	case helper.Lease, helper.Verify:
		return helper.Answer{}, "", d.perform(ctx, q)
	}
	return helper.Answer{}, "", fmt.Errorf("a listening helper doesn't serve %q", q.Command)
}

// watch calls stop when the client closes the connection or sends more than its one packet. The
// returned function ends the watch, and waits for its goroutine.
func watch(conn *net.UnixConn, stop func()) (end func()) {
	_ = conn.SetReadDeadline(time.Time{})
	var watching sync.WaitGroup
	watching.Go(func() {
		_, err := conn.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			stop()
		}
	})
	return func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		watching.Wait()
	}
}

// receive reads a connection's one packet, with its descriptor: the socket of a sandbox's agent, a
// directory for that socket, or a directory to work on. The caller closes it.
func (d *daemon) receive(conn *net.UnixConn) (*helper.Request, *os.File, error) {
	if err := conn.SetReadDeadline(time.Now().Add(saidWithin)); err != nil {
		return nil, nil, err
	}
	packet, files, err := helper.Receive(conn, 1)
	var q *helper.Request
	if err == nil {
		q, err = helper.Parse(packet)
	}
	if err == nil {
		err = d.check(q, files)
	}
	switch {
	case err != nil:
		helper.CloseAll(files)
		return nil, nil, fmt.Errorf("refused a request: %w", err)
	case len(files) == 0:
		return q, nil, nil
	}
	return q, files[0], nil
}

// check returns an error unless this helper serves a request with these descriptors.
func (d *daemon) check(q *helper.Request, files []*os.File) error {
	if q.Slot != 0 {
		return errors.New("the slot must be 0: this helper chooses the user ids of a sandbox")
	}
	// The command determines what the descriptor must be. Commands without a check take none.
	check := map[string]func(fd int) error{helper.Create: helper.CheckListener, helper.Work: checkDirectory}[q.Command]
	if q.Command == helper.Create && q.Runtime == oci.GVisor {
		check = d.checkOutside
	}
	switch {
	case check == nil && len(files) == 0:
		return nil
	case check == nil || len(files) != 1:
		return fmt.Errorf("%d descriptors came with %s", len(files), q.Command)
	}
	return check(int(files[0].Fd()))
}

func checkDirectory(fd int) error {
	_, err := ownerOf(fd)
	return err
}

// checkOutside returns an error unless a descriptor is a directory of the server's user; another
// user's isn't given to a sandbox. Whether it is empty is checked later, when nobody can change it.
func (d *daemon) checkOutside(fd int) error {
	owner, err := ownerOf(fd)
	if err == nil && owner != d.config.UID {
		err = errors.New("the directory for the agent's socket isn't the server's user's")
	}
	return err
}

func ownerOf(fd int) (uid int, err error) {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return 0, err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, errors.New("the descriptor isn't a directory")
	}
	return int(info.Uid), nil
}

// create makes a sandbox. If it returns an answer with an error, nothing is left; after other
// failures the next remove cleans up.
func (d *daemon) create(ctx context.Context, q *helper.Request, listener *os.File) (helper.Answer, error) {
	if _, err := d.owned(q.Command, q.ID); err != nil {
		return helper.Answer{}, err
	}
	slot, err := d.holds.take(q.ID, d.root)
	if err != nil {
		return helper.Answer{}, fmt.Errorf("create sandbox %s: %w", q.ID, err)
	}
	q.Slot = slot
	answer, err := d.launch.Create(ctx, d.group(q.ID), *q, listener)
	if err != nil { // something may be left after a timeout, and user ids after a refusal
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), doneWithin)
		defer stop()
		err = errors.Join(err, d.remove(ctx, q.ID))
	}
	return answer, err
}

// perform performs a request on an existing sandbox that neither makes nor removes it.
func (d *daemon) perform(ctx context.Context, q *helper.Request) error {
	slot, err := d.holds.slot(q.ID)
	if err != nil {
		return fmt.Errorf("%s sandbox %s: it doesn't exist: %w", q.Command, q.ID, err)
	}
	if q.Command == helper.Verify {
		q.Slot = slot
	}
	return d.launch.Do(ctx, d.group(q.ID), *q)
}

// remove removes a sandbox. It does nothing for one that this helper didn't make: a cgroup of that
// name belongs to another server.
func (d *daemon) remove(ctx context.Context, id string) error {
	if held, err := d.owned(helper.Remove, id); err != nil || !held {
		return err
	}
	if err := d.launch.Remove(ctx, id, d.group(id)); err != nil {
		return err
	}
	// Its user ids are released last: another sandbox may get them immediately.
	return d.holds.release(id)
}

// owned reports whether this helper made the sandbox. It returns an error if another program made a
// cgroup of that name.
func (d *daemon) owned(command, id string) (held bool, err error) {
	if held, err = d.holds.has(id); err != nil || held {
		return held, err
	}
	there, err := d.trees.Exists(d.group(id))
	if there {
		err = fmt.Errorf("%s sandbox %s: another program has made a cgroup of that name: give each server its own --cgroup-parent", command, id)
	}
	return false, err
}

func (d *daemon) group(id string) string { return d.config.Parent + "/" + id }

// turns serializes the requests for each sandbox.
type turns struct {
	mu   sync.Mutex               // guards busy
	busy map[string]chan struct{} // by sandbox; closed when its request ends
}

// take waits until no other request works on id. The caller must call end.
func (t *turns) take(ctx context.Context, id string) (end func(), err error) {
	for {
		t.mu.Lock()
		ended, busy := t.busy[id]
		if !busy {
			ended = make(chan struct{})
			t.busy[id] = ended
		}
		t.mu.Unlock()
		if !busy {
			return func() {
				t.mu.Lock()
				delete(t.busy, id)
				t.mu.Unlock()
				close(ended)
			}, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Bounds of workers on images.
const (
	worksAtOnce = 4             // concurrent workers
	workWithin  = 6 * time.Hour // of one worker
)

var errAnswered = errors.New("it was answered")

// work runs a process that works on a directory, as root in a user namespace of the owners of
// images' files, so as nobody on the machine. It can only change files of those owners and files
// that everybody may change, whatever the directory is, and even if the process is compromised.
func (d *daemon) work(ctx context.Context, conn *net.UnixConn, dir *os.File) error {
	patience := time.NewTimer(doneWithin)
	defer patience.Stop()
	select {
	case d.works <- struct{}{}:
		defer func() { <-d.works }()
	case <-patience.C:
		return fmt.Errorf("%d processes work on images already; try again later", worksAtOnce)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	peer, err := conn.File()
	if err != nil {
		return err
	}
	defer peer.Close()
	cmd := launch.WorkerCommand(ctx, d.config.Worker, peer, dir)
	users := []syscall.SysProcIDMap{{ContainerID: 0, HostID: spec.ImageOwners, Size: spec.UIDs}}
	cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = users, users, true
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0} // ids of the namespace; no supplementary groups
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a process to work on images: %w", err)
	}
	err = send(conn, helper.Answer{PID: cmd.Process.Pid})
	if err != nil {
		cancel()
	}
	_ = conn.Close() // the process has its own descriptor
	if err := errors.Join(err, peer.Close(), cmd.Wait()); err != nil {
		d.log.Printf("work on an image: %v", err)
	}
	return errAnswered
}
