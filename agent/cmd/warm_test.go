package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/agent"
)

// warm makes the bed load an interpreter.
func (b *bed) warm(t testing.TB, env []string, modules ...string) (agent.Warmed, error) {
	t.Helper()
	return agent.WarmAgent(t.Context(), b.dial(t), agent.Warm{Interpreter: agent.InterpreterPython, Modules: modules, Env: env})
}

// newWarmBed returns a bed with a zygote.
func newWarmBed(t testing.TB, modules ...string) *bed {
	t.Helper()
	b := newBed(t, 100, "--zygote")
	warmed, err := b.warm(t, testEnv, modules...)
	if err != nil {
		t.Fatalf("warm: %v", err)
	}
	if warmed.Version == "" || warmed.Memory < 1<<20 || warmed.Memory > 1<<30 {
		t.Fatalf("it reports %+v", warmed)
	}
	return b
}

// temperature runs a command to its end, and also returns how it was started.
func (b *bed) temperature(t testing.TB, start agent.Start, stdin string) (result, agent.Started) {
	t.Helper()
	if start.Env == nil {
		start.Env = testEnv
	}
	start.Stdin = stdin != ""
	s, err := b.session(t, start)
	if err != nil {
		t.Fatalf("%q: %v", start.Argv, err)
	}
	event, err := s.Next()
	if err != nil || event.Kind != agent.KindStarted {
		t.Fatalf("%q: %+v, %v", start.Argv, event, err)
	}
	var feeding sync.WaitGroup
	defer feeding.Wait()
	if start.Stdin {
		feeding.Go(func() { // finish reads how much may be sent
			if _, err := s.WriteStdin(t.Context(), 0, []byte(stdin)); err != nil {
				t.Error(err)
			}
			if err := s.CloseStdin(); err != nil {
				t.Error(err)
			}
		})
	}
	return b.finish(t, s), event.Started
}

