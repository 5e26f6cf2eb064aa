package jobe

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/request"
)

// directory is the directory of a program's files in the workspace.
const directory = "run"

const (
	// patience is how long a run waits for its turn and a runner. A client that gives up earlier
	// closes the connection, which ends its run.
	patience = 15 * time.Minute
	// attempts bounds the runners of a run, if they are lost before it begins.
	attempts = 3
)

// run serves POST runs: it runs a program, waits for its end, and returns Jobe's result. The HTTP
// status is 200 also when the program fails. The answer may begin with white space.
func (a *api) run(w http.ResponseWriter, r *http.Request) (any, error) {
	j, in, of, err := a.read(w, r)
	if err != nil {
		return overloaded(err)
	}
	return a.early(w, r, func() (any, error) { return a.complete(r, j, &in, &of) })
}

// early returns the result of work. If that takes long, it answers itself.
func (a *api) early(w http.ResponseWriter, r *http.Request, work func() (any, error)) (answer any, err error) {
	begun := clients.Early(w, a.Early, func(header http.Header) { header.Set("Content-Type", jsonType) }, func() { answer, err = work() })
	if !begun {
		return answer, err
	}
	if err != nil { // the status was sent before
		_, why := a.explain(r, err)
		answer = result{Outcome: internal, Stderr: why}
	}
	_, _ = w.Write(encode(answer)) // fails only if the client closed the connection
	return sent{}, nil
}

// complete runs a program when its turn comes, and returns Jobe's result.
func (a *api) complete(r *http.Request, j job, in *request.Run, of *request.Batch) (any, error) {
	until := time.Now().Add(patience)
	leave, err := a.turn(r.Context(), until)
	if err != nil {
		return overloaded(err)
	}
	defer leave()
	batch, err := a.start(r, until, in, of)
	if err != nil {
		return overloaded(err)
	}
	hold := compat.ReservationOf(r)
	build, run, err := a.follow(r.Context(), batch, hold)
	if err != nil { // the client closed the connection, or there is no memory: don't start a run that nobody waits for
		_, _ = a.Engine.Batches.Cancel(context.WithoutCancel(r.Context()), batch)
		return overloaded(err)
	}
	var answer encodedJSON
	// Encoding briefly takes several times the output's memory, so requests take turns.
	err = hold.Turn(r.Context(), build.size()+run.size(), func() error {
		judged := j.judge(build, run)
		judged.Hint = cmp.Or(build.hint, run.hint)
		judged.RunID = string(batch)
		answer = encode(judged)
		return hold.Grow(int64(len(answer) - build.size() - run.size()))
	})
	if err != nil {
		return overloaded(err)
	}
	return answer, nil
}

// start starts a run. Before it returns, it frees the request's body: in and of are zero then.
func (a *api) start(r *http.Request, until time.Time, in *request.Run, of *request.Batch) (runtime.BatchID, error) {
	defer func() {
		*in, *of = request.Run{}, request.Batch{}
		compat.ReservationOf(r).ReleaseMemory()
	}()
	var b runtime.Batch
	err := attempt(until, func(waitFor int) (err error) {
		in.WaitFor = &waitFor
		b, _, err = a.Engine.Batches.Run(r.Context(), *in, *of)
		return err
	})
	return b.ID, err
}

// read parses a request to the input of the engine. Its bytes are held only once, since a run may
// wait for a runner.
func (a *api) read(w http.ResponseWriter, r *http.Request) (j job, in request.Run, of request.Batch, err error) {
	p, err := a.caller(r.Context())
	if err != nil {
		return j, in, of, err
	}
	hold := compat.ReservationOf(r)
	body, err := a.ReadBody(w, r)
	if err != nil {
		return j, in, of, err
	}
	var s spec
	err = hold.Turn(r.Context(), len(body), func() error {
		var refused *refusal
		if s, refused = parseSpec(body); refused != nil {
			return refused
		}
		return nil
	})
	if err == nil {
		// The memory of the body is taken already.
		err = hold.Grow(int64(s.size() - len(body)))
	}
	if err != nil {
		return j, in, of, err
	}
	recipe, _ := a.Languages.ByID(strings.ToLower(s.language)) // an unknown language has no environments
	env, there, err := a.Engine.Environments.First(r.Context(), recipe.Environments)
	if err != nil {
		return j, in, of, err
	}
	if !there {
		return j, in, of, unknownLanguage(s.language)
	}
	j = newJob(s, recipe, a.dialect(recipe))
	write, err := a.filesOf(p.Tenant, s, j.fileName, hold)
	if err == nil { // a wrong name needs its status, which an early answer hasn't
		err = files.ValidateUpdate("files", files.Update{Write: write})
	}
	if err != nil {
		return j, in, of, err
	}
	in = request.Run{EnvironmentID: env.ID, Files: write, WorkingDirectory: runtime.Workspace + "/" + directory, Command: j.run, CommandLine: j.shown, Caller: "jobe " + p.ID}
	limits := ceiling{output: env.OutputLimit, pace: a.pace(r.Context(), env)}
	of = request.Batch{Cases: []request.Case{{Stdin: []byte(s.input), Bounds: s.parameters.bounds(j.dialect, limits)}}}
	if j.build != nil {
		of.Build = &request.Build{Command: j.build, Bounds: s.parameters.buildBounds(j.dialect, limits)}
	}
	return j, in, of, nil
}

