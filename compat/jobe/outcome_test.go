package jobe

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/clustertest"
)

func exited(code int) runtime.End { return runtime.End{Outcome: runtime.OutcomeExited, ExitCode: code} }

func ended(outcome runtime.Outcome) runtime.End {
	return runtime.End{Outcome: outcome, Message: "it ended"}
}

func TestOutcomes(t *testing.T) {
	good := phase{end: exited(0), stdout: []byte("out\n")}
	const python = "  File \"prog.py\", line 1\n    x y\n      ^\nSyntaxError: invalid syntax\n"
	for _, test := range []struct {
		name       string
		language   string
		build, run phase
		want       result
	}{
		{"success", "nodejs", phase{}, good, result{Outcome: success, Stdout: "out\n"}},
		{"an exit code alone is success", "nodejs", phase{}, phase{end: exited(3)}, result{Outcome: success}},
		{"stderr is an error", "nodejs", phase{}, phase{end: exited(0), stdout: []byte("a"), stderr: []byte("b")}, result{Outcome: runtimeError, Stdout: "a", Stderr: "b"}},
		{"a signal", "c", good, phase{end: runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "SIGSEGV"}, stderr: []byte("b")}, result{Outcome: runtimeError, Stderr: "b\nSegmentation fault\n"}},
		{"a signal without a name", "c", good, phase{end: runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "SIGUSR1"}}, result{Outcome: runtimeError, Stderr: "Ended by SIGUSR1\n"}},
		{"wall time", "c", good, phase{end: ended(runtime.OutcomeTimeLimit), stdout: []byte("a"), stderr: []byte("b")}, result{Outcome: timeLimit, Stdout: "a"}},
		{"processor time", "c", good, phase{end: ended(runtime.OutcomeCPULimit)}, result{Outcome: timeLimit}},
		{"output", "c", good, phase{end: ended(runtime.OutcomeOutputLimit)}, result{Outcome: timeLimit}},
		{"memory", "c", good, phase{end: ended(runtime.OutcomeMemoryLimit), stdout: []byte("a"), stderr: []byte("b")}, result{Outcome: memoryLimit, Stdout: "a"}},
		{"processes", "c", good, phase{end: ended(runtime.OutcomeProcessLimit)}, result{Outcome: runtimeError, Stderr: "it ended"}},
		{"a runner that went", "c", good, phase{end: ended(runtime.OutcomeRunnerGone)}, result{Outcome: internal, Stderr: "it ended"}},
		{"a program that can't be started", "c", good, phase{end: ended(runtime.OutcomeFailed)}, result{Outcome: internal, Stderr: "it ended"}},
		{"a build that fails", "c", phase{end: exited(1), stderr: []byte("e")}, phase{}, result{Outcome: compileError, CmpInfo: "e"}},
		{"a build that fails silently", "c", phase{end: exited(1)}, phase{}, result{Outcome: compileError, CmpInfo: "compiling failed: "}},
		{"a build that takes too much processor time", "c", phase{end: ended(runtime.OutcomeCPULimit), stderr: []byte("e")}, phase{}, result{Outcome: compileError, CmpInfo: "e\ncompiling failed: it ended"}},
		{"a build on a machine that is too busy", "c", phase{end: ended(runtime.OutcomeTimeLimit), stderr: []byte("e")}, phase{}, result{Outcome: overload}},
		{"a warning", "c", phase{end: exited(0), stderr: []byte("w")}, good, result{Outcome: compileError, CmpInfo: "w"}},
		{"a remark", "c", phase{end: exited(0), stdout: []byte("w")}, good, result{Outcome: success, Stdout: "out\n"}},
		{"Pascal's linker warns", "pascal", phase{end: exited(0), stderr: []byte("w")}, good, result{Outcome: success, Stdout: "out\n"}},
		{"a runner that went while it built", "c", phase{end: ended(runtime.OutcomeRunnerGone)}, phase{}, result{Outcome: internal, Stderr: "it ended"}},
		{"an unfinished build", "c", phase{stderr: []byte("e")}, phase{end: ended(runtime.OutcomeFailed)}, result{Outcome: internal, Stderr: "it ended"}},
		{"a build with a lost end", "c", phase{}, phase{end: exited(0)}, result{Outcome: internal, Stderr: "the build's output was lost"}},
		{"a compiler that isn't there", "c", phase{end: ended(runtime.OutcomeFailed)}, phase{}, result{Outcome: internal, Stderr: "it ended"}},
		{"lost output", "nodejs", phase{}, phase{end: exited(0), stdout: []byte("a"), lost: "it is missing"}, result{Outcome: internal, Stdout: "a", Stderr: "it is missing"}},
		{"lost output and a time limit", "nodejs", phase{}, phase{end: ended(runtime.OutcomeTimeLimit), stderr: []byte("b"), lost: "it is missing"}, result{Outcome: internal, Stderr: "b\nit is missing"}},
		{"lost output of the compiler", "c", phase{end: exited(0), lost: "it is missing"}, good, result{Outcome: internal, Stderr: "it is missing"}},
		{"a build that wasn't started", "c", phase{}, phase{end: ended(runtime.OutcomeFailed)}, result{Outcome: internal, Stderr: "it ended"}},
		{"Python's syntax", "python3", phase{}, phase{end: exited(1), stderr: []byte(python)}, result{Outcome: compileError, CmpInfo: python}},
		{"Python's indentation", "python3", phase{}, phase{end: exited(1), stderr: []byte("  File \"x\", line 1\nIndentationError: unexpected indent\n")}, result{Outcome: compileError, CmpInfo: "  File \"x\", line 1\nIndentationError: unexpected indent\n"}},
		{"Python's null bytes", "python3", phase{}, phase{end: exited(1), stderr: []byte("SyntaxError: source code cannot contain null bytes\n")}, result{Outcome: compileError, CmpInfo: "SyntaxError: source code cannot contain null bytes\n"}},
		{"a syntax error that a program met", "python3", phase{}, phase{end: exited(1), stderr: []byte("Traceback (most recent call last):\n" + python)}, result{Outcome: runtimeError, Stderr: "Traceback (most recent call last):\n" + python}},
		{"a program that printed before", "python3", phase{}, phase{end: exited(1), stdout: []byte("a"), stderr: []byte(python)}, result{Outcome: runtimeError, Stdout: "a", Stderr: python}},
		{"Java's tabs", "java", phase{end: exited(0)}, phase{end: exited(1), stderr: []byte("E\n\tat x\n")}, result{Outcome: runtimeError, Stderr: "E\n        at x\n"}},
		{"Octave's noise", "octave", phase{}, phase{end: exited(0), stderr: []byte("error: No such file or directory\r\n\r\n")}, result{Outcome: success}},
		{"Octave's errors", "octave", phase{}, phase{end: exited(1), stderr: []byte("error: x\nerror: ignoring octave_execution_exception y\n")}, result{Outcome: runtimeError, Stderr: "error: x\n"}},
		{"bytes", "nodejs", phase{}, phase{end: exited(0), stdout: []byte("a\xff\x00\t\r\n\x7f")}, result{Outcome: success, Stdout: "a\\xff\\x00\t\r\n\\x7f"}},
		{"text", "nodejs", phase{}, phase{end: exited(0), stdout: []byte("é\x00\x7f")}, result{Outcome: success, Stdout: "é\x00\x7f"}},
	} {
		recipe, ok := language.Default().ByID(test.language)
		if !ok {
			t.Fatal(test.language)
		}
		if got := newJob(spec{}, recipe, dialects[recipe.ID]).judge(test.build, test.run); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestJobs(t *testing.T) {
	started := func(memory, processes string, argv ...string) []string {
		return append([]string{"/bin/sh", "-c", limits, "sh", memory, processes}, argv...)
	}
	for _, test := range []struct {
		name       string
		spec       spec
		file       string
		build, run []string
	}{
		{"c", spec{language: "c"}, "prog.c", []string{"gcc", "-Wall", "-Werror", "-std=c99", "-x", "c", "-o", "prog.c.exe", "prog.c"}, started("400000", "30", "./prog.c.exe")},
		{
			"arguments", spec{language: "c", fileName: "a.c", parameters: parameters{compile: []string{"-O2"}, link: []string{"-lm"}, run: []string{"$x", "; y"}, memory: new(1.5), processes: new(0.0)}},
			"a.c", []string{"gcc", "-O2", "-o", "a.c.exe", "a.c", "-lm"}, started("1500", "unlimited", "./a.c.exe", "$x", "; y"),
		},
		{"cpp", spec{language: "cpp", parameters: parameters{memory: new(0.0)}}, "prog.cpp", []string{"g++", "-Wall", "-Werror", "-o", "prog.cpp.exe", "prog.cpp"}, started("unlimited", "30", "./prog.cpp.exe")},
		{"python3", spec{language: "python3", fileName: "__tester__.python3"}, "__tester__.python3", nil, []string{"python3", "-BE", "__tester__.python3"}},
		{"java", spec{language: "java", fileName: "prog.java", source: "public class Hello {}"}, "Hello.java", []string{"javac", "-cp", ".", "-d", ".", "Hello.java"}, []string{"java", "-Xrs", "-Xss8m", "-Xmx200m", "Hello"}},
		{"another class", spec{language: "java", fileName: "A.java", parameters: parameters{mainClass: "B", interpreter: []string{}}}, "A.java", []string{"javac", "-cp", ".", "-d", ".", "A.java"}, []string{"java", "B"}},
		{"a package", spec{language: "java", fileName: "A.java", source: "package x; class S { public static void main(String[] a) {} }", parameters: parameters{interpreter: []string{}}}, "A.java", []string{"javac", "-cp", ".", "-d", ".", "A.java"}, []string{"java", "x.S"}},
		{"nodejs", spec{language: "nodejs"}, "prog.js", nil, []string{"node", "--use_strict", "prog.js"}},
		{"php", spec{language: "php"}, "prog.php", []string{"php", "-l", "prog.php"}, []string{"php", "--no-php-ini", "prog.php"}},
		{"pascal", spec{language: "pascal"}, "prog.pas", []string{"fpc", "-vew", "-Se", "-oprog.pas.exe", "prog.pas"}, started("400000", "30", "./prog.pas.exe")},
		{"a language that Jobe lacks", spec{language: "bash", parameters: parameters{run: []string{"a"}}}, "prog.bash", nil, []string{"bash", "prog.bash", "a"}},
	} {
		recipe, ok := language.Default().ByID(test.spec.language)
		if !ok {
			t.Fatal(test.spec.language)
		}
		j := newJob(test.spec, recipe, (&api{defaults: language.Default()}).dialect(recipe))
		if j.fileName != test.file || !slices.Equal(j.build, test.build) || !slices.Equal(j.run, test.run) {
			t.Errorf("%s: %q, %q, %q", test.name, j.fileName, j.build, j.run)
		}
	}
}

// A run without a runner gets outcome 21. An error that the caller can fix has its own HTTP status.
func TestErrorsOfRuns(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
		answer string
	}{
		{runtime.Errorf(runtime.CodeNoRunnerAvailable, "x"), 200, `{"run_id":"","outcome":21,"cmpinfo":"","stdout":"","stderr":""}`},
		{runtime.Errorf(runtime.CodeQuotaExceeded, "x"), 200, `{"run_id":"","outcome":21,"cmpinfo":"","stdout":"","stderr":""}`},
		{runtime.Errorf(runtime.CodeLimitExceeded, "x"), 200, `{"run_id":"","outcome":21,"cmpinfo":"","stdout":"","stderr":""}`},
		{runtime.Errorf(runtime.CodeClusterUnavailable, "x"), 200, `{"run_id":"","outcome":21,"cmpinfo":"","stdout":"","stderr":""}`},
		{runtime.Errorf(runtime.CodeRunnerGone, "x"), 200, `{"run_id":"","outcome":20,"cmpinfo":"","stdout":"","stderr":"x"}`},
		{runtime.Errorf(runtime.CodeStorageFull, "x"), 200, `{"run_id":"","outcome":20,"cmpinfo":"","stdout":"","stderr":"x"}`},
		{runtime.Errorf(runtime.CodeSlowConsumer, "x"), 200, `{"run_id":"","outcome":20,"cmpinfo":"","stdout":"","stderr":"x"}`},
		{runtime.Errorf(runtime.CodeConflict, "x"), 200, `{"run_id":"","outcome":20,"cmpinfo":"","stdout":"","stderr":"x"}`},
		{runtime.Errorf(runtime.CodeBatchNotFound, "x"), 200, `{"run_id":"","outcome":20,"cmpinfo":"","stdout":"","stderr":"x"}`},
		{runtime.Errorf(runtime.CodeExecutionNotFound, "x"), 200, `{"run_id":"","outcome":20,"cmpinfo":"","stdout":"","stderr":"x"}`},
		{&compat.BodyError{Status: 413, Message: "x"}, 413, `"x"`},
		{runtime.Invalid("command.3", "x"), 400, `"interpreterargs, runargs: x"`},
		{runtime.Invalid("build.command", "x"), 400, `"compileargs, linkargs: x"`},
		{runtime.Invalid("files.0.path", "x"), 400, `"sourcefilename: x"`},
		{runtime.Invalid("files.3.path", "x"), 400, `"file_list: x"`},
		{runtime.Invalid("files", "x"), 400, `"file_list: x"`},
		{runtime.Invalid("cases.0.stdin", "x"), 400, `"input: x"`},
		{runtime.Invalid("cases.0.limits.outputBytes", "x"), 400, `"streamsize: x"`},
		{runtime.Invalid("build.limits.outputBytes", "x"), 400, `"streamsize: x"`},
		{runtime.Invalid("of the engine", "x"), 400, `"x"`},
		{runtime.Wrap(runtime.CodeEnvironmentNotFound, errors.New("a secret of the host"), "x"), 400, `"x"`},
		{runtime.Errorf(runtime.CodeForbidden, "x"), 403, `"x"`},
		{errors.New("a secret of the host"), 500, `"Server exception: the server's log has the detail"`},
		{bad("y <&>"), 400, `"y <&>"`},
	} {
		a := &api{Services: compat.Services{Logger: zap.NewNop()}}
		answer := httptest.NewRecorder()
		a.answering(func(http.ResponseWriter, *http.Request) (any, error) { return overloaded(test.err) }).ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", nil))
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != test.status || got != test.answer {
			t.Errorf("%v: %d %s, want %d %s", test.err, answer.Code, got, test.status, test.answer)
		}
	}
}

