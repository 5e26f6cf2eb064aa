package attack

// countOthers is a script that counts the processes other than the agent and itself.
const countOthers = `n=0; for p in /proc/[0-9]*; do case ${p#/proc/} in 1|$$) ;; *) read -r c <$p/comm && n=$((n+1)) ;; esac; done 2>/dev/null; echo left $n`

// processes returns the attacks that outlive, fake or delay the end of their execution.
func processes() []Attack {
	daemons := func(name, tries, how string) Attack {
		return Attack{
			Name: name, Class: Processes, Defence: Marked, Tries: tries,
			Steps: []Step{shell(proberPath + " daemon " + how + "; sleep 0.2; echo gone"), shell(countOthers)},
			Held:  "^left done\ngone\n=> EXITED 0\nleft 0\n=> EXITED 0",
		}
	}
	return []Attack{
		daemons("leaving the session", "to outlive its execution with setsid and a double fork", ""),
		daemons("leaving the session, ignoring signals", "to outlive its execution and ignore signals", "deaf"),
		daemons("leaving the session, keeping the output open", "to delay the end of its execution by keeping its output open", "deaf hold"),
		daemons("leaving the session, all closed", "to outlive its execution with all descriptors closed", "deaf closed"),
		{
			Name: "many processes that leave the session", Class: Processes, Defence: Marked, Tries: "to outlive its execution with many processes",
			Steps: []Step{shell("for i in 1 2 3 4 5 6; do setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 60; done' </dev/null >/dev/null 2>&1 & done; sleep 0.2; echo gone"), shell(countOthers)},
			Held:  "^gone\n=> EXITED 0\nleft 0\n=> EXITED 0",
		},
		{
			Name: "killing everything", Class: Processes, Defence: OtherUser, Tries: "to kill all processes that it can, including the agent",
			Steps: []Step{probe("killall"), shell("kill -KILL -1; echo killed"), shell("echo lives")},
			Held:  "^kill -1 (done|ESRCH|EPERM)\n=> EXITED 0\n(.*\n)*lives\n=> EXITED 0",
		},
		{
			Name: "killing everything as root", Class: Processes, Defence: OtherUser, Tries: "as root of the runner, to kill all processes that it can",
			Steps: []Step{probe("killall").asRoot(), shell("echo answered")},
			// The agent is process 1, which processes in its namespace can't kill.
			Held: "^kill -1 (done|ESRCH|EPERM)\n=> EXITED 0\nanswered\n=> EXITED 0",
		},
		{
			Name: "processes of other runners", Class: Processes, Defence: OwnUsers, Tries: "to see processes of other runners",
			Steps: []Step{shell("set -- /proc/[0-9]*; test $# -lt 16 && echo few"), shell("set -- /proc/[0-9]*; test $# -lt 16 && echo few").asRoot()},
			Held:  "^few\n=> EXITED 0\nfew\n=> EXITED 0",
		},
		{
			Name: "a stopped program", Class: Processes, Defence: TimeLimit, Tries: "to never end by stopping itself",
			Steps: []Step{shell("echo still; kill -STOP $$; echo woken").within(3), shell("echo lives")},
			Held:  "^still\n=> TIME_LIMIT.*\nlives\n=> EXITED 0",
		},
		{
			Name: "ignoring signals", Class: Processes, Defence: TimeLimit, Tries: "to outlive its time limit by ignoring signals",
			Steps: []Step{shell("trap '' TERM HUP INT QUIT; echo on; while :; do sleep 1; done").within(3), shell(countOthers)},
			Held:  "^on\n=> TIME_LIMIT.*\nleft 0\n=> EXITED 0",
		},
		{
			Name: "closing its output", Class: Processes, Defence: Marked, Tries: "to look ended by closing its output",
			Steps: []Step{shell("exec <&- >&- 2>&-; sleep 0.3; exit 3"), shell("echo lives")},
			Held:  "^=> EXITED 3\nlives\n=> EXITED 0",
		},
		{
			Name: "a forged result", Class: Processes, Defence: Frames, Tries: "to forge its result by printing messages of the agent",
			Steps: []Step{probe("fakeexec")}, Held: "^=> EXITED 77",
		},
		{
			Name: "zombies", Class: Processes, Defence: ProcessLimit, Tries: "to fill the process table with zombies",
			Steps: []Step{probe("zombies", "200"), shell(countOthers)}, Held: "^(made [1-3]?\\d zombies\n)?=> (PROCESS_LIMIT.*|EXITED 0)\nleft 0\n=> EXITED 0",
			Bomb: true,
		},
		{
			Name: "orphaned processes", Class: Processes, Defence: Marked, Tries: "to leave zombies to the agent",
			Steps: []Step{shell("for i in 1 2 3 4 5 6 7 8; do (sleep 0.05 &) ; done; sleep 0.3; echo gone"), shell("n=0; for p in /proc/[0-9]*; do grep -q '^State:.Z' $p/status 2>/dev/null && n=$((n+1)); done; echo dead $n")},
			Held:  "^gone\n=> EXITED 0\ndead 0\n=> EXITED 0",
		},
		{
			Name: "a flood of process starts", Class: Processes, Defence: ProcessLimit, Tries: "to keep the agent busy with process starts and ends",
			Steps: []Step{shell("i=0; while [ $i -lt 300 ]; do (:) & i=$((i+1)); [ $((i % 10)) = 0 ] && wait; done; echo done"), shell("echo lives")},
			Held:  "^done\n=> EXITED 0\nlives\n=> EXITED 0", Bomb: true,
		},
	}
}

