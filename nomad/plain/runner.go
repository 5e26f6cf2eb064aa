package plain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

// Config says how a runner is served.
type Config struct {
	// Name tells the runner from all others that its processes may see, as its
	// allocation's id does: letters, digits and hyphens.
	Name string
	// Workspace is an absolute path in the runner; it is made if it isn't there.
	// "": "workspace" in the task's directory.
	Workspace string
	// Report is called, from any goroutine, with what no client is told, such as
	// an execution that could not be ended.
	Report func(error)
}

// A Runner serves the agent's protocol for one runner that has no agent. Its
// methods are safe for concurrent use.
type Runner struct {
	exec      Exec
	config    Config
	owner     string // what its scripts are called by, and its executions' marks begin with
	instance  string
	workspace string
	room      string // directory for FIFOs
	have      []string
	server    *serve.Server

	kinds

	ctx     context.Context // of all that runs: Close ends it
	cancel  context.CancelCauseFunc
	running sync.WaitGroup // scripts and streams

	mu     sync.Mutex // guards what follows
	closed bool
}

// ErrImpossible is in the chain of the errors of Open that say that the image
// lacks what this package can't do without.
var ErrImpossible = errors.New("commands can't be run in this image without the agent")

// Open looks what there is to work with in a runner, and ends what an earlier
// server left running in it. A runner has at most one Runner at a time. Ctx
// bounds the opening only.
func Open(ctx context.Context, exec Exec, config Config) (*Runner, error) {
	r := &Runner{exec: exec, config: config, owner: "rockpool:" + config.Name + ":", instance: secret()[:8]}
	if r.config.Report == nil {
		r.config.Report = func(error) {}
	}
	r.kinds = scripts()
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := again(ctx, func() error { return r.look(ctx) }); err != nil {
		r.cancel(err)
		r.running.Wait()
		return nil, fmt.Errorf("look into the runner: %w", err)
	}
	r.server = serve.New(host{r}, serve.Config{Version: "plain", Report: r.config.Report})
	return r, nil
}

func (r *Runner) look(ctx context.Context) error {
	told := values(markVariable+"="+r.owner, r.owner, r.config.Workspace)
	printed, words, err := r.call(ctx, r.openKind, 64<<10, told)
	if err != nil {
		return err
	}
	if len(words) == 0 || words[0] != "ended" {
		return fmt.Errorf("%w: /proc isn't there", ErrImpossible)
	}
	lines := strings.Split(string(printed), "\n")
	if len(lines) != 3 {
		return fmt.Errorf("the runner's answer isn't understood: %d lines", len(lines))
	}
	r.workspace, r.room, r.have = lines[0], lines[1], strings.Fields(lines[2])
	if !r.has("env") {
		return fmt.Errorf("%w: it lacks env", ErrImpossible)
	}
	if r.workspace == "" {
		return fmt.Errorf("%w: the workspace %s can't be made", ErrImpossible, r.config.Workspace)
	}
	return nil
}

func (r *Runner) has(tools ...string) bool {
	return !slices.ContainsFunc(tools, func(tool string) bool { return !slices.Contains(r.have, tool) })
}

// Workspace returns where relative paths begin, in the runner.
func (r *Runner) Workspace() string { return r.workspace }

// Dial opens a stream to what serves the agent's protocol. It never waits.
func (r *Runner) Dial(ctx context.Context) (net.Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	ours, theirs := net.Pipe()
	r.running.Go(func() { r.server.Handle(r.ctx, theirs) })
	return patient{ours}, nil
}

// patient is a stream whose writes wait without a limit of their own. A client of a real
// agent gives one up that doesn't read for some seconds. Here this process reads, and
// waits for the runner's shell: on a busy machine one file may take it longer. The
// caller's context and the exec's silence bound that.
type patient struct{ net.Conn }

func (patient) SetWriteDeadline(time.Time) error { return nil }

// closeWithin is for how long Close tries to end what runs.
const closeWithin = 30 * time.Second

// Close ends all executions, and returns when nothing of this Runner is left.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	late := time.AfterFunc(closeWithin, func() { r.cancel(errClosed) })
	defer late.Stop()
	r.server.Close()
	r.cancel(errClosed)
	r.running.Wait()
}

// Missing says, for people, what the runner can't do for want of the agent.
func (r *Runner) Missing() []string {
	missing := slices.Clone(always)
	for _, m := range []struct {
		without []string
		what    string
	}{
		{[]string{"grep"}, "the image has no grep: a process that leaves its command's session may outlive its execution"},
		{[]string{"setsid"}, "the image has no setsid: a process that clears its environment may outlive its execution"},
		{[]string{"mkfifo", "cat"}, "the image has no mkfifo and cat: with a terminal, stderr can't be told from stdout"},
		{[]string{"stty"}, "the image has no stty: a terminal may get its size only after its command has begun"},
		{[]string{"sleep"}, "the image has no sleep: the last output may be lost, and its execution with it"},
		{[]string{"find", "stat"}, "the image has no find and stat: files can't be listed or read"},
		{[]string{"cat", "mv", "rm", "mkdir", "chmod"}, "the image has no cat, mv, rm, mkdir and chmod: files can't be written"},
	} {
		if !r.has(m.without...) {
			missing = append(missing, m.what)
		}
	}
	return missing
}

// always is missing whatever the image has.
var always = []string{
	"executions don't survive a restart of the server: they end as LOST, and what they left running is ended when the runner is used next",
	"while no server is there, no time limit ends an execution",
	"usage: processor time and peak memory aren't measured",
	"limits of processor time and of processes can't be set for an execution; one of file sizes is rounded up to 512 bytes",
	"commands can't be run as another user, privileged ones neither: they run as the task's user",
	"an exit code of 128 and a signal's number can't be told from the signal",
	"with a terminal, stderr is a pipe and no second terminal",
	"commands have the variable " + markVariable + " in their environment; a process without it that left its session and its parent may outlive its execution",
	"ending an execution, a signal, and each access to files cost an exec of the cluster's own",
}

// markVariable marks the processes of an execution.
const markVariable = "ROCKPOOL_EXECUTION"

// alive returns an error that a client may see once the Runner is closed.
func (r *Runner) alive() error {
	if r.ctx.Err() != nil {
		return &agent.Error{Code: agent.ErrInternal, Message: "the runner is being closed"}
	}
	return nil
}