// An error after the answer has begun is in the result. An internal one is logged, and not shown.
func TestErrorsOfEarlyAnswers(t *testing.T) {
	for _, test := range []struct {
		err    error
		stderr string
		logged int
	}{
		{bad("interpreterargs: x"), "interpreterargs: x", 0},
		{runtime.Errorf(runtime.CodeForbidden, "x"), "x", 0},
		{errors.New("a secret of the host"), "Server exception: the server's log has the detail", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.ErrorLevel)
			a, w := &api{Services: compat.Services{Logger: zap.New(core), Early: time.Second}}, httptest.NewRecorder()
			a.answering(func(w http.ResponseWriter, r *http.Request) (any, error) {
				return a.early(w, r, func() (any, error) { time.Sleep(1500 * time.Millisecond); return overloaded(test.err) })
			}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			if want := string(encode(result{Outcome: internal, Stderr: test.stderr})); w.Code != 200 || w.Body.String() != " "+want || logs.Len() != test.logged {
				t.Errorf("%v: %d %q, want %q; %d lines are logged", test.err, w.Code, w.Body, want, logs.Len())
			}
		})
	}
}

// A run's input isn't kept while its program runs.
func TestStartedRunsKeepNoInput(t *testing.T) {
	a := &api{Services: compat.Services{Engine: &engine.New(clustertest.NewFake(), nil, engine.Config{Logger: zap.NewNop()}).Services}}
	in, of := request.Run{Files: []runtime.FileWrite{{}}}, request.Batch{Cases: []request.Case{{}}}
	if _, err := a.start(httptest.NewRequest(http.MethodPost, "/", nil), time.Now(), &in, &of); runtime.CodeOf(err) != runtime.CodeUnauthenticated || in.Files != nil || of.Cases != nil {
		t.Errorf("%v: %+v, %+v", err, in, of)
	}
}

