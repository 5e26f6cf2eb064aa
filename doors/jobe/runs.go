package jobe

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/language"
)

const (
	// patience is how long a run waits for a runner. Web servers in front of Moodle wait for 60 s or more.
	patience = 30 * time.Second
	// attempts is how many runners a run gets at most, where they go before anything begins there.
	attempts = 3
)

func (a *api) run(w http.ResponseWriter, r *http.Request) (any, error) {
	j, batch, err := a.start(w, r)
	if err != nil {
		return overloaded(err)
	}
	build, run, err := a.follow(r.Context(), batch)
	if r.Context().Err() != nil { // the client went: what it doesn't await takes no room
		_, _ = a.Guard.CancelBatch(context.WithoutCancel(r.Context()), batch)
	}
	if err != nil {
		return overloaded(err)
	}
	judged := j.judge(build, run)
	judged.RunID = string(batch)
	return judged, nil
}

// start begins what a request asks for. What the request has brought isn't held any longer.
func (a *api) start(w http.ResponseWriter, r *http.Request) (j job, _ runtime.BatchID, err error) {
	p, err := a.caller(r.Context())
	if err != nil {
		return j, "", err
	}
	body, done, err := a.body(w, r)
	if err != nil {
		return j, "", err
	}
	defer done()
	s, refused := parseSpec(body)
	if refused != nil {
		return j, "", refused
	}
	recipe, env, err := a.environment(r.Context(), s.language)
	if err != nil {
		return j, "", err
	}
	j = newJob(s, recipe)
	files, refused := a.filesOf(p.Tenant, s, j.fileName)
	if refused != nil {
		return j, "", refused
	}
	in := engine.RunInput{EnvironmentID: env.ID, Files: files, Command: j.run, CommandLine: j.shown, WaitFor: new(int(patience / time.Second)), Caller: "jobe " + p.ID}
	of := engine.BatchInput{Cases: []engine.CaseInput{{Stdin: []byte(s.input), Bounds: s.parameters.bounds(j.dialect, env.OutputLimit)}}}
	if j.build != nil {
		of.Build = &engine.BuildInput{Command: j.build, Bounds: s.parameters.buildBounds(j.dialect, env.OutputLimit)}
	}
	b, err := a.begin(r.Context(), in, of)
	return j, b.ID, err
}

// environment returns how programs of a language are run, and where the caller can run them.
func (a *api) environment(ctx context.Context, id string) (language.Recipe, runtime.Environment, error) {
	seen, err := a.environments(ctx)
	if err != nil {
		return language.Recipe{}, runtime.Environment{}, err
	}
	recipe, _ := a.recipe(id)
	env, there := seen.of(recipe)
	if !there {
		return language.Recipe{}, runtime.Environment{}, bad("Language '%s' is not known", id)
	}
	return recipe, env, nil
}

// environments are those that a caller sees.
type environments map[runtime.EnvironmentID]runtime.Environment

func (a *api) environments(ctx context.Context) (environments, error) {
	list, err := a.Guard.Environments(ctx)
	seen := make(environments, len(list))
	for _, env := range list {
		seen[env.ID] = env
	}
	return seen, err
}

// of returns the one that a language's programs run in.
func (e environments) of(recipe language.Recipe) (env runtime.Environment, there bool) {
	id, there := recipe.Environment(func(id runtime.EnvironmentID) bool { _, ok := e[id]; return ok })
	return e[id], there
}

// filesOf returns the files of a run, the source first. One of the cache may take the source's place.
func (a *api) filesOf(tenant runtime.TenantID, s spec, source string) ([]runtime.FileWrite, *refusal) {
	const mode = 0o644
	files := []runtime.FileWrite{{Path: source, Data: []byte(s.source), Mode: mode}}
	bytes := int64(0)
	for _, f := range s.files {
		content, there := a.files.get(tenant, f.id)
		if !there {
			return nil, refuse(http.StatusNotFound, "One or more of the specified files is missing/unavailable")
		}
		if bytes += int64(len(content)); bytes > a.MaxBody {
			return nil, bad("the files of a run must be at most %d bytes together", a.MaxBody)
		}
		if f.name == source {
			files[0].Data = content
			continue
		}
		files = append(files, runtime.FileWrite{Path: f.name, Data: content, Mode: mode})
	}
	return files, nil
}

// begin begins a batch. Nothing of it has begun in a runner that goes before.
func (a *api) begin(ctx context.Context, in engine.RunInput, of engine.BatchInput) (b runtime.Batch, err error) {
	for range attempts {
		b, _, err = a.Guard.RunBatch(ctx, in, of)
		if runtime.CodeOf(err) != runtime.CodeRunnerGone {
			break
		}
	}
	return b, err
}

// follow awaits a batch's end. The engine bounds what each phase prints.
func (a *api) follow(ctx context.Context, id runtime.BatchID) (build, run phase, err error) {
	reader, err := a.Guard.BatchEvents(ctx, id, "")
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
			if run.end.Outcome == "" {
				run.end = runtime.End{Outcome: runtime.OutcomeFailed, Message: event.Finished.Message}
			}
			continue
		}
		at := &run
		if event.Case == runtime.BuildCase {
			at = &build
		}
		at.take(event)
	}
}

func (p *phase) take(event batch.Event) {
	switch event.Event.Kind {
	case events.Output:
		if event.Event.Stream == runtime.Stderr {
			p.stderr = append(p.stderr, event.Event.Data...)
			return
		}
		p.stdout = append(p.stdout, event.Event.Data...)
	case events.Finished:
		p.end = event.Event.Execution.End
	}
}

// overloaded answers an error of a run: what has no room now is outcome 21, and never an HTTP error.
func overloaded(err error) (any, error) {
	switch runtime.CodeOf(err) {
	case runtime.CodeNoRunnerAvailable, runtime.CodeQuotaExceeded, runtime.CodeLimitExceeded, runtime.CodeClusterUnavailable:
		return result{Outcome: overload}, nil
	case runtime.CodeInvalidInput, runtime.CodeEnvironmentNotFound: // the latter was deleted just now
		return nil, bad("%s", err.Error())
	case runtime.CodeRunnerGone, runtime.CodeStorageFull, runtime.CodeFileError:
		return result{Outcome: internal, Stderr: runtime.MessageOf(err)}, nil
	}
	return nil, err
}
