package guard

import (
	"context"
	"io"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/files"
)

// Runner returns a runner, and whether it exists for the caller.
func (g *Guard) Runner(ctx context.Context, id runtime.RunnerID) (runtime.Runner, bool, error) {
	p, err := g.caller(ctx, "runner")
	if err != nil {
		return runtime.Runner{}, false, err
	}
	r, ok := g.engine.Runner(id)
	if !ok || !p.SeesRunner(r) {
		return runtime.Runner{}, false, nil
	}
	return r, true, nil
}

// Runners returns the runners that the caller sees; see [engine.Engine.Runners].
func (g *Guard) Runners(ctx context.Context, filter engine.RunnerFilter) ([]runtime.Runner, error) {
	p, err := g.caller(ctx, "runners")
	if err != nil {
		return nil, err
	}
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	filter.Sees = p.SeesRunner
	return g.engine.Runners(filter), nil
}

// RunnerUsage measures a runner. It checks nothing: r must come from a call that did. See
// [engine.Engine.RunnerUsage].
func (g *Guard) RunnerUsage(ctx context.Context, r runtime.Runner) *runtime.RunnerUsage {
	return g.engine.RunnerUsage(ctx, r)
}

// WatchRunners follows the runners that the caller sees; see [engine.Engine.WatchRunners].
func (g *Guard) WatchRunners(ctx context.Context, id runtime.EnvironmentID) (<-chan events.RunnerEvent, error) {
	p, err := g.watches(ctx, "runnerEvents", id)
	if err != nil {
		return nil, err
	}
	return g.engine.WatchRunners(ctx, id, p.SeesRunner)
}

// TaskEvents returns the events of a runner that the caller sees, and none for another one. Only
// callers for all tenants get those of removed runners.
func (g *Guard) TaskEvents(ctx context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	p, err := g.caller(ctx, "taskEvents")
	if err != nil {
		return nil, err
	}
	if r, ok := g.engine.Runner(id); ok && !p.SeesRunner(r) || !ok && !p.AllTenants {
		return []runtime.TaskEvent{}, nil
	}
	return g.engine.TaskEvents(ctx, id)
}

// Claim claims a runner for the caller's tenant; see [engine.Engine.Claim].
func (g *Guard) Claim(ctx context.Context, in engine.ClaimInput) (runtime.Runner, error) {
	r, _, err := g.ClaimOrResume(ctx, in)
	return r, err
}

// ClaimOrResume claims a runner for the caller's tenant; see [engine.Engine.ClaimOrResume].
func (g *Guard) ClaimOrResume(ctx context.Context, in engine.ClaimInput) (r runtime.Runner, resumed bool, err error) {
	defer func() {
		record(ctx, g, "claimRunner", ofRunner, r.ID, owner(in.Tenant, err), err, resumption(resumed)...)
	}()
	p, err := g.caller(ctx, "claimRunner")
	if err != nil {
		return runtime.Runner{}, false, err
	}
	asked := in.EnvironmentID
	in.Tenant, in.EnvironmentID = g.claimant(p, asked)
	in.Keys = p.Keys()
	r, resumed, err = g.engine.ClaimOrResume(ctx, in)
	return r, resumed, noEnvironment(err, asked, in.EnvironmentID)
}

// claimant returns the tenant for which a caller claims in an environment, and the environment's id
// for the engine. It replaces an environment that the caller doesn't see by "". The engine refuses
// that like an unknown id, after its other checks.
func (g *Guard) claimant(p access.Principal, id runtime.EnvironmentID) (runtime.TenantID, runtime.EnvironmentID) {
	env, ok := g.engine.Environment(id)
	switch {
	case !ok:
		return p.Tenant, id
	case !p.SeesEnvironment(env):
		return p.Tenant, ""
	}
	return p.ActsFor(env.Tenant), id
}

// noEnvironment names the caller's environment in err, if claimant had replaced it.
func noEnvironment(err error, asked, used runtime.EnvironmentID) error {
	if used != asked && runtime.CodeOf(err) == runtime.CodeEnvironmentNotFound {
		return engine.NoEnvironment(asked)
	}
	return err
}

// Renew renews the claim of a runner that the caller sees.
func (g *Guard) Renew(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	if err := g.allowRunner(ctx, "renewRunner", id); err != nil {
		return runtime.Runner{}, err
	}
	return g.engine.Renew(ctx, id)
}

