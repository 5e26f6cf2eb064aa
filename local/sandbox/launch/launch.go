// Package launch makes and removes sandboxes through rockpool-sandbox: through a process for each
// request, a maker that serves many, or a listening helper.
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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime/disk"
)

// Direct starts rockpool-sandbox itself. Its methods are safe for concurrent use, for different
// sandboxes.
type Direct struct {
	Path   string        // of the program rockpool-sandbox
	Config helper.Config // Parent is set from each sandbox's cgroup

	// Lock is a file that the server has locked. Each helper shares the lock until it ends. So a
	// server that gets the lock after another one was killed knows that no helper of that one is
	// still making a sandbox. It is nil without a lock.
	Lock *os.File

	// Maker makes and removes sandboxes as root. If it is nil, each request starts a process.
	Maker *Maker

	// Without root only, with Config.Rootless:
	Users   Subordinate
	Worker  string          // a program that runs image.Work for helper.WorkerArgument
	Working *sync.WaitGroup // workers that haven't ended
}

// TakeLock locks the file for a server. It waits up to 6 s for the helpers of a killed server,
// because what they are making must exist before it can be removed. A helper that removes a sandbox
// may wait 5 s for its processes.
func TakeLock(file *os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()
	return disk.Lock(ctx, file)
}

// Create makes the requested sandbox in a cgroup, and passes listener to its first process as
// descriptor 3. It returns when the process runs and its limits were read back. After an error
// nothing is left, unless ctx ended or the helper was killed: then Remove cleans up.
func (l Direct) Create(ctx context.Context, group string, q helper.Request, listener *os.File) (helper.Answer, error) {
	return l.run(ctx, group, q, listener)
}

// Remove kills everything that runs in a sandbox and removes it, in whatever state it is. A missing
// sandbox is success.
func (l Direct) Remove(ctx context.Context, id, group string) error {
	return l.Do(ctx, group, helper.Request{Command: helper.Remove, ID: id})
}

// Probe implements oci.Runtimes.Probe for the configured runtimes.
func (l Direct) Probe(ctx context.Context, name string) (version string, noTime bool, err error) {
	return l.Config.Runtimes.Probe(ctx, name)
}

// Do performs a request that neither makes nor removes a sandbox.
func (l Direct) Do(ctx context.Context, group string, q helper.Request) error {
	_, err := l.run(ctx, group, q)
	return err
}

// run performs a request with a maker if possible, else with a process of its own. files become its
// descriptors from 3 on.
func (l Direct) run(ctx context.Context, group string, q helper.Request, files ...*os.File) (answer helper.Answer, err error) {
	q.Protocol = helper.Protocol
	switch {
	case path.Base(group) != q.ID:
		err = fmt.Errorf("%s isn't its cgroup", group)
	case l.Maker != nil && (q.ByMaker() || q.Command == helper.Remove):
		answer, err = l.order(ctx, path.Dir(group), q, files)
	default:
		answer, err = l.runOnce(ctx, group, q, files)
	}
	if err != nil {
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", q.Command, q.ID, err)
	}
	return answer, nil
}

func (l Direct) runOnce(ctx context.Context, group string, q helper.Request, files []*os.File) (helper.Answer, error) {
	cmd := l.command(ctx, helper.Once, path.Dir(group))
	request, _ := json.Marshal(q) // it can't fail
	// A helper that writes without end must not fill the server's memory.
	answers := limitedBuffer{left: helper.MaxMessage}
	complaints := limitedBuffer{left: 4096}
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &answers, &complaints
	cmd.ExtraFiles = slices.Concat(files, cmd.ExtraFiles)
	// Otherwise a process that holds the helper's output open would keep Run from returning.
	cmd.WaitDelay = time.Second
	var ran error
	switch {
	case l.Config.Rootless == nil:
		ran = cmd.Run()
	case q.Command == helper.Create:
		ran = l.runMapped(ctx, cmd)
	default: // other commands work on processes of this pid namespace, and this user may kill them
		cmd.SysProcAttr.Unshareflags = 0
		ran = cmd.Run()
	}
	if ctx.Err() != nil {
		return helper.Answer{}, context.Cause(ctx)
	}
	answer, err := parse(answers.kept.Bytes())
	if _, refused := errors.AsType[*RefusalError](err); err != nil && !refused {
		if said := strings.TrimSpace(complaints.kept.String()); said != "" {
			ran = errors.Join(ran, errors.New(said))
		}
		return helper.Answer{}, fmt.Errorf("rockpool-sandbox gave no answer: %w", cmp.Or(ran, err))
	}
	return answer, cmp.Or(err, ran)
}

// command returns a command of rockpool-sandbox that shares the lock. It has its own mount namespace, so that
// no mount is left on the machine whenever it dies. It has its own session, so that Ctrl-C in the server's
// terminal doesn't reach it.
func (l Direct) command(ctx context.Context, mode, parent string) *exec.Cmd {
	l.Config.Parent = parent
	config, _ := json.Marshal(l.Config) // it can't fail
	cmd := exec.CommandContext(ctx, l.Path, mode, string(config))
	cmd.Args[0] = "rockpool-sandbox"
	cmd.Dir = "/"
	if l.Lock != nil {
		cmd.ExtraFiles = []*os.File{l.Lock}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setsid: true}
	return cmd
}

// A RefusalError is an error that rockpool-sandbox answered.
type RefusalError struct {
	Line  string
	Final bool // the same request will never succeed
	// Changed means that the sandbox's packet filter certainly differs from the one that was made.
	Changed bool
}

// parse returns an answer. If that is a refusal, the error is a [*RefusalError].
func parse(text []byte) (answer helper.Answer, err error) {
	if err := json.Unmarshal(text, &answer); err != nil {
		return helper.Answer{}, err
	}
	if answer.Error != "" {
		return helper.Answer{}, &RefusalError{answer.Error, answer.Final, answer.Changed}
	}
	return answer, nil
}

func (e *RefusalError) Error() string { return e.Line }

// limitedBuffer keeps the first bytes that are written to it, and drops the rest.
type limitedBuffer struct {
	kept bytes.Buffer
	left int
}

// Write implements io.Writer. It never fails: dropped bytes count as written.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	keep := p[:min(len(p), b.left)]
	b.left -= len(keep)
	b.kept.Write(keep)
	return len(p), nil
}

// WriteProgram writes a program that will be executed. It replaces the file by a rename, because a
// running program's file can't be written. A file with the same content is left alone, so that a
// full disk doesn't prevent clean-up.
//
// No process is started while the file is open for writing, because the kernel refuses to execute
// such a file. A forked child holds its parent's descriptors until it executes its own program.
func WriteProgram(path string, data []byte) error {
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, data) {
		return nil
	}
	temp := path + ".new"
	syscall.ForkLock.RLock()
	err := os.WriteFile(temp, data, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	return os.Rename(temp, path)
}