// twoCPUs is the capacity of a cluster with two CPUs.
func twoCPUs(context.Context) (cpus, coreMHz int, err error) { return 2, 0, nil }

// A tenant whose runs never end, for example because they get no runner, leaves turns to others. Alone
// it has two for each CPU.
func TestTenantsLeaveTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, inside := &api{Services: compat.Services{Capacity: twoCPUs}, turns: fairqueue.NewSharedLimiter(1)}, map[runtime.TenantID]int{}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		a.pace(ctx, runtime.Environment{})
		for _, tenant := range []runtime.TenantID{"greedy", "other"} {
			for range 20 {
				go func() {
					if _, err := a.turn(access.With(ctx, access.Principal{ID: "x", Tenant: tenant}), time.Now().Add(patience)); err == nil {
						inside[tenant]++
					}
				}()
				synctest.Wait()
			}
		}
		if inside["greedy"] != 4 || inside["other"] != 2 {
			t.Errorf("turns: %v", inside)
		}
	})
}

// If the caller has reached its limit of requests, a run gets outcome 21 and other requests get
// 503.
func TestTooManyRequests(t *testing.T) {
	a := &api{Services: compat.Services{Logger: zap.NewNop()}}
	for _, test := range []struct {
		method string
		status int
		answer string
	}{
		{http.MethodPost, 200, `{"run_id":"","outcome":21,"cmpinfo":"","stdout":"","stderr":""}`},
		{http.MethodGet, 503, `"x"`}, {http.MethodPut, 503, `"x"`},
	} {
		answer := httptest.NewRecorder()
		a.refuseCaller(answer, httptest.NewRequest(test.method, "/", nil), runtime.Errorf(runtime.CodeQuotaExceeded, "x"))
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != test.status || got != test.answer {
			t.Errorf("%s: %d %s, want %d %s", test.method, answer.Code, got, test.status, test.answer)
		}
	}
}

