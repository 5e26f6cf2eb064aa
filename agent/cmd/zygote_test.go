package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// The error for a module that can't be loaded names it and has the interpreter's message. No
// process is left.
func TestModulesThatCannotBeLoaded(t *testing.T) {
	b := newBed(t, 100, "--zygote")
	for module, want := range map[string]string{
		"nosuchmodule": "ModuleNotFoundError", "json.nothing": "ModuleNotFoundError",
	} {
		_, err := b.warm(t, testEnv, "json", module)
		var e *agent.Error
		if !errors.As(err, &e) || e.Code != agent.ErrInvalid || e.Field != "modules" || e.Path != module || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %+v", module, err)
		}
	}
	if _, started := b.temperature(t, agent.Start{Argv: []string{"python3", "-c", "1"}}, ""); started.Warm || started.Cold != "" {
		t.Errorf("started %+v", started)
	}
	if _, err := b.warm(t, testEnv, "json"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// unforkable are modules that a zygote rejects, each with a part of the reason.
var unforkable = map[string]struct{ source, reason string }{
	"threads": {"import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", "starts threads"},
	"opens":   {"f = open('/etc/passwd')", "keeps /etc/passwd open"},
	"shares":  {"import mmap\nm = mmap.mmap(-1, 4096)", "memory that all children would share"},
	"leaves":  {"import tempfile\nd = tempfile.mkdtemp()", "leaves /tmp/"},
}

// PYTHONPATH is rejected, because its directories may change.
func TestZygotesRefusePythonPath(t *testing.T) {
	_, err := newBed(t, 100, "--zygote").warm(t, append([]string{"PYTHONPATH=/workspace"}, testEnv...), "json")
	var e *agent.Error
	if !errors.As(err, &e) || e.Code != agent.ErrInvalid || e.Field != "interpreter" || !strings.Contains(e.Message, "PYTHONPATH") {
		t.Errorf("got %+v, want %s for the interpreter that names PYTHONPATH", err, agent.ErrInvalid)
	}
}

// A module is rejected if its import leaves something that a fork can't keep or that commands can't
// use.
func TestModulesThatCannotBeForked(t *testing.T) {
	b := newBed(t, 100, "--zygote")
	if r := b.sh(t, "python3 -m venv --without-pip venv && mv venv/lib/*/site-packages . && ln -s $PWD/site-packages venv/lib/*/"); r.exit.Code != 0 {
		t.Fatalf("%+v", r)
	}
	env := []string{"PATH=/workspace/venv/bin:/usr/bin:/bin", "HOME=/workspace"}
	for module, test := range unforkable {
		if r := b.run(t, "sh", "-c", `printf '%s\n' "$1" > site-packages/$0.py`, module, test.source); r.exit.Code != 0 {
			t.Fatalf("%+v", r)
		}
		_, err := b.warm(t, env, "json", module)
		var e *agent.Error
		if !errors.As(err, &e) || e.Code != agent.ErrInvalid || e.Field != "modules" || e.Path != module || !strings.Contains(e.Message, test.reason) {
			t.Errorf("%s: %+v", module, err)
		}
	}
}

// No module is imported from the runner's files while a child of the zygote has its capabilities,
// though its modules try to.
func TestNothingIsImportedWithCapabilities(t *testing.T) {
	b := newBed(t, 100, "--zygote")
	const hook = `import os
def planted():
    try: import planted
    except ImportError: pass
os.register_at_fork(after_in_child=planted)`
	r := b.run(t, "sh", "-c", `python3 -m venv --without-pip venv && cd venv/lib/*/site-packages && printf '%s\n' "$0" > hook.py && pwd`, hook)
	if r.exit.Code != 0 {
		t.Fatalf("%+v", r)
	}
	packages, env := strings.TrimSpace(r.stdout), []string{"PATH=/workspace/venv/bin:/usr/bin:/bin", "HOME=/workspace"}
	if _, err := b.warm(t, env, "hook"); err != nil {
		t.Fatal(err)
	}
	if r := b.run(t, "sh", "-c", `echo 'import os; print(os.getresuid(), file=open("/tmp/planted%d" % os.getuid(), "a"))' > $0/planted.py`, packages); r.exit.Code != 0 {
		t.Fatalf("%+v", r)
	}
	for range 3 { // the first child waited before
		r, started := b.temperature(t, agent.Start{Argv: []string{"python3", "-c", "import planted, hook; print(1)"}, Env: env}, "")
		if r.stdout != "1\n" || !started.Warm {
			t.Errorf("%+v, started %+v", r, started)
		}
	}
	const user = "(1000, 1000, 1000)\n"
	if r := b.sh(t, "cat /tmp/planted*"); r.stdout != user+user+user {
		t.Errorf("it was imported by the users %q %s", r.stdout, r.stderr)
	}
}

// reach tries everything that user code could do to processes of the zygote's user.
const reach = `import os, signal
found = 0
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: status = open('/proc/%s/status' % pid).read()
    except OSError: continue
    if 'Uid:\t59999\t59999' not in status: continue
    found += 1
    for sig in (0, signal.SIGKILL, signal.SIGSTOP):
        try: os.kill(int(pid), sig); print('signalled', sig)
        except PermissionError: pass
    for name in ('mem', 'environ', 'maps', 'fd/3', 'cwd', 'root', 'exe', 'stack', 'auxv', 'map_files', 'task/%s/mem' % pid):
        try:
            path = '/proc/%s/%s' % (pid, name)
            if name in ('cwd', 'root', 'exe'): os.readlink(path)
            elif name == 'map_files': os.listdir(path)
            else: open(path, 'rb').read(1)
            print('read', name)
        except PermissionError: pass
    for name in ('mem', 'oom_score_adj', 'comm', 'clear_refs'):
        try: open('/proc/%s/%s' % (pid, name), 'wb').write(b'0'); print('wrote', name)
        except OSError: pass
print('looked at', found > 0)`

// Commands can't signal, read or change the zygote, however they are started.
func TestCommandsCannotReachTheZygote(t *testing.T) {
	b := newWarmBed(t, "json")
	for _, argv := range [][]string{{"python3", "-c", reach}, {"python3", "-B", "-c", reach}} {
		r, _ := b.temperature(t, agent.Start{Argv: argv}, "")
		if r.stdout != "looked at True\n" || r.stderr != "" {
			t.Errorf("%q: %q %q", argv[:2], r.stdout, r.stderr)
		}
	}
}

// The first command starts warm, the second one never does.
var (
	warmStart  = agent.Start{Argv: []string{"python3", "-c", "print(1)"}}
	otherStart = agent.Start{Argv: []string{"echo", "1"}}
)

// signal makes root of the runner signal the zygote and all its children.
func (b *bed) signal(t testing.TB, signal string) {
	t.Helper()
	r, _ := b.temperature(t, agent.Start{Argv: []string{"python3", "-c", `import os, signal
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: status = open('/proc/%s/status' % pid).read()
    except OSError: continue
    if 'Uid:\t59999\t59999' in status: os.kill(int(pid), signal.` + signal + `); print('signalled')`}, Privileged: true}, "")
	if !strings.HasPrefix(r.stdout, "signalled\n") || r.exit.Code != 0 {
		t.Fatalf("%+v", r)
	}
}

// Root of the runner can kill or stop the zygote. Then commands start cold, also with a terminal,
// and other commands don't wait for them.
func TestCommandsStartColdWithoutTheirZygote(t *testing.T) {
	for _, signal := range []string{"SIGKILL", "SIGSTOP"} {
		t.Run(signal, func(t *testing.T) {
			b := newWarmBed(t, "json")
			b.signal(t, signal)
			s, err := b.session(t, agent.Start{Argv: warmStart.Argv, Env: testEnv, Terminal: &agent.Size{Columns: 80, Rows: 24}})
			if err != nil {
				t.Fatal(err)
			}
			if r := b.finish(t, s); !strings.HasPrefix(r.stdout, "1") || r.exit.Code != 0 {
				t.Errorf("with a terminal: %+v", r)
			}
			type period struct{ from, to time.Time }
			var waited period // of the one that is started cold: until its program runs
			cold := make(chan struct{})
			go func() {
				defer close(cold)
				r, started := b.temperature(t, agent.Start{Argv: []string{"python3", "-c", "import time; print(time.time())"}}, "")
				seconds, err := strconv.ParseFloat(strings.TrimSpace(r.stdout), 64)
				if err != nil || started.Warm || !strings.Contains(started.Cold, "the interpreter") {
					t.Errorf("%+v, started %+v", r, started)
				}
				waited = period{r.exit.At.Add(-r.exit.Wall), time.UnixMicro(int64(seconds * 1e6))}
			}()
			var others []period
			for done := false; !done; {
				r, _ := b.temperature(t, otherStart, "")
				if r.stdout != "1\n" {
					t.Errorf("%+v", r)
				}
				others = append(others, period{r.exit.At.Add(-r.exit.Wall), r.exit.At})
				select {
				case <-cold:
					done = true
				default:
				}
			}
			within := func(other period) bool { return other.from.After(waited.from) && other.to.Before(waited.to) }
			if signal == "SIGSTOP" && !slices.ContainsFunc(others, within) { // it waited for seconds
				t.Errorf("none of %d others ran meanwhile: they waited, too", len(others))
			}
		})
	}
}

// A zygote whose children can't start is rejected.
func TestZygotesWhoseChildrenFailAreRejected(t *testing.T) {
	b := newBed(t, 100, "--zygote")
	const vanish = "import os, sys\nos.register_at_fork(after_in_child=lambda: sys.modules.pop('vanish'))"
	r := b.run(t, "sh", "-c", `python3 -m venv --without-pip venv && cd venv/lib/*/site-packages && printf '%s\n' "$0" > vanish.py`, vanish)
	if r.exit.Code != 0 {
		t.Fatalf("%+v", r)
	}
	_, err := b.warm(t, []string{"PATH=/workspace/venv/bin:/usr/bin:/bin"}, "vanish")
	var e *agent.Error
	if !errors.As(err, &e) || e.Code != agent.ErrInvalid || e.Field != "interpreter" || !strings.Contains(e.Message, "vanish") {
		t.Errorf("got %+v, want %s for the interpreter that names vanish", err, agent.ErrInvalid)
	}
}

// stopper stops each new process of its user, for a minute.
const stopper = `import os, signal, time
until = time.time() + 60
print('stops', flush=True)
while time.time() < until:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        if int(pid) != os.getpid():
            try: os.kill(int(pid), signal.SIGSTOP)
            except OSError: pass`

// A command whose start is held up by processes of its user runs at most once: if it may have
// begun, it isn't started in another way.
func TestNoCommandRunsTwice(t *testing.T) {
	b := newWarmBed(t, "json")
	s, err := b.session(t, agent.Start{Argv: []string{"python3", "-c", stopper}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	waitForOutput(t, s)
	run := func(name string, limit time.Duration) {
		code := "import os\nos.write(os.open('/workspace/" + name + "', os.O_CREAT|os.O_APPEND|os.O_WRONLY, 0o666), b'x')"
		r, err := b.start(t, agent.Start{Argv: []string{"python3", "-c", code}, Env: testEnv, TimeLimit: limit})
		t.Logf("%s: %+v, %v", name, r.exit, err)
	}
	for i := range 3 {
		run(strconv.Itoa(i), time.Second)
	}
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	b.finish(t, s)
	run("after", time.Minute)
	if r := b.sh(t, "find /workspace -name '[0-9]' -size +1c; stat -c %s after"); r.stdout != "1\n" || r.exit.Code != 0 {
		t.Errorf("these ran twice: %+v", r)
	}
}
