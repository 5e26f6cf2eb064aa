package attack

import "github.com/rockpool/rockpool/client"

// warmInput is what runners load for attacks on an interpreter that is loaded before.
func warmInput() *client.WarmInput {
	return &client.WarmInput{Interpreter: "PYTHON", Modules: []string{"decimal", "random"}}
}

// python runs a program by the interpreter that is loaded, and shows that it was.
func python(program string) Step {
	return command("python3", "-c", "import sys\nprint('warm', 'decimal' in sys.modules)\n"+program)
}

// cold runs a program by an interpreter of its own.
func cold(program string) Step { return command("python3", "-B", "-c", program) }

// reachZygote tries what can be done to other interpreters of the runner.
const reachZygote = `import os, signal
found = 0
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: status = open('/proc/%s/status' % pid).read()
    except OSError: continue
    if '\tpython' not in status or int(pid) == os.getpid(): continue
    found += 1
    for name in ('mem', 'environ', 'maps', 'auxv', 'stack', 'syscall', 'fd/3', 'task/%s/mem' % pid):
        try: open('/proc/%s/%s' % (pid, name), 'rb').read(1); print('got', name)
        except OSError: pass
    for name in ('fd', 'map_files'):
        try: os.listdir('/proc/%s/%s' % (pid, name)); print('got', name)
        except OSError: pass
    for name in ('cwd', 'root', 'exe', 'fd/3'):
        try: os.readlink('/proc/%s/%s' % (pid, name)); print('got', name)
        except OSError: pass
    for name in ('mem', 'oom_score_adj', 'comm', 'clear_refs'):
        try: open('/proc/%s/%s' % (pid, name), 'wb').write(b'0'); print('wrote', name)
        except OSError: pass
    try: os.sched_setaffinity(int(pid), {0}); print('bound')
    except OSError: pass
    try: os.setpriority(os.PRIO_PROCESS, int(pid), 19); print('slowed')
    except OSError: pass
    for number in (0, signal.SIGSTOP, signal.SIGKILL):
        try: os.kill(int(pid), number); print('signalled', number)
        except OSError: pass
print('tried', found > 0)`

// gain shows what a program has, and tries to have more.
const gain = `import os
for line in open('/proc/self/status'):
    if line.startswith(('Uid', 'Gid', 'Cap', 'NoNew', 'Seccomp:')): print(line, end='')
for name, args in (('setuid', (0,)), ('setuid', (59999,)), ('setresuid', (-1, 59999, -1)), ('setgid', (59999,)), ('setgroups', ([],))):
    try: getattr(os, name)(*args); print('became', name)
    except OSError: pass`

// signalZygote has root signal the loaded interpreter and its children, of which one waits.
func signalZygote(signal string) Step {
	return cold(`import os, signal, time
def zygotes():
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try: status = open('/proc/%s/status' % pid).read()
        except OSError: continue
        if 'Uid:\t59999\t59999' in status: yield int(pid)
until = time.time() + 20
while len(found := list(zygotes())) < 2 and time.time() < until: time.sleep(.05)
for pid in found: os.kill(pid, signal.` + signal + `)
print('signalled', len(found) > 1)`).asRoot()
}

func warm() []Attack {
	lives := command("python3", "-c", "print('lives')")
	rows := []Attack{
		{
			Name: "the loaded interpreter", Class: Escapes, Defence: ZygoteUser, Tries: "to read, change, slow, stop or end the interpreter that others start from",
			Steps: []Step{python(reachZygote), cold(reachZygote)},
			Held:  "^warm True\ntried True\n=> EXITED 0\ntried True\n=> EXITED 0", Never: "^(got|wrote|bound|slowed|signalled)",
		},
		{
			Name: "what a warm program could gain", Class: Escapes, Defence: Checked, Tries: "to keep what the loaded interpreter has: its user and its capabilities",
			Steps: []Step{python(gain)},
			Held: "^warm True\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\n" +
				"CapInh:\t0+\nCapPrm:\t0+\nCapEff:\t0+\nCapBnd:\t0+\nCapAmb:\t0+\nNoNewPrivs:\t1\nSeccomp:\t2\n=> EXITED 0", Never: "became",
		},
		{
			Name: "descriptors of the loaded interpreter", Class: Escapes, Defence: Descriptors, Tries: "to find something open that the loaded interpreter has",
			Steps: []Step{python("import os\nprint('inherited', [f for f in os.listdir('/proc/self/fd') if int(f) > 2 and os.path.exists('/proc/self/fd/' + f)])")},
			Held:  "^warm True\ninherited \\[\\]\n=> EXITED 0",
		},
		{
			Name: "the loaded interpreter's end", Class: Processes, Defence: Fallback, Tries: "as root of the runner, to have the next commands hang or fail",
			Steps: []Step{signalZygote("SIGKILL"), lives, lives},
			Held:  "^signalled True\n=> EXITED 0\nlives\n=> EXITED 0\nlives\n=> EXITED 0",
		},
		{
			Name: "a stopped interpreter", Class: Processes, Defence: Fallback, Tries: "as root of the runner, to have the next commands wait for ever",
			Steps: []Step{signalZygote("SIGSTOP"), lives, lives, lives},
			Held:  "^signalled True\n=> EXITED 0\nlives\n=> EXITED 0\nlives\n=> EXITED 0\nlives\n=> EXITED 0",
		},
		{
			Name: "state of the one before, warm", Class: Residue, Defence: Forked, Tries: "to find what an earlier program left in the interpreter",
			Steps: []Step{
				python("import builtins, decimal, os, random, atexit\nfor m in (builtins, decimal, sys, os): m.left = 1\nos.environ['LEFT'] = '1'\nsys.path.append('/left')\natexit.register(print, 'found')\nos.umask(0); os.chdir('/tmp')"),
				python("import builtins, decimal, os, random\nfor m in (builtins, decimal, sys, os):\n  if hasattr(m, 'left'): print('found', m)\nprint('LEFT' in os.environ, '/left' in sys.path, os.umask(0), os.getcwd())"),
			},
			Held: "^warm True\nfound\n=> EXITED 0\nwarm True\nFalse False 18 /workspace\n=> EXITED 0", Never: "found <",
		},
		{
			Name: "random numbers of the one before, warm", Class: Residue, Defence: Forked, Tries: "to know the random numbers of another program",
			Steps: []Step{python("import random\nprint(random.getrandbits(64))"), python("import random\nprint(random.getrandbits(64))")},
			Held:  "^warm True\n\\d+\n=> EXITED 0\nwarm True\n\\d+\n=> EXITED 0", Apart: true,
		},
		{
			Name: "the seed of another's hashes", Class: Residue, Defence: Forked, Tries: "to know how the interpreter of another runner mixes hashes",
			Steps: []Step{python("print(hash('a'))"), python("print(hash('a'))").inOther()},
			Held:  "^warm True\n-?\\d+\n=> EXITED 0\nwarm True\n-?\\d+\n=> EXITED 0", Apart: true,
		},
	}
	for i := range rows {
		rows[i].Tiers, rows[i].Warm = shared, true
	}
	return rows
}
