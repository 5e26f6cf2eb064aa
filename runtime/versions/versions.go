// Package versions finds out which languages an environment really has, and in which version. It
// runs their version commands in a runner of the environment, on behalf of the first caller that
// asks. It keeps the result until the environment's runners are replaced.
package versions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A Cache keeps the versions of a server's environments. Its methods are safe for concurrent use.
type Cache struct {
	engine    *engine.Services
	languages *language.Set

	mu    sync.Mutex // guards known
	known map[runtime.EnvironmentID]*measurement
}

// New returns an empty cache.
func New(e *engine.Services, languages *language.Set) *Cache {
	return &Cache{engine: e, languages: languages, known: map[runtime.EnvironmentID]*measurement{}}
}

// A measurement is one measurement of an environment. Its fields may be read after done is closed.
type measurement struct {
	of       runtime.Environment // as it was when the measurement started
	done     chan struct{}       // closed when the measurement has ended
	revision int                 // of the measured runner; 0 means none
	versions map[string]string   // by language id; nil means the measurement failed
	again    time.Time           // earliest repetition, after a failure or for an older revision
}

// Limits of a measurement.
const (
	patience   = 30          // seconds to wait for a runner
	perCommand = 10          // seconds for one version command
	pause      = time.Minute // minimum time before a repetition
	most       = 10_000      // environments kept
)

// Versions returns the versions of an environment's languages by id. It leaves out languages that
// the environment lacks, and those without a version command. "" is a language that exists but
// prints no recognizable version.
//
// If the versions aren't known yet, it measures them and waits until ctx ends. Then known is false,
// and a later call has them. known is also false if they can't be measured. The reason is that the
// caller may not claim runners, that none was idle, or that something ended a command from outside.
// A failed measurement is repeated after a minute at the earliest.
//
// It checks no permission to see env: env must come from a call that did.
func (b *Cache) Versions(ctx context.Context, env runtime.Environment) (found map[string]string, known bool) {
	m := b.measurement(ctx, env)
	if m == nil {
		return nil, false
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		if !syncs.Closed(m.done) {
			return nil, false
		}
	}
	return m.versions, m.versions != nil
}

// measurement returns the current measurement, or starts one; nil if the caller may not start one.
func (b *Cache) measurement(ctx context.Context, env runtime.Environment) *measurement {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.known[env.ID]; m != nil && m.holds(env, time.Now()) {
		return m
	}
	if _, err := b.engine.Callers.Allowed(ctx, "claimRunner"); err != nil {
		return nil
	}
	if len(b.known) >= most {
		clear(b.known)
	}
	m := &measurement{of: env, done: make(chan struct{})}
	// The measurement continues when its caller leaves, for later ones.
	err := b.engine.Go(access.Alone(ctx), func(ctx context.Context) {
		defer close(m.done)
		if b.measure(ctx, env, m) != nil {
			m.versions = nil
		}
		m.again = time.Now().Add(pause)
	})
	if err != nil {
		return nil // the server is stopping
	}
	b.known[env.ID] = m
	return m
}

// holds reports whether nothing newer has to be measured now. An environment that was deleted and
// created again counts its revisions from 1, and may belong to another tenant.
func (m *measurement) holds(env runtime.Environment, now time.Time) bool {
	return m.of.SameRunners(env) && (!syncs.Closed(m.done) || m.versions != nil && m.revision >= env.RunnerRevision || now.Before(m.again))
}

// measure runs the version commands of the environment's languages one after the other in one
// runner. The audit log and the list of executions show the caller that asked.
func (b *Cache) measure(ctx context.Context, env runtime.Environment, m *measurement) error {
	runner, err := b.engine.Runners.Claim(ctx, request.Claim{EnvironmentID: env.ID, InactivityTimeout: new(2 * patience), WaitFor: new(patience)})
	if err != nil {
		return err
	}
	defer func() { _, _ = b.engine.Runners.Release(ctx, runner.ID) }() // on an error, its inactivity timeout ends it
	m.revision, m.versions = runner.Environment.Revision, map[string]string{}
	for _, recipe := range b.languages.All() {
		if len(recipe.Version) == 0 || !slices.Contains(recipe.Environments, env.ID) {
			continue
		}
		version, there, err := b.run(ctx, runner.ID, recipe)
		if err != nil {
			return err
		}
		if there {
			m.versions[recipe.ID] = version
		}
	}
	return nil
}

// run runs a language's version command in a runner. It returns the printed version, and whether
// the language exists there.
func (b *Cache) run(ctx context.Context, id runtime.RunnerID, recipe language.Recipe) (version string, there bool, err error) {
	x, err := b.engine.Executions.Start(ctx, request.Start{RunnerID: id, Command: recipe.Version, TimeLimit: new(perCommand)})
	if err != nil {
		return "", false, err
	}
	x, err = b.engine.Executions.Get(ctx, x.ID, (perCommand+patience)*time.Second)
	if err != nil {
		return "", false, err
	}
	if there, err = found(x); !there {
		return "", false, err
	}
	page, err := b.engine.Executions.Output(ctx, x.ID, "", 4096)
	if err != nil {
		return "", false, err
	}
	defer page.Close()
	chunks, _, _, err := page.Rest(func(events.Event) error { return nil })
	if err != nil {
		return "", false, err
	}
	var printed strings.Builder
	for _, chunk := range chunks {
		if chunk.Kind == events.Output {
			printed.Write(chunk.Data)
		}
	}
	return recipe.ParseVersion(printed.String()), true, nil
}

// found reports whether a version command found its language. It didn't if the command failed on
// its own or could not be started. Any other end, such as a limit, says nothing about the language,
// and is an error.
func found(x runtime.Execution) (bool, error) {
	switch {
	case x.Passed():
		return true, nil
	case x.State == runtime.ExecutionFinished && (x.End.Outcome == runtime.OutcomeExited || x.End.Outcome == runtime.OutcomeFailed):
		return false, nil
	}
	return false, fmt.Errorf("version command %s: %s", x.ID, x.End.Message)
}
