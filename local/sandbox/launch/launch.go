// Package launch has rockpool-sandbox make and remove sandboxes: one that is
// started for each by who has the privileges for it, or one that listens.
package launch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
)

// Direct starts rockpool-sandbox for each request. Its methods may be called at
// once, for different sandboxes.
type Direct struct {
	Path   string        // of the program rockpool-sandbox
	Config helper.Config // but for Parent, which sandboxes' groups tell

	// Lock is a file that the server has locked. Each helper shares the lock
	// until it ends, so that who gets it after the server was killed knows that
	// no helper of that server is still making a sandbox. Nil: none.
	Lock *os.File

	// Maker makes and removes sandboxes of root's. Nil: a process is started for each request.
	Maker *Maker

	// An ordinary user's, with Config.Rootless:
	Users   Subordinate
	Worker  string          // a program that works as image.Work when helper.WorkerArgument is its argument
	Working *sync.WaitGroup // workers that haven't ended
}

// TakeLock takes Lock for a server, and waits for the helpers of one that was
// killed: what they make must be there before it can be removed. One that removes a
// sandbox may wait 5 s for its processes.
func TakeLock(file *os.File) error {
	const patience, pause = 6 * time.Second, 10 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(pause) { //nolint:forbidigo // flock can't be waited for otherwise
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Create makes the sandbox that q asks for in a group, lets its first process
// get listener as its descriptor 3, and returns when the process runs and its
// limits were read back. After an error nothing is left, unless ctx ended or the
// helper was killed: then Remove cleans up.
func (l Direct) Create(ctx context.Context, group string, q helper.Request, listener *os.File) (helper.Answer, error) {
	return l.run(ctx, group, q, listener)
}

// Remove kills what runs in a sandbox, in whatever state it is, and removes
// it; one that isn't there is success.
func (l Direct) Remove(ctx context.Context, id, group string) error {
	_, err := l.run(ctx, group, helper.Request{Command: helper.Remove, ID: id})
	return err
}

// Probe is oci.Runtimes.Probe.
func (l Direct) Probe(ctx context.Context, name string) (version string, noTime bool, err error) {
	return l.Config.Runtimes.Probe(ctx, name)
}

// Ask has the helper do what neither makes nor removes a sandbox.
func (l Direct) Ask(ctx context.Context, group string, q helper.Request) error {
	_, err := l.run(ctx, group, q)
	return err
}

func (l Direct) run(ctx context.Context, group string, q helper.Request, files ...*os.File) (helper.Answer, error) {
	if path.Base(group) != q.ID {
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %s isn't its group", q.Command, q.ID, group)
	}
	if l.Maker != nil && (q.Made() || q.Command == helper.Remove) {
		return l.order(ctx, path.Dir(group), q, files)
	}
	l.Config.Parent = path.Dir(group)
	config, err := json.Marshal(l.Config)
	if err != nil {
		return helper.Answer{}, err
	}
	q.Protocol = helper.Protocol
	request, err := json.Marshal(q)
	if err != nil {
		return helper.Answer{}, err
	}
	answers := bounded{left: helper.MaxMessage}
	complaints := bounded{left: 4096}
	cmd := exec.CommandContext(ctx, l.Path, helper.Once, string(config))
	cmd.Args[0] = "rockpool-sandbox"
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(request)
	cmd.Stdout = &answers
	cmd.Stderr = &complaints
	if l.Lock != nil {
		files = append(files, l.Lock)
	}
	cmd.ExtraFiles = files
	cmd.WaitDelay = time.Second
	// Its own mount namespace, so that no mount can be left on the machine
	// whenever it dies; its own session, so that Ctrl-C doesn't reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setsid: true}
	var ran error
	switch {
	case l.Config.Rootless == nil:
		ran = cmd.Run()
	case q.Command == helper.Create:
		ran = l.runMapped(ctx, cmd)
	default: // whose processes these are, as the machine counts, may end them
		cmd.SysProcAttr.Unshareflags = 0
		ran = cmd.Run()
	}
	if ctx.Err() != nil {
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", q.Command, q.ID, context.Cause(ctx))
	}
	var answer helper.Answer
	if err := json.Unmarshal(answers.kept.Bytes(), &answer); err != nil {
		if said := strings.TrimSpace(complaints.kept.String()); said != "" {
			ran = errors.Join(ran, errors.New(said))
		}
		err = cmp.Or(ran, err)
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: rockpool-sandbox gave no answer: %w", q.Command, q.ID, err)
	}
	if answer.Error != "" {
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", q.Command, q.ID, refused(answer))
	}
	return answer, ran
}

// A RefusalError is what rockpool-sandbox answered instead of a sandbox.
type RefusalError struct {
	Line  string
	Final bool // the same request will never be served
	// Changed says that the sandbox's packet filter isn't what was made, which
	// is certain.
	Changed bool
}

func refused(a helper.Answer) *RefusalError { return &RefusalError{a.Error, a.Final, a.Changed} }

func (e *RefusalError) Error() string { return e.Line }

// bounded keeps the first bytes that are written to it and drops the rest.
type bounded struct {
	kept bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	keep := p[:min(len(p), b.left)]
	b.left -= len(keep)
	b.kept.Write(keep)
	return len(p), nil
}