// likeCold are programs whose result must not depend on how they are started.
var likeCold = []struct {
	name  string
	argv  []string
	stdin string
	env   []string
}{
	{name: "code", argv: []string{"-c", "import sys; print(sys.argv, sys.path[0], __name__); print('x', file=sys.stderr)", "a", "b c", ""}},
	{name: "code of the exit", argv: []string{"-c", "raise SystemExit(7)"}},
	{name: "text of the exit", argv: []string{"-c", "import sys; sys.exit('no')"}},
	{name: "exception", argv: []string{"-c", "def f():\n  1/0\nf()"}},
	{name: "chained exceptions", argv: []string{"-c", "try:\n  1/0\nexcept Exception as e:\n  raise ValueError('ä') from e"}},
	{name: "syntax error", argv: []string{"-c", "def (:"}},
	{name: "interrupt", argv: []string{"-c", "raise KeyboardInterrupt"}},
	{name: "signal", argv: []string{"-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"}},
	{name: "closed pipe", argv: []string{"-c", "import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')"}},
	{name: "own hook", argv: []string{"-c", "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t, tb.tb_frame.f_code.co_name, tb.tb_lineno, tb.tb_next)\n1/0"}},
	{name: "at exit", argv: []string{"-c", "import atexit\natexit.register(print, 'bye')\nclass D:\n  def __del__(s): print('del')\nd = D()"}},
	{name: "exit with a number", argv: []string{"-c", "import sys; sys.exit(7)"}},
	{name: "exit with a large number", argv: []string{"-c", "import sys; sys.exit(1000)"}},
	{name: "exit with a negative number", argv: []string{"-c", "import sys; sys.exit(-1)"}},
	{name: "exit with true", argv: []string{"-c", "import sys; sys.exit(True)"}},
	{name: "exit with text", argv: []string{"-c", "import sys; sys.exit('why')"}},
	{name: "exit with an object", argv: []string{"-c", "class C:\n  def __str__(s): return 'c'\n  def __del__(s): print('del')\nraise SystemExit(C())"}},
	{name: "exit of a module", argv: []string{"-m", "sub.leaves"}},
	{name: "at exit, an error", argv: []string{"-c", "import atexit\n@atexit.register\ndef f(): 1/0\nprint('x')"}},
	{name: "at exit, an exit", argv: []string{"-c", "import atexit, sys\natexit.register(sys.exit, 5)\nprint('x')"}},
	{name: "a hook that exits", argv: []string{"-c", "import sys\nsys.excepthook = lambda *a: sys.exit(9)\n1/0"}},
	{name: "a full device", argv: []string{"-c", "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x')"}},
	{name: "closed output", argv: []string{"-c", "import sys\nprint('x')\nsys.stdout.close()"}},
	{name: "closed descriptor", argv: []string{"-c", "import os\nprint('x')\nos.close(1)"}},
	{name: "a warning of the compiler", argv: []string{"-c", "x = 1\n\n\nprint('\\d')"}},
	{name: "a proxy of what is gone", argv: []string{"-c", "import weakref, json\nclass A: pass\na = A()\njson.p = weakref.proxy(a)\ndel a\nprint('x')"}},
	{name: "a class that raises", argv: []string{"-c", "import json\nclass A:\n  @property\n  def __class__(s): raise ValueError('c')\njson.a = A()\nprint('x')"}},
	{name: "a hook that raises", argv: []string{"-c", "import sys\ndef h(*a):\n  print('h', flush=True)\n  raise ValueError('in it')\nsys.excepthook = h\n1/0"}},
	{name: "the number of the thread", argv: []string{"-c", "import os, threading; print(threading.main_thread().native_id == os.getpid())"}},
	{name: "no output", argv: []string{"-c", "import sys\nsys.stdout = None\nprint('x')"}},
	{name: "other output", argv: []string{"-c", "import sys, io\nprint('x')\nsys.stdout = io.StringIO()\nprint('y')"}},
	{name: "output of a library", argv: []string{"-c", "import ctypes, sys\nctypes.CDLL(None).printf(b'from C\\n')"}},
	{name: "globals at the end", argv: []string{"-c", "import os\nclass D:\n  def __del__(s): print('del', os.getcwd(), other, D.__name__)\nother = 5\nd = D()\nd.self = d"}},
	{name: "the end of a module", argv: []string{"-c", "import ends\nprint('x')"}},
	{name: "a file that is left open", argv: []string{"-c", "import json\njson.left = open('/tmp/left', 'w')\njson.left.write('kept')\nimport os\nif os.fork() == 0: os._exit(0)"}},
	{name: "what was in it", argv: []string{"-c", "print(open('/tmp/left').read())"}},
	{name: "a daemon thread", argv: []string{"-c", "import threading, time\ndef f():\n  while True: time.sleep(.001)\nthreading.Thread(target=f, daemon=True).start()\ntime.sleep(.05)\nprint('x')"}},
	{name: "an executor", argv: []string{"-c", "import concurrent.futures as c\ne = c.ThreadPoolExecutor(2)\nprint(list(e.map(str, range(3))))\ne.submit(print, 'late')"}},
	{name: "a generator that isn't ended", argv: []string{"-c", "def g():\n  try: yield 1\n  finally: print('ended')\nx = g(); next(x)"}},
	{name: "a temporary directory", argv: []string{"-c", "import tempfile, os\nd = tempfile.TemporaryDirectory(prefix='gone', dir='/tmp')\nprint(os.path.isdir(d.name))"}},
	{name: "is gone", argv: []string{"-c", "import os; print([n for n in os.listdir('/tmp') if n.startswith('gone')])"}},
	{name: "an exit in a child", argv: []string{"-c", "import os, sys\nif os.fork() == 0: sys.exit(4)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"}},
	{name: "log records", argv: []string{"-c", "import logging, logging.handlers\nlogging.getLogger().addHandler(logging.handlers.MemoryHandler(100, target=logging.StreamHandler()))\nlogging.warning('kept')"}},
	{name: "threads", argv: []string{"-c", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.05), print('late'))).start()"}},
	{name: "file", argv: []string{"/workspace/file.py", "1"}},
	{name: "relative file", argv: []string{"./sub/rel.py"}},
	{name: "exception in a file", argv: []string{"/workspace/boom.py"}},
	{name: "other encoding", argv: []string{"/workspace/latin.py"}},
	{name: "module", argv: []string{"-m", "modu", "z"}},
	{name: "no such module", argv: []string{"-m", "nosuchmodule"}},
	{name: "exception in a module", argv: []string{"-m", "sub.boom"}},
	{name: "standard module", argv: []string{"-m", "json.tool", "--no-ensure-ascii"}, stdin: `{"a": [1, "é"]}`},
	{name: "stdin is the program", argv: []string{"-", "q"}, stdin: "import sys\nprint(sys.argv, repr(sys.stdin.read()))\n1/0\n"},
	{name: "no arguments", stdin: "print(__name__, __builtins__)\n"},
	{name: "stdin is the input", argv: []string{"-c", "print(input()[::-1]); import sys; print(sys.stdin.buffer.read())"}, stdin: "häl\nrest\n"},
	{name: "no stdin", argv: []string{"-c", "import sys; print(repr(sys.stdin.read()), sys.stdin, sys.stdout, sys.stderr, sys.stdout.line_buffering, sys.stderr.line_buffering)"}},
	{name: "environment", argv: []string{"-c", "import os, time, subprocess\nprint(sorted(os.environ.items()), time.tzname, os.getcwd())\nprint(subprocess.run(['env'], capture_output=True).stdout)"}, env: []string{"TZ=Asia/Tokyo", "X=1=2", "EMPTY="}},
	{name: "flags", argv: []string{"-c", "import sys; print(sys.flags, sys.executable, sys.prefix, sys.orig_argv, sys.warnoptions, sys._xoptions, sys.path, sys.dont_write_bytecode)"}},
	{name: "globals", argv: []string{"-c", "print(sorted(globals().items(), key=lambda i: i[0])); import __main__; print(sorted(vars(__main__)))"}},
	{name: "globals of a file", argv: []string{"/workspace/globals.py"}},
	{name: "user", argv: []string{"-c", "import os; print(os.getresuid(), os.getresgid(), len(os.getgroups()), os.getsid(0) == os.getpid() == os.getpgrp(), os.umask(0), os.getppid())"}},
	{name: "what the kernel says", argv: []string{"-c", "import re; print(re.findall('(?m)^(?:Cap|NoNew|Secc|Sig|Shd|Threads|Tracer|Umask|CoreDump|Speculation).*', open('/proc/self/status').read()))"}},
	{name: "limits", argv: []string{"-c", "import resource; print([(n, resource.getrlimit(getattr(resource, n))) for n in sorted(dir(resource)) if n.startswith('RLIMIT')])"}},
	{name: "descriptors", argv: []string{"-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"}},
	{name: "own files of proc", argv: []string{"-c", "import os; print(os.stat('/proc/self/fd').st_uid, os.access('/proc/self/mem', os.W_OK), open('/proc/self/comm').read())"}},
	{name: "standard output by its path", argv: []string{"-c", "open('/dev/fd/1' if __import__('os').path.exists('/dev/fd') else '/proc/self/fd/1', 'w').write('again\\n')"}},
	{name: "signals", argv: []string{"-c", "import signal; print([(s, signal.getsignal(s)) for s in sorted(signal.valid_signals())], signal.pthread_sigmask(0, []))"}},
	{name: "children", argv: []string{"-c", "import os, subprocess; print(subprocess.run(['sh', '-c', 'id -u; exit 3']).returncode)"}},
	{name: "processes of a pool", argv: []string{"/workspace/pool.py"}},
	{name: "big arguments", argv: []string{"-c", "import sys; print(len(sys.argv[1]), len(sys.argv))", strings.Repeat("x", 100<<10), strings.Repeat("ü", 50<<10)}},
}

