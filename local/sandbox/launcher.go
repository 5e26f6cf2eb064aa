package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
)

// A Launcher runs rockpool-sandbox. Its methods may be called at once, for
// different sandboxes.
type Launcher struct {
	Path     string // of the program rockpool-sandbox
	StateDir string // where the program keeps what libcontainer knows of each sandbox

	Runtimes oci.Runtimes // that sandboxes can be made with beside libcontainer

	// Lock is a file that the server has locked. Each helper shares the lock
	// until it ends, so that who gets it after the server was killed knows that
	// no helper of that server is still making a sandbox. Nil: none.
	Lock *os.File
}

// Create makes the sandbox id from spec, whose first process gets listener as
// its descriptor 3, divides its group unless commands is nil, and returns when
// the process runs and its limits were read back. With mapped the files of its
// root belong to users as the sandbox counts them, else to the machine's. With a
// runtime's name that makes it; gVisor's first process gets a directory for its
// socket in the listener's place. After
// an error nothing is left, unless ctx ended or the helper was killed: then
// Remove cleans up.
func (l Launcher) Create(ctx context.Context, id string, spec *specs.Spec, mapped bool, commands *cgroup.Limits, runtime string, listener *os.File) (helper.Answer, error) {
	q := helper.Request{Runtime: runtime, ID: id, StateDir: l.StateDir, Cgroup: spec.Linux.CgroupsPath, MapRoot: mapped, Spec: spec, Commands: commands}
	return l.run(ctx, helper.Create, q, listener)
}

// Remove kills what runs in a sandbox, in whatever state it is, and removes
// it; one that isn't there is success.
func (l Launcher) Remove(ctx context.Context, id, group string) error {
	_, err := l.run(ctx, helper.Remove, helper.Request{ID: id, StateDir: l.StateDir, Cgroup: group})
	return err
}

func (l Launcher) run(ctx context.Context, command string, q helper.Request, files ...*os.File) (helper.Answer, error) {
	request, err := json.Marshal(q)
	if err != nil {
		return helper.Answer{}, err
	}
	answers := bounded{left: helper.MaxMessage}
	complaints := bounded{left: 4096}
	runtimes, err := json.Marshal(l.Runtimes)
	if err != nil {
		return helper.Answer{}, err
	}
	cmd := exec.CommandContext(ctx, l.Path, command, string(runtimes))
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
	ran := cmd.Run()
	if ctx.Err() != nil {
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", command, q.ID, context.Cause(ctx))
	}
	var answer helper.Answer
	if err := json.Unmarshal(answers.kept.Bytes(), &answer); err != nil {
		if said := strings.TrimSpace(complaints.kept.String()); said != "" {
			ran = errors.Join(ran, errors.New(said))
		}
		err = cmp.Or(ran, err)
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: rockpool-sandbox gave no answer: %w", command, q.ID, err)
	}
	if answer.Error != "" {
		return helper.Answer{}, fmt.Errorf("%s sandbox %s: %w", command, q.ID, &RefusalError{answer.Error, answer.Final})
	}
	return answer, ran
}

// A RefusalError is what rockpool-sandbox answered instead of a sandbox.
type RefusalError struct {
	Line  string
	Final bool // the same request will never be served
}

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