// filesOf returns the files of a run, the source first. A file of the cache with the same name
// replaces the source.
func (a *api) filesOf(tenant runtime.TenantID, s spec, source string, hold *clients.Reservation) ([]runtime.FileWrite, error) {
	files := []runtime.FileWrite{{Path: directory + "/" + source, Data: []byte(s.source)}}
	bytes := int64(0)
	for _, f := range s.files {
		content, there := a.files.get(tenant, f.id)
		if !there {
			return nil, refuse(http.StatusNotFound, "One or more of the specified files is missing/unavailable")
		}
		if bytes += int64(len(content)); bytes > a.MaxBody {
			return nil, bad("the files of a run must be at most %d bytes together", a.MaxBody)
		}
		if err := hold.Grow(int64(len(content))); err != nil { // the run keeps the content even if the cache evicts it
			return nil, err
		}
		if f.name == source {
			files[0].Data = content
			continue
		}
		files = append(files, runtime.FileWrite{Path: directory + "/" + f.name, Data: content})
	}
	return files, nil
}

// attempt calls begin, which may wait for a runner for that many seconds. It tries again if the
// runner was lost before anything started in it. No attempt waits longer than until.
func attempt(until time.Time, begin func(waitFor int) error) (err error) {
	for range attempts {
		left := max(time.Until(until), 0)
		if err = begin(int(math.Ceil(left.Seconds()))); runtime.CodeOf(err) != runtime.CodeRunnerGone {
			break
		}
	}
	return err
}

// follow waits for a batch's end and collects its output. The engine bounds the output; its memory
// is taken from hold.
func (a *api) follow(ctx context.Context, id runtime.BatchID, hold *clients.Reservation) (build, run phase, err error) {
	reader, err := a.Engine.Batches.Events(ctx, id, "")
	if err != nil {
		return build, run, err
	}
	defer reader.Close()
	for {
		event, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return build, run, nil
		}
		if err != nil {
			return build, run, err
		}
		if event.Finished != nil {
			// A run without an end of its own gets the batch's message.
			if run.end.Outcome == "" {
				run.end = runtime.End{Outcome: runtime.OutcomeFailed, Message: event.Finished.Message}
			}
			continue
		}
		at := &run
		if event.Case == runtime.BuildCase {
			at = &build
		}
		if err := at.take(event, hold); err != nil {
			return build, run, err
		}
	}
}

func (p *phase) size() int { return len(p.stdout) + len(p.stderr) }

// take adds an event to the phase. The memory of output is taken from hold.
func (p *phase) take(event batch.Event, hold *clients.Reservation) error {
	switch event.Event.Kind {
	case events.Output:
		stream := &p.stdout
		if event.Event.Stream == runtime.Stderr {
			stream = &p.stderr
		}
		if err := hold.Grow(int64(len(event.Event.Data))); err != nil {
			return err
		}
		*stream = append(*stream, event.Event.Data...)
	case events.Lost:
		p.lost = "output is missing: " + event.Event.Reason
	case events.Finished:
		p.end, p.hint = event.Event.Execution.End, event.Event.Execution.Hint
	}
	return nil
}

// overloaded answers an error of a run. A run without a runner gets outcome 21, never an HTTP
// error.
func overloaded(err error) (any, error) {
	switch runtime.CodeOf(err) {
	case runtime.CodeNoRunnerAvailable, runtime.CodeQuotaExceeded, runtime.CodeLimitExceeded, runtime.CodeClusterUnavailable:
		return result{Outcome: overload}, nil
	case runtime.CodeInvalidInput, runtime.CodeEnvironmentNotFound: // the environment was deleted just now
		return nil, bad("%s", message(err))
	case runtime.CodeRunnerGone, runtime.CodeStorageFull, runtime.CodeFileError, runtime.CodeSlowConsumer, runtime.CodeConflict,
		runtime.CodeExecutionNotFound, runtime.CodeBatchNotFound, runtime.CodeTicketNotFound:
		return result{Outcome: internal, Stderr: runtime.MessageOf(err)}, nil
	}
	return nil, err
}

// message returns the message of an error for clients, with Jobe's name of the field.
func message(err error) string {
	e, ok := errors.AsType[*runtime.Error](err)
	if !ok {
		return ""
	}
	for _, field := range []struct{ ours, theirs string }{
		{"files.0.", "sourcefilename"}, {"files", "file_list"}, {"cases.0.stdin", "input"}, {"cases.0.limits.outputBytes", "streamsize"},
		{"build.limits.outputBytes", "streamsize"}, {"build.command", "compileargs, linkargs"}, {"command", "interpreterargs, runargs"},
	} {
		if strings.HasPrefix(e.Field, field.ours) {
			return field.theirs + ": " + e.Message
		}
	}
	return e.Message
}

// programsPerCPU is how many programs of a tenant run concurrently for each CPU of the cluster. With
// two, a CPU has work while a program starts or waits. Those of all tenants are at most twice as
// many, so that one tenant leaves turns to others, even if its programs sleep or get no runner.
const programsPerCPU = 2

// pace sets the number of turns. It returns how many seconds a program of an environment needs at
// least for each second of processor time: more than 1 if the environment has less than one CPU.
func (a *api) pace(ctx context.Context, env runtime.Environment) float64 {
	cpus, coreMHz, err := a.Capacity(ctx)
	if err == nil && cpus > 0 { // else the last known number
		a.turns.SetLimit(2 * programsPerCPU * cpus)
	}
	if err != nil || coreMHz <= env.Resources.CPUMHz {
		return 1
	}
	return float64(coreMHz) / float64(env.Resources.CPUMHz)
}

// turn waits until a program of the caller may run. Tenants take turns, and so do the callers of a
// tenant. Leave ends the turn.
func (a *api) turn(ctx context.Context, until time.Time) (leave func(), err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, until, runtime.Errorf(runtime.CodeNoRunnerAvailable, "too many programs were waiting"))
	defer cancel()
	p := access.FromContext(ctx)
	return a.turns.Waiter(p.Tenant, p.ID, 0).Enter(ctx)
}
