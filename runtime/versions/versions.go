// Package versions finds which languages an environment really has, and in which version: it runs their version
// commands in a runner of the environment, for the caller that asks first. It keeps what it found until the
// environment's runners are made anew.
package versions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/guard"
	"github.com/rockpool/rockpool/runtime/language"
)

// A Book has the versions of a server's environments. Its methods are safe for concurrent use.
type Book struct {
	guard     *guard.Guard
	languages *language.Set

	mu    sync.Mutex // guards known
	known map[runtime.EnvironmentID]*measurement
}

// New returns a book that knows nothing yet.
func New(g *guard.Guard, languages *language.Set) *Book {
	return &Book{guard: g, languages: languages, known: map[runtime.EnvironmentID]*measurement{}}
}

// A measurement is one of an environment. Its fields are read after done is closed.
type measurement struct {
	of       runtime.Environment // as it was when the measurement started
	done     chan struct{}
	revision int               // of the runner that was measured; 0: none was
	versions map[string]string // by the languages' ids; nil: it could not be measured
	again    time.Time         // when it may be repeated, if it failed or measured an older revision
}

// How long a measurement may take.
const (
	patience   = 30          // seconds, for a runner
	perCommand = 10          // seconds, for one version command
	pause      = time.Minute // before a measurement is repeated
	most       = 10_000      // environments that are remembered
)

// Versions returns the versions of an environment's languages by their ids. Languages that the environment lacks, and
// those without a version command, are left out. "" is a language that is there and prints no version that its pattern
// finds. Where the versions aren't known yet, it measures them, and waits until ctx ends: then known is false, and a
// later call has them. Known is also false where they can't be measured: the caller can't claim runners, none was
// idle, or a command was ended by something else than itself. A failed measurement is repeated after a minute at the
// earliest.
//
// The environment is one that the caller has read.
func (b *Book) Versions(ctx context.Context, env runtime.Environment) (found map[string]string, known bool) {
	m := b.measurement(ctx, env)
	if m == nil {
		return nil, false
	}
	if !m.ended() {
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, false
		}
	}
	return m.versions, m.versions != nil
}

// measurement returns the current measurement, or starts one; nil if the caller can't start one.
func (b *Book) measurement(ctx context.Context, env runtime.Environment) *measurement {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.known[env.ID]; m != nil && m.holds(env, time.Now()) {
		return m
	}
	if _, err := b.guard.Allowed(ctx, "claimRunner"); err != nil {
		return nil
	}
	if len(b.known) >= most {
		clear(b.known)
	}
	m := &measurement{of: env, done: make(chan struct{})}
	err := b.guard.Go(context.WithoutCancel(ctx), func(ctx context.Context) {
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

// ended reports whether the measurement's other fields can be read.
func (m *measurement) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// holds reports whether nothing newer is to be measured now. An environment that was deleted and created anew counts
// its revisions from 1 again, and may be another tenant's.
func (m *measurement) holds(env runtime.Environment, now time.Time) bool {
	return m.of.SameRunners(env) && (!m.ended() || m.versions != nil && m.revision >= env.RunnerRevision || now.Before(m.again))
}

// measure runs the version commands of the environment's languages one after the other in one runner. The audit log
// and the list of executions have who asked.
func (b *Book) measure(ctx context.Context, env runtime.Environment, m *measurement) error {
	runner, err := b.guard.Claim(ctx, engine.ClaimInput{EnvironmentID: env.ID, InactivityTimeout: new(2 * patience), WaitFor: new(patience)})
	if err != nil {
		return err
	}
	defer func() { _, _ = b.guard.Release(ctx, runner.ID) }() // else its inactivity timeout does
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

// run runs a language's version command in a runner, and returns the version that it prints, and whether the language
// is there.
func (b *Book) run(ctx context.Context, id runtime.RunnerID, recipe language.Recipe) (version string, there bool, err error) {
	x, err := b.guard.Start(ctx, engine.StartInput{RunnerID: id, Command: recipe.Version, TimeLimit: new(perCommand)})
	if err != nil {
		return "", false, err
	}
	x, err = b.guard.Execution(ctx, x.ID, (perCommand+patience)*time.Second)
	if err != nil {
		return "", false, err
	}
	if there, err = found(x); !there {
		return "", false, err
	}
	chunks, _, _, err := b.guard.Output(ctx, x.ID, "", 4096, func([]byte) error { return nil })
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

// found reports whether a version command found its language: it didn't if it failed by itself, or could not be
// started. Any other end, such as a limit's, says nothing about the language, and is an error.
func found(x runtime.Execution) (bool, error) {
	switch {
	case x.Passed():
		return true, nil
	case x.State == runtime.ExecutionFinished && (x.End.Outcome == runtime.OutcomeExited || x.End.Outcome == runtime.OutcomeFailed):
		return false, nil
	}
	return false, fmt.Errorf("version command %s: %s", x.ID, x.End.Message)
}