// Release releases a runner that the caller sees. It returns false if there is none.
func (g *Guard) Release(ctx context.Context, id runtime.RunnerID) (released bool, err error) {
	var outcome error
	defer g.recording(ctx, "releaseRunner", ofRunner, string(id))(&outcome)
	if outcome = g.allowRunner(ctx, "releaseRunner", id); runtime.CodeOf(outcome) == runtime.CodeRunnerGone {
		return false, nil
	}
	if outcome != nil {
		return false, outcome
	}
	released, err = g.engine.Release(ctx, id)
	if outcome = err; err == nil && !released {
		outcome = runtime.Gone(id)
	}
	return released, err
}

// Files lists files of a runner that the caller sees; see [files.Access.Files].
func (g *Guard) Files(ctx context.Context, id runtime.RunnerID, dir string, recursive bool) ([]runtime.File, error) {
	if err := g.allowRunner(ctx, "files", id); err != nil {
		return nil, err
	}
	return g.engine.Files(ctx, id, dir, recursive)
}

// File returns a file of a runner that the caller sees; see [files.Access.File].
func (g *Guard) File(ctx context.Context, id runtime.RunnerID, path string, follow bool) (runtime.File, bool, error) {
	if err := g.allowRunner(ctx, "file", id); err != nil {
		return runtime.File{}, false, err
	}
	return g.engine.File(ctx, id, path, follow)
}

// SearchFiles searches files of a runner that the caller sees; see [files.Access.SearchFiles].
func (g *Guard) SearchFiles(ctx context.Context, id runtime.RunnerID, search files.Search) (runtime.FileSearch, error) {
	if err := g.allowRunner(ctx, "searchFiles", id); err != nil {
		return runtime.FileSearch{}, err
	}
	return g.engine.SearchFiles(ctx, id, search)
}

// WatchFiles reports changes of files of a runner that the caller sees; see [files.Access.WatchFiles].
func (g *Guard) WatchFiles(ctx context.Context, id runtime.RunnerID, dir string, recursive bool) (*files.Watch, error) {
	if err := g.allowRunner(ctx, "fileChanges", id); err != nil {
		return nil, err
	}
	return g.engine.WatchFiles(ctx, id, dir, recursive)
}

// OpenFile opens a file of a runner that the caller sees; see [files.Access.OpenFile].
func (g *Guard) OpenFile(ctx context.Context, id runtime.RunnerID, path string, offset int64) (runtime.File, io.ReadCloser, error) {
	if err := g.allowRunner(ctx, "file", id); err != nil {
		return runtime.File{}, nil, err
	}
	return g.engine.OpenFile(ctx, id, path, offset)
}

// UpdateFiles changes files of a runner that the caller sees; see [files.Access.UpdateFiles].
func (g *Guard) UpdateFiles(ctx context.Context, id runtime.RunnerID, field string, of files.Update) (_ files.Updated, err error) {
	defer g.recording(ctx, "updateFiles", ofRunner, string(id))(&err)
	if err = g.allowRunner(ctx, "updateFiles", id); err != nil {
		return files.Updated{}, err
	}
	return g.engine.UpdateFiles(ctx, id, field, of)
}

// MoveFile moves a file of a runner that the caller sees; see [files.Access.MoveFile].
func (g *Guard) MoveFile(ctx context.Context, id runtime.RunnerID, from, to string, protected bool) (_ runtime.File, err error) {
	defer g.recording(ctx, "moveFile", ofRunner, string(id))(&err)
	if err = g.allowRunner(ctx, "moveFile", id); err != nil {
		return runtime.File{}, err
	}
	return g.engine.MoveFile(ctx, id, from, to, protected)
}

// UploadFile writes a file of a runner that the caller sees; see [files.Access.UploadFile].
func (g *Guard) UploadFile(ctx context.Context, id runtime.RunnerID, path string, mode uint32, protected bool, size int64, content io.Reader) (_ runtime.File, err error) {
	defer g.recording(ctx, "uploadFile", ofRunner, string(id))(&err)
	if err = g.allowRunner(ctx, "uploadFile", id); err != nil {
		return runtime.File{}, err
	}
	return g.engine.UploadFile(ctx, id, path, mode, protected, size, content)
}
