package poseidon

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
)

// Limits of the executions that wait for their WebSocket. CodeOcean opens that immediately.
const (
	pendingLife   = time.Minute
	pendingRunner = 16 // for one runner; a further one replaces the oldest
)

// pendingExecutions are requested executions that wait for their WebSocket. Its methods are safe for
// concurrent use.
type pendingExecutions struct {
	memory *quota.Memory // nil has no limit

	mu sync.Mutex // guards of
	of map[runtime.RunnerID][]pendingExecution
}

// A pendingExecution is an execution that waits for its WebSocket.
type pendingExecution struct {
	id    string
	in    request.Start
	kept  *quota.Kept
	timer *time.Timer // removes it after pendingLife
}

// add keeps an execution for pendingLife, and returns its id. It returns QUOTA_EXCEEDED if the
// tenant has used up its share; then it drops no other execution.
func (p *pendingExecutions) add(in request.Start) (string, error) {
	bytes := int64(1 << 10)
	for _, arg := range in.Command {
		bytes += int64(len(arg))
	}
	for _, v := range in.Variables {
		bytes += int64(len(v.Name) + len(v.Value))
	}
	kept, err := p.memory.Keep(in.Tenant, bytes, "an execution that waits for its WebSocket")
	if err != nil {
		return "", err
	}
	w := pendingExecution{id: uuid.NewString(), in: in, kept: kept}
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := p.of[in.RunnerID]; len(all) == pendingRunner {
		p.remove(in.RunnerID, all[0].id)
	}
	w.timer = time.AfterFunc(pendingLife, func() { p.take(in.RunnerID, w.id) })
	p.of[in.RunnerID] = append(p.of[in.RunnerID], w)
	return w.id, nil
}

// has reports whether an execution with this id waits for a runner.
func (p *pendingExecutions) has(runner runtime.RunnerID, id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.of[runner], func(w pendingExecution) bool { return w.id == id })
}

// any reports whether any execution waits for a runner.
func (p *pendingExecutions) any(runner runtime.RunnerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.of[runner]) > 0
}

// take returns and removes the execution with this id. Only one caller gets it.
func (p *pendingExecutions) take(runner runtime.RunnerID, id string) (request.Start, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remove(runner, id)
}

// remove does the work of take. The caller holds mu.
func (p *pendingExecutions) remove(runner runtime.RunnerID, id string) (request.Start, bool) {
	all := p.of[runner]
	for i, w := range all {
		if w.id != id {
			continue
		}
		w.timer.Stop()
		w.kept.Free()
		if p.of[runner] = append(append([]pendingExecution{}, all[:i]...), all[i+1:]...); len(all) == 1 {
			delete(p.of, runner)
		}
		return w.in, true
	}
	return request.Start{}, false
}

// drop removes all executions that wait for a runner.
func (p *pendingExecutions) drop(runner runtime.RunnerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.of[runner] {
		w.timer.Stop()
		w.kept.Free()
	}
	delete(p.of, runner)
}

// shell runs a command line, passed as an argument, with bash if it is installed, as CodeOcean
// expects, and otherwise with sh.
const shell = `command -v bash >/dev/null && exec bash -c "$1"; exec sh -c "$1"`

// mayExecute returns the caller if it may do everything that a WebSocket needs. A grant may not,
// since it can't release runners.
func (a *api) mayExecute(r *http.Request) (caller access.Principal, err error) {
	for _, op := range []access.Operation{"startExecution", "executionEvents", "writeStdin", "signalExecution", "releaseRunner"} {
		if caller, err = a.Engine.Callers.Allowed(r.Context(), op); err != nil {
			return caller, err
		}
	}
	return caller, nil
}

// execute keeps an execution until its WebSocket is opened.
func (a *api) execute(w http.ResponseWriter, r *http.Request) error {
	var asked struct {
		Command             string            `json:"command"`
		PrivilegedExecution bool              `json:"privilegedExecution"`
		TimeLimit           int               `json:"timeLimit"` // seconds; 0 sets none
		Environment         map[string]string `json:"environment"`
	}
	if err := a.read(w, r, &asked); err != nil {
		return err
	}
	caller, err := a.mayExecute(r)
	if err != nil {
		return err
	}
	runner, err := a.runner(r)
	if err != nil {
		return err
	}
	in := request.Start{
		Tenant: caller.Tenant, RunnerID: runner.ID, Command: []string{runtime.Shell, "-c", shell, runtime.Shell, asked.Command},
		TimeLimit: &asked.TimeLimit, Terminal: &runtime.TerminalSize{Columns: 80, Rows: 24}, Privileged: asked.PrivilegedExecution,
		Variables: []runtime.Variable{{Name: "CODEOCEAN", Value: "true"}},
	}
	if runtime.ValidateCommandLine(asked.Command) == nil {
		in.CommandLine = asked.Command // to show to people
	}
	for _, name := range slices.Sorted(maps.Keys(asked.Environment)) { // sorted, so that the same request gets the same error
		if name != "CODEOCEAN" {
			in.Variables = append(in.Variables, runtime.Variable{Name: name, Value: asked.Environment[name]})
		}
	}
	if err := in.Validate(); err != nil { // now, since a WebSocket can't answer 400
		return byName(err, in.Variables)
	}
	id, err := a.pending.add(in)
	if err != nil {
		return err
	}
	address := url.URL{Scheme: "ws", Host: r.Host, Path: root + "/runners/" + string(runner.ID) + "/websocket", RawQuery: "executionID=" + id}
	if clients.Encrypted(r) {
		address.Scheme = "wss"
	}
	answer(w, http.StatusOK, map[string]string{"websocketUrl": address.String()})
	return nil
}

// byName replaces the index of a variable in an error by its name, since the client sent an object.
func byName(err error, variables []runtime.Variable) error {
	name, refused := compat.NamedVariable(err, variables)
	if refused == nil {
		return err
	}
	return status{http.StatusBadRequest, fmt.Sprintf("environment.%.64q: %s", name, refused.Message)}
}