// beginningAPI is an API whose requests start a run and return.
type beginningAPI struct {
	api
	used clients.Usage
}

func (b *beginningAPI) Register(services compat.Services, routes *compat.Routes) {
	a := &api{Services: services, files: newCache(1)}
	by := compat.Authentication{Shown: func(*http.Request) string { return "" }}
	routes.Handle("/", services.Authenticated(by, a.answering(func(w http.ResponseWriter, r *http.Request) (any, error) {
		_, _, _, err := a.read(w, r)
		compat.ReservationOf(r).ReleaseMemory() // as start does
		b.used = services.Peers.Usage()
		return nil, err
	})))
}

type anybody struct{}

func (anybody) Known(*http.Request, string) (identity.Caller, error) {
	return identity.Caller{Principal: access.Server()}, nil
}

// Text that isn't UTF-8 is refused with its field: it would become U+FFFD.
func TestInvalidUTF8IsRefused(t *testing.T) {
	const size = 100_000
	all, mux := clients.New(clients.Bounds{Bodies: 2 * size}), http.NewServeMux()
	services := compat.Services{Engine: &engine.New(clustertest.NewFake(), nil, engine.Config{Logger: zap.NewNop()}).Services, Languages: language.Default(), MaxBody: 1 << 20, Peers: all, Logger: zap.NewNop()}
	compat.Mount(mux, services, anybody{}, new(compat.Counts), new(beginningAPI))
	for body, field := range map[string]string{
		`"sourcecode": "` + strings.Repeat("\xff", size):                                        "run_spec.sourcecode: isn't",
		`"sourcecode": "\ud800`:                                                                 "run_spec.sourcecode: has half",
		`"sourcecode": "", "input": "` + strings.Repeat("\xff", size):                           "run_spec.input: isn't",
		`"parameters": {"runargs": ["` + strings.Repeat("\xff", size) + `"]}, "sourcecode": "`:  "run_spec.parameters.runargs.0: isn't",
		`"parameters": {"main_class": "` + strings.Repeat("\xff", size) + `"}, "sourcecode": "`: "run_spec.parameters.main_class: isn't",
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"run_spec": {"language_id": "unknown", `+body+`"}}`)))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), field) || all.Usage().BodyBytes != 0 {
			t.Errorf("%.40q: %d %.80s, %d bytes are held", body, w.Code, w.Body, all.Usage().BodyBytes)
		}
	}
}