// Segments has the keys of the System V shared memory that attacks use.
var Segments = []int{77007, 77008}

// residue returns the attacks that look for data of earlier or concurrent runners.
func residue() []Attack {
	return []Attack{
		{
			Name: "files of the previous runner", Class: Residue, Defence: OwnFiles, Tries: "to find files of the previous runner",
			Steps: []Step{
				shell("for d in /workspace /tmp /dev/shm /var/tmp; do echo left >$d/attack-residue; mkdir -p $d/.hidden; done; echo made"),
				next(), shell("ls -A /workspace /tmp /tmp/home /dev/shm /var/tmp/ /run /home /root 2>/dev/null | grep -v -e ':$' -e '^$' -e '^.prober$' -e '^home$' | sed 's/^/found /'; echo looked"),
			},
			Held: "^made\n=> EXITED 0\n=> next\nlooked\n=> EXITED 0", Never: "found",
		},
		{
			Name: "root's files of the previous runner", Class: Residue, Defence: Mounts, Tries: "to find files that root of the previous runner wrote",
			Steps: []Step{
				shell("for d in / /etc /usr /usr/bin /opt /home /root /var /run /dev /mnt /.rockpool; do (echo left >$d/attack-residue) 2>/dev/null; done; echo made").asRoot(),
				next(), shell("ls /attack-residue /*/attack-residue /usr/bin/attack-residue 2>/dev/null | sed 's/^/found /'; echo looked"),
			},
			Held: "^made\n=> EXITED 0\n=> next\nlooked\n=> EXITED 0", Never: "found",
		},
		{
			Name: "processes of the previous runner", Class: Residue, Defence: OwnUsers, Tries: "to find a process of the previous runner",
			Steps: []Step{shell("echo on; sleep 55").behind(), next(), shell(countOthers)},
			Held:  "^on\n=> \n=> next\nleft 0\n=> EXITED 0",
		},
		{
			Name: "shared memory of the previous runner", Class: Residue, Defence: OwnIPC, Tries: "to find a System V segment of the previous runner",
			Steps: []Step{probe("shm", "make", "77007"), next(), probe("shm", "find", "77007")},
			Held:  "^segment done\n=> EXITED 0\n=> next\nsegment ENOENT\n=> EXITED 0",
		},
		{
			Name: "shared memory of another runner", Class: Residue, Defence: OwnIPC, Tries: "to find a System V segment of another runner",
			Steps: []Step{probe("shm", "make", "77008").inOther(), probe("shm", "find", "77008")},
			Held:  "^segment done\n=> EXITED 0\nsegment ENOENT\n=> EXITED 0",
		},
		{
			Name: "a port of the previous runner", Class: Residue, Defence: OwnNetwork, Tries: "to reach a listening port of the previous runner",
			Steps: []Step{probe("loopback", "7708").behind(), next(), probe("connect", "tcp", "127.0.0.1:7708")},
			Held:  "^listening done\n=> \n=> next\ntcp \\S+ ECONNREFUSED\n=> EXITED 0",
		},
		{
			Name: "variables of the server", Class: Residue, Defence: OwnFiles, Tries: "to find the server's environment variables",
			Steps: []Step{shell("env | cut -d= -f1 | grep -v -x -E 'PATH|HOME|USER|LOGNAME|PWD|SHLVL|_|OLDPWD|TERM|LANG|SHELL|PYTHONUNBUFFERED|[AL]SAN_OPTIONS|OMPI_MCA_[a-z_]*|OMP_NUM_THREADS|CARGO_NET_OFFLINE|GO(DEBUG|FLAGS|MAXPROCS|PROXY|TOOLCHAIN)|NPM_CONFIG_FETCH_RETRIES|PIP_RETRIES|UV_OFFLINE' | sed 's/^/found /'; echo looked")},
			Held:  "^looked\n=> EXITED 0", Never: "found",
		},
	}
}
