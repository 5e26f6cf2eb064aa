package versions

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bed struct {
	*Cache
	engine *engine.Engine
	ctx    context.Context // of an administrator
}

// newBed returns a cache over an engine with a fake cluster that knows the languages' version commands.
func newBed(t *testing.T) bed {
	t.Helper()
	file := filepath.Join(t.TempDir(), "languages.yaml")
	err := os.WriteFile(file, []byte(`
languages:
  - {id: one, fileName: a.one, run: [one], version: [echo, One, "1.2"], versionPattern: 'One ([0-9.]+)', environments: [here]}
  - {id: two, fileName: a.two, run: [two], version: [echo, something, else], versionPattern: 'Two ([0-9.]+)', environments: [here]}
  - {id: failing, fileName: a.f, run: [f], version: [stderr, F, "1"], versionPattern: 'F ([0-9.]+)', environments: [here]}
  - {id: absent, fileName: a.a, run: [a], version: [nonesuch], versionPattern: '(.)', environments: [here]}
  - {id: silent, fileName: a.s, run: [s], environments: [here]}
  - {id: elsewhere, fileName: a.e, run: [e], version: [echo, "3"], versionPattern: '(.)', environments: [there]}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	set, err := language.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	fake := clustertest.NewFake()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(fake, db, engine.Config{Dir: t.TempDir(), Logger: zap.NewNop()})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
		if err := errors.Join(fake.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	<-e.Restored()
	return bed{New(&e.Services, set), e, access.With(t.Context(), access.Anonymous())}
}

// put stores an environment, and returns it.
func (b bed) put(t *testing.T, in request.Environment) runtime.Environment {
	t.Helper()
	in.ID = "here"
	env, _, err := b.engine.Environments.Put(access.With(t.Context(), access.Server()), in)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// executions returns the number of executions.
func (b bed) executions(t *testing.T) int {
	t.Helper()
	page, err := b.engine.Executions.List(access.With(t.Context(), access.Server()), request.Executions{}, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	return page.Total
}

func TestVersionsComeFromTheCommands(t *testing.T) {
	b := newBed(t)
	env := b.put(t, request.Environment{})
	got, known := b.Versions(b.ctx, env)
	if want := map[string]string{"one": "1.2", "two": ""}; !known || !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestVersionsAreMeasuredOncePerRevisionOfTheRunners(t *testing.T) {
	b := newBed(t)
	env := b.put(t, request.Environment{})
	b.Versions(b.ctx, env)
	once := b.executions(t)
	b.Versions(b.ctx, env)
	if n := b.executions(t); n != once || n == 0 {
		t.Errorf("%d executions, and then %d", once, n)
	}
	b.known["here"].again = time.Time{}
	if b.Versions(b.ctx, env); b.executions(t) != once {
		t.Error("the same revision was measured again")
	}
	env = b.put(t, request.Environment{Processes: new(200)})
	if b.Versions(b.ctx, env); b.executions(t) != 2*once {
		t.Errorf("%d executions, want %d: the runners have changed", b.executions(t), 2*once)
	}
}

// TestMeasurementContinuesWithoutItsCaller checks that a caller that doesn't wait gets nothing, and
// that the measurement continues.
func TestMeasurementContinuesWithoutItsCaller(t *testing.T) {
	b := newBed(t)
	env := b.put(t, request.Environment{})
	gone, leave := context.WithCancel(b.ctx)
	leave()
	b.Versions(gone, env)
	first := b.known["here"]
	if got, known := b.Versions(b.ctx, env); !known || got["one"] != "1.2" || b.known["here"] != first {
		t.Errorf("%v %v", got, known)
	}
}

// TestAnObserverMeasuresNothing checks that an observer reads results and starts no program.
func TestAnObserverMeasuresNothing(t *testing.T) {
	b := newBed(t)
	env := b.put(t, request.Environment{})
	observer := access.With(t.Context(), access.Principal{Kind: access.KindToken, Role: access.Observer, AllTenants: true})
	if got, known := b.Versions(observer, env); known || len(b.known) != 0 || b.executions(t) != 0 {
		t.Errorf("%v", got)
	}
	b.Versions(b.ctx, env)
	if got, known := b.Versions(observer, env); !known || got["one"] != "1.2" {
		t.Errorf("%v %v", got, known)
	}
}

func TestFailedMeasurementIsUnknown(t *testing.T) {
	b := newBed(t)
	env := runtime.Environment{ID: "here", RunnerRevision: 1}
	if got, known := b.Versions(b.ctx, env); known {
		t.Errorf("%v of an environment that doesn't exist", got)
	}
	b.known["here"].again = time.Time{}
	if _, known := b.Versions(b.ctx, b.put(t, request.Environment{})); !known {
		t.Error("it was not repeated")
	}
}

func TestMeasurementIsKeptPerRunnerRevision(t *testing.T) {
	now, done := time.Now(), make(chan struct{})
	close(done)
	versions := map[string]string{}
	of := runtime.Environment{Tenant: "t", Image: "i", RunnerRevision: 2}
	other := of
	other.Image = "j"
	for name, test := range map[string]struct {
		m     measurement
		holds bool
	}{
		"still measuring: holds":                   {measurement{of: of, done: make(chan struct{})}, true},
		"same revision: holds":                     {measurement{of, done, 2, versions, now}, true},
		"later revision: holds":                    {measurement{of, done, 3, versions, now}, true},
		"earlier revision: outdated":               {measurement{of, done, 1, versions, now}, false},
		"earlier revision, just measured: holds":   {measurement{of, done, 1, versions, now.Add(1)}, true},
		"just failed: holds":                       {measurement{of, done, 2, nil, now.Add(1)}, true},
		"failed before: outdated":                  {measurement{of, done, 2, nil, now}, false},
		"another image: outdated":                  {measurement{other, done, 3, versions, now.Add(1)}, false},
		"another image, still measuring: outdated": {measurement{of: other, done: make(chan struct{})}, false},
	} {
		if holds := test.m.holds(of, now); holds != test.holds {
			t.Errorf("%s: got %v, want %v", name, holds, test.holds)
		}
	}
}

// TestRecreatedEnvironmentIsMeasuredAgain uses an environment that was deleted and created again by
// another tenant or from another image, whose revisions restart at 1.
func TestRecreatedEnvironmentIsMeasuredAgain(t *testing.T) {
	b := newBed(t)
	b.put(t, request.Environment{Processes: new(100)})
	b.Versions(b.ctx, b.put(t, request.Environment{Processes: new(200)}))
	once := b.executions(t)
	if _, err := b.engine.Environments.Delete(access.With(t.Context(), access.Server()), "here", true); err != nil {
		t.Fatal(err)
	}
	env := b.put(t, request.Environment{Variables: []runtime.Variable{{Name: "PATH", Value: "/opt"}}})
	if _, known := b.Versions(b.ctx, env); !known || b.executions(t) != 2*once || env.RunnerRevision != 1 {
		t.Errorf("known: %v, %d executions, then %d", known, once, b.executions(t))
	}
}

// TestCommandEndedByALimitIsUnknown checks that a limit doesn't make a language absent.
func TestCommandEndedByALimitIsUnknown(t *testing.T) {
	b := newBed(t)
	b.languages = language.Of(language.Recipe{ID: "much", Version: []string{"zeros", "1000000"}, Environments: []runtime.EnvironmentID{"here"}})
	env := b.put(t, request.Environment{OutputLimit: new(int64(1024))})
	if got, known := b.Versions(b.ctx, env); known || b.known["here"].again.IsZero() {
		t.Errorf("%v is known: %v", got, known)
	}
}

func TestFoundByTheCommandsEnd(t *testing.T) {
	for _, outcome := range runtime.Outcomes() {
		x := runtime.Execution{State: runtime.ExecutionFinished, End: runtime.End{Outcome: outcome, ExitCode: 1}}
		there, err := found(x)
		if absent := outcome == runtime.OutcomeExited || outcome == runtime.OutcomeFailed; there || (err == nil) != absent {
			t.Errorf("%s: %v %v", outcome, there, err)
		}
	}
	if there, err := found(runtime.Execution{State: runtime.ExecutionFinished, End: runtime.End{Outcome: runtime.OutcomeExited}}); !there || err != nil {
		t.Errorf("exit status 0: %v %v", there, err)
	}
	if there, err := found(runtime.Execution{State: runtime.ExecutionRunning}); there || err == nil {
		t.Error("it hasn't ended")
	}
}

// TestKnownVersionsReturnImmediately uses a caller whose context has ended.
func TestKnownVersionsReturnImmediately(t *testing.T) {
	b := newBed(t)
	env := b.put(t, request.Environment{})
	b.Versions(b.ctx, env)
	over, end := context.WithCancel(b.ctx)
	end()
	for range 100 {
		if _, known := b.Versions(over, env); !known {
			t.Fatal("they are unknown")
		}
	}
}