// likeColdFiles creates the programs' files.
const likeColdFiles = `mkdir sub
echo 'import sys; print(sys.argv, sys.path[0], __file__, __name__)' | tee sub/rel.py modu.py > file.py
printf 'def f():\n    raise KeyError("k")\nf()\n' | tee sub/boom.py > boom.py
printf '# -*- coding: latin-1 -*-\nprint("\344")\n' > latin.py
printf 'import sys\nclass D:\n  def __del__(s): print("del", sys is not None, D is not None)\nd = D()\nd.self = d\n' > ends.py
echo 'import sys; sys.exit(3)' > sub/leaves.py
echo 'print(sorted((k, repr(v)[:60]) for k, v in globals().items()))' > globals.py
printf 'import multiprocessing\ndef f(x): return x*x\nif __name__ == "__main__":\n  multiprocessing.set_start_method("fork")\n  with multiprocessing.Pool(2) as p: print(p.map(f, range(4)))\n' > pool.py`

// Every program has the same output, errors and exit, whether it was started from the zygote or
// executed.
func TestWarmAndColdStartsGiveTheSameResult(t *testing.T) {
	hot, cold := newWarmBed(t, "json", "decimal", "random", "logging"), newBed(t, 100)
	for _, b := range []*bed{hot, cold} {
		if r := b.sh(t, likeColdFiles); r.exit.Code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	for _, test := range likeCold {
		t.Run(test.name, func(t *testing.T) {
			start := agent.Start{Argv: append([]string{"python3"}, test.argv...), Env: append(append([]string{}, testEnv...), test.env...)}
			got, started := hot.temperature(t, start, test.stdin)
			want, never := cold.temperature(t, start, test.stdin)
			if !started.Warm || started.Cold != "" || never.Warm || never.Cold != "" {
				t.Errorf("started %+v, %+v", started, never)
			}
			for _, of := range []*result{&got, &want} {
				of.stdout, of.stderr = addresses(of.stdout), addresses(of.stderr)
			}
			if got.stdout != want.stdout || got.stderr != want.stderr || got.exit.Code != want.exit.Code || got.exit.Signal != want.exit.Signal {
				t.Errorf("warm: %q %q %d %s\ncold: %q %q %d %s", got.stdout, got.stderr, got.exit.Code, got.exit.Signal, want.stdout, want.stderr, want.exit.Code, want.exit.Signal)
			}
		})
	}
}

// addresses removes addresses of objects.
func addresses(text string) string {
	parts := strings.Split(text, " at 0x")
	for i, part := range parts[1:] {
		parts[i+1] = strings.TrimLeft(part, "0123456789abcdef")
	}
	return strings.Join(parts, " at ")
}

// A command that the zygote can't run like a new interpreter is started cold, and the reason is
// reported.
func TestUnsuitableCommandsStartCold(t *testing.T) {
	b := newWarmBed(t, "json")
	if r := b.sh(t, "mkdir shadow home; mkdir -p home/.local/lib/python"+b.version(t)+"/site-packages; echo 'print(1)' > x.py; cp x.py shadow/x.py; cp x.py shadow/json.py; cp x.py noname; ln -s $(command -v python3) python3; : > data"); r.exit.Code != 0 {
		t.Fatalf("%+v", r)
	}
	env := func(more ...string) []string { return append(append([]string{}, testEnv...), more...) }
	for reason, start := range map[string]agent.Start{
		"other than the interpreter":   {Argv: []string{"true"}},
		"interpreter":                  {Argv: []string{"./python3", "-c", "1"}},
		"option -u":                    {Argv: []string{"python3", "-u", "x.py"}},
		"option -R":                    {Argv: []string{"python3", "-R", "-c", "1"}},
		"option -cprint(1)":            {Argv: []string{"python3", "-cprint(1)"}},
		"without its argument":         {Argv: []string{"python3", "-c"}},
		"PYTHONHASHSEED":               {Argv: []string{"python3", "x.py"}, Env: env("PYTHONHASHSEED=1")},
		"PYTHONPATH":                   {Argv: []string{"python3", "x.py"}, Env: env("PYTHONPATH=/workspace")},
		"LC_ALL":                       {Argv: []string{"python3", "x.py"}, Env: env("LC_ALL=C")},
		"LD_PRELOAD":                   {Argv: []string{"python3", "x.py"}, Env: env("LD_PRELOAD=")},
		"OMP_NUM_THREADS":              {Argv: []string{"python3", "x.py"}, Env: env("OMP_NUM_THREADS=2")},
		"below the home directory":     {Argv: []string{"python3", "x.py"}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/workspace/home"}},
		"privileged":                   {Argv: []string{"python3", "x.py"}, Privileged: true},
		"json.py":                      {Argv: []string{"python3", "shadow/x.py"}},
		"file json.py":                 {Argv: []string{"python3", "-c", "1"}, Dir: "shadow"},
		"doesn't end in .py":           {Argv: []string{"python3", "noname"}},
		"an interactive interpreter":   {Argv: []string{"python3", "-"}, Terminal: &agent.Size{Columns: 80, Rows: 24}},
		"a program that can't be read": {Argv: []string{"python3", "missing.py"}},
	} {
		if start.Terminal != nil {
			p := b.sit(t, agent.Start{Argv: start.Argv, Env: testEnv})
			p.sees(1, ">>> ")
			p.types("print(6*7)\nexit()\n")
			p.sees(1, "42")
			p.ends()
			continue
		}
		_, started := b.temperature(t, start, "")
		if started.Warm || !strings.Contains(started.Cold, reason) {
			t.Errorf("%q %q: started %+v, where the reason has %q", start.Argv, start.Env, started, reason)
		}
	}
}

func (b *bed) version(t testing.TB) string {
	t.Helper()
	return strings.TrimSpace(b.run(t, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout)
}

// Nothing of one execution is visible in the next, and each has its own random numbers.
func TestWarmExecutionsAreIndependent(t *testing.T) {
	b := newWarmBed(t, "random", "json")
	const leave = "import os, sys, json, builtins, random\njson.left = builtins.left = sys.left = 1\nos.environ['LEFT'] = '1'\nrandom.seed(1)\nsys.path.append('/left')"
	const look = "import os, sys, json, builtins, random\nprint(hasattr(json, 'left'), hasattr(builtins, 'left'), hasattr(sys, 'left'), 'LEFT' in os.environ, '/left' in sys.path)\nprint(random.random())"
	seen := map[string]bool{}
	for range 3 {
		if _, started := b.temperature(t, agent.Start{Argv: []string{"python3", "-c", leave}}, ""); !started.Warm {
			t.Fatalf("started %+v", started)
		}
		r, started := b.temperature(t, agent.Start{Argv: []string{"python3", "-c", look}}, "")
		state, number, _ := strings.Cut(r.stdout, "\n")
		if !started.Warm || state != "False False False False False" || seen[number] {
			t.Errorf("started %+v; it finds %q", started, r.stdout)
		}
		seen[number] = true
	}
}

// A warm command has its limits and its terminal, and can be killed with everything that it
// started.
func TestWarmCommandsHaveTheirLimits(t *testing.T) {
	b := newWarmBed(t, "json")
	start := agent.Start{Argv: []string{"python3", "-c", "open('/workspace/big', 'wb').write(b'x' * 100000)"}, Limits: &agent.Limits{FileSize: 5000, OpenFiles: 16}}
	if r, started := b.temperature(t, start, ""); !started.Warm || r.exit.Code != 1 || !strings.Contains(r.stderr, "File too large") {
		t.Errorf("%+v, started %+v", r, started)
	}
	start = agent.Start{Argv: []string{"python3", "-c", "while True: pass"}, Limits: &agent.Limits{CPU: 1e9}}
	if r, started := b.temperature(t, start, ""); !started.Warm || r.exit.Cause != agent.CauseCPULimit {
		t.Errorf("%+v, started %+v", r, started)
	}
	s, err := b.session(t, agent.Start{Argv: []string{"python3", "-c", "import os, time\nif os.fork() == 0:\n  os.setsid()\n  os.fork()\n  time.sleep(1000)\nprint('x', flush=True)\ntime.sleep(1000)"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	if event, err := s.Next(); err != nil || !event.Started.Warm {
		t.Errorf("%+v, %v", event, err)
	}
	waitForOutput(t, s)
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	if r := b.finish(t, s); r.exit.Cause != agent.CauseKill {
		t.Errorf("%+v", r)
	}
	// The zygote's children have its name, but not its user.
	if r := b.sh(t, `n=0; for p in /proc/[0-9]*; do while read -r key user rest; do test "$key $user" = "Uid: 1000" && n=$((n+1)); done <$p/status; done 2>/dev/null; echo $n`); r.stdout != "1\n" {
		t.Errorf("commands that run, this shell among them: %+v", r)
	}
	p := b.sit(t, agent.Start{Argv: []string{"python3", "-c", "import os, sys, time\nprint(os.isatty(0), os.isatty(1), os.isatty(2), sys.stdout.line_buffering, open('/dev/tty').isatty())\nprint(input('? '))\nwhile True: time.sleep(.1)"}, Env: testEnv})
	p.sees(1, "True True True True True")
	p.sees(2, "? ")
	p.types("hi\n")
	p.sees(1, "hi") // the echo
	p.sees(1, "hi")
	p.types("\x03")
	p.sees(2, "KeyboardInterrupt")
	p.ends()
	if p.exited.Signal != "SIGINT" {
		t.Errorf("%+v", p.exited)
	}
}
