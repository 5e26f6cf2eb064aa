package attack

import "github.com/rockpool/rockpool/client"

// warmInput returns the interpreter and modules that runners load for attacks on a loaded interpreter.
func warmInput() *client.WarmInput {
	return &client.WarmInput{Interpreter: "PYTHON", Modules: []string{"decimal", "random"}}
}

// python returns a step that runs a program in the loaded interpreter, and prints whether that worked.
func python(program string) Step {
	return command("python3", "-c", "import sys\nprint('warm', 'decimal' in sys.modules)\n"+program)
}

// cold returns a step that runs a program in a new interpreter.
func cold(program string) Step { return command("python3", "-B", "-c", program) }

// reachZygote is a program that tries to read, change and signal the other interpreters in the runner.
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

// gain is a program that prints its privileges and tries to get more.
const gain = `import os
for line in open('/proc/self/status'):
    if line.startswith(('Uid', 'Gid', 'Cap', 'NoNew', 'Seccomp:')): print(line, end='')
for name, args in (('setuid', (0,)), ('setuid', (59999,)), ('setresuid', (-1, 59999, -1)), ('setgid', (59999,)), ('setgroups', ([],))):
    try: getattr(os, name)(*args); print('became', name)
    except OSError: pass`

// signalZygote returns a step in which root signals the loaded interpreter and its waiting child.
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

// warm returns the attacks in environments with a loaded Python interpreter.
func warm() []Attack {
	lives := command("python3", "-c", "print('lives')")
	rows := []Attack{
		{
			Name: "the loaded interpreter", Class: Escapes, Defence: ZygoteUser, Tries: "to read, change, slow down, stop or end the loaded interpreter",
			Steps: []Step{python(reachZygote), cold(reachZygote)},
			Held:  "^warm True\ntried True\n=> EXITED 0\ntried True\n=> EXITED 0", Never: "^(got|wrote|bound|slowed|signalled)",
		},
		{
			Name: "privileges of a warm program", Class: Escapes, Defence: Checked, Tries: "to keep the user and the capabilities of the loaded interpreter",
			Steps: []Step{python(gain)},
			Held: "^warm True\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\n" +
				"CapInh:\t0+\nCapPrm:\t0+\nCapEff:\t0+\nCapBnd:\t0+\nCapAmb:\t0+\nNoNewPrivs:\t1\nSeccomp:\t2\n=> EXITED 0", Never: "became",
		},
		{
			Name: "descriptors of the loaded interpreter", Class: Escapes, Defence: Descriptors, Tries: "to find a descriptor that the loaded interpreter left open",
			Steps: []Step{python("import os\nprint('inherited', [f for f in os.listdir('/proc/self/fd') if int(f) > 2 and os.path.exists('/proc/self/fd/' + f)])")},
			Held:  "^warm True\ninherited \\[\\]\n=> EXITED 0",
		},
		{
			Name: "a killed interpreter", Class: Processes, Defence: Fallback, Tries: "as root of the runner, to make the next commands hang or fail",
			Steps: []Step{signalZygote("SIGKILL"), lives, lives},
			Held:  "^signalled True\n=> EXITED 0\nlives\n=> EXITED 0\nlives\n=> EXITED 0",
		},
		{
			Name: "a stopped interpreter", Class: Processes, Defence: Fallback, Tries: "as root of the runner, to make the next commands wait forever",
			Steps: []Step{signalZygote("SIGSTOP"), lives, lives, lives},
			Held:  "^signalled True\n=> EXITED 0\nlives\n=> EXITED 0\nlives\n=> EXITED 0\nlives\n=> EXITED 0",
		},
		{
			Name: "interpreter state of the previous execution", Class: Residue, Defence: Forked, Tries: "to find what an earlier program left in the interpreter",
			Steps: []Step{
				python("import builtins, decimal, os, random, atexit\nfor m in (builtins, decimal, sys, os): m.left = 1\nos.environ['LEFT'] = '1'\nsys.path.append('/left')\natexit.register(print, 'found')\nos.umask(0); os.chdir('/tmp')"),
				python("import builtins, decimal, os, random\nfor m in (builtins, decimal, sys, os):\n  if hasattr(m, 'left'): print('found', m)\nprint('LEFT' in os.environ, '/left' in sys.path, os.umask(0), os.getcwd())"),
			},
			Held: "^warm True\nfound\n=> EXITED 0\nwarm True\nFalse False 18 /workspace\n=> EXITED 0", Never: "found <",
		},
		{
			Name: "random numbers of the previous execution", Class: Residue, Defence: Forked, Tries: "to predict the random numbers of another program",
			Steps: []Step{python("import random\nprint(random.getrandbits(64))"), python("import random\nprint(random.getrandbits(64))")},
			Held:  "^warm True\n\\d+\n=> EXITED 0\nwarm True\n\\d+\n=> EXITED 0", Distinct: true,
		},
		{
			Name: "hash seed of another runner", Class: Residue, Defence: Forked, Tries: "to learn the hash seed of another runner's interpreter",
			Steps: []Step{python("print(hash('a'))"), python("print(hash('a'))").inOther()},
			Held:  "^warm True\n-?\\d+\n=> EXITED 0\nwarm True\n-?\\d+\n=> EXITED 0", Distinct: true,
		},
	}
	for i := range rows {
		rows[i].Tiers, rows[i].Warm = shared, true
	}
	return rows
}