// A run counts as an operation, but holds nothing of its request.
func TestRunsCountAsOperations(t *testing.T) {
	all, of, mux := clients.New(clients.Bounds{Bodies: 1 << 20}), new(beginningAPI), http.NewServeMux()
	compat.Mount(mux, compat.Services{Engine: &engine.New(clustertest.NewFake(), nil, engine.Config{Logger: zap.NewNop()}).Services, MaxBody: 1 << 20, Peers: all, Logger: zap.NewNop()}, anybody{}, new(compat.Counts), of)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"run_spec": {"sourcecode": "`+strings.Repeat("x", 100_000)+`"}}`)))
	if w.Code != http.StatusBadRequest || of.used.Operations != 1 || of.used.BodyBytes != 0 {
		t.Errorf("%d %s: %+v", w.Code, w.Body, of.used)
	}
}

// Jobe's templates of commands apply only to Rockpool's built-in recipes.
func TestOperatorsRecipesReplaceTemplates(t *testing.T) {
	recipe, _ := language.Default().ByID("c")
	recipe.Build, recipe.Run = []string{"tcc", "{buildArgs}", "-o", "{program}", "{file}"}, []string{"{program}", "{args}"}
	j := newJob(spec{parameters: parameters{compile: []string{"-g"}}}, recipe, (&api{defaults: language.Default()}).dialect(recipe))
	if want := []string{"tcc", "-g", "-o", "./prog.c.out", "prog.c"}; !slices.Equal(j.build, want) || j.shown != "./prog.c.out" {
		t.Errorf("%q, %q", j.build, j.shown)
	}
}

// A run gets further runners only until its patience ends.
func TestAttemptsShareTheirPatience(t *testing.T) {
	gone := runtime.Errorf(runtime.CodeRunnerGone, "x")
	for _, test := range []struct {
		takes  time.Duration
		waited []int
	}{{0, []int{30, 30, 30}}, {12 * time.Second, []int{30, 18, 6}}, {20 * time.Second, []int{30, 10, 0}}} {
		synctest.Test(t, func(t *testing.T) {
			var waited []int
			err := attempt(time.Now().Add(30*time.Second), func(waitFor int) error {
				waited = append(waited, waitFor)
				time.Sleep(test.takes)
				return gone
			})
			if !errors.Is(err, gone) || !slices.Equal(waited, test.waited) {
				t.Errorf("%s: %d, %v", test.takes, waited, err)
			}
		})
	}
	calls := 0
	if err := attempt(time.Now(), func(int) error { calls++; return nil }); err != nil || calls != 1 {
		t.Error(err, calls)
	}
}

// No measurement waits for another one.
func TestVersionsAreMeasuredConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which ends if all are blocked
		var began sync.WaitGroup
		began.Add(3)
		got := atOnce(3, func(i int) int {
			began.Done()
			began.Wait()
			return i
		})
		if !slices.Equal(got, []int{0, 1, 2}) {
			t.Error(got)
		}
	})
}

// Files of the cache that a run uses take memory of its caller until they are released.
func TestFilesOfARunCount(t *testing.T) {
	a := &api{Services: compat.Services{MaxBody: 1000}, files: newCache(10_000)}
	a.files.put("x", "12345678", make([]byte, 60))
	s := spec{files: []namedFile{{"12345678", "one"}}}
	bounded := clients.New(clients.Bounds{Bodies: 100})
	hold := bounded.Reserve(t.Context(), clients.Credential{})
	if files, err := a.filesOf("x", s, "prog.c", &hold); err != nil || len(files) != 2 || bounded.Usage().BodyBytes != 60 {
		t.Errorf("%d files, %d bytes, %v", len(files), bounded.Usage().BodyBytes, err)
	}
	if _, err := a.filesOf("x", s, "prog.c", &hold); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("without memory: got %v, want QUOTA_EXCEEDED", err)
	}
}

// The output of a program takes memory of its caller.
func TestOutputCounts(t *testing.T) {
	bounded := clients.New(clients.Bounds{Bodies: 100})
	hold := bounded.Reserve(t.Context(), clients.Credential{})
	var p phase
	for _, stream := range []runtime.Stream{runtime.Stdout, runtime.Stderr} {
		if err := p.take(batch.Event{Event: events.Event{Kind: events.Output, Stream: stream, Data: []byte(strings.Repeat("x", 40))}}, &hold); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.take(batch.Event{Event: events.Event{Kind: events.Lost, Bytes: 40, Reason: "x"}}, &hold); err != nil || p.lost != "output is missing: x" {
		t.Errorf("lost output: %q, %v", p.lost, err)
	}
	if p.size() != 80 || bounded.Usage().BodyBytes != 80 {
		t.Errorf("%d bytes, of which %d are counted", p.size(), bounded.Usage().BodyBytes)
	}
	if err := p.take(batch.Event{Event: events.Event{Kind: events.Output, Data: []byte(strings.Repeat("x", 40))}}, &hold); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("got %v, want QUOTA_EXCEEDED", err)
	}
}
