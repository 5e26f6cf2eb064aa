package attack

import "github.com/rockpool/rockpool/client"

// resources returns the attacks that exceed a limit of the runner.
func resources() []Attack {
	full := func(name, tries, dir, most string) Attack {
		return Attack{
			Name: name, Class: Resources, Defence: Room, Tries: tries, Bomb: true,
			Steps: []Step{probe("fill", dir+"/full", "48"), shell("rm -f " + dir + "/full; echo lives")},
			Held:  "^wrote " + most + " MiB ENOSPC\n=> EXITED 0\nlives\n=> EXITED 0",
		}
	}
	inodes := func(name, dir, most string) Attack {
		return Attack{
			Name: name, Class: Resources, Defence: Room, Tries: "to use memory with empty files", Bomb: true,
			Steps: []Step{probe("files", dir, "20000"), shell("echo lives")},
			Held:  "^made " + most + " files ENOSPC\n=> EXITED 0\nlives\n=> EXITED 0",
			Tiers: shared, // gVisor's file systems don't count files: they limit the files' memory
		}
	}
	// With gVisor, the machine ends one of gVisor's processes at the memory limit. If that is its
	// kernel or the agent's process, the runner is gone.
	gone := func(held string) string {
		return held + "|^=> RUNNER_GONE (OUT_OF_MEMORY|AGENT_DIED)\n=> refused RUNNER_GONE"
	}
	memory := func(name, tries string, bomb Step) Attack {
		const held = "^=> MEMORY_LIMIT.*\nlives\n=> EXITED 0"
		return Attack{
			Name: name, Class: Resources, Defence: MemoryLimit, Tries: tries, Bomb: true,
			Steps: []Step{bomb, shell("echo lives")}, Held: held, GVisor: gone(held), Never: "took 192",
		}
	}
	const tooMany = "=> PROCESS_LIMIT.*\nlives\n=> EXITED 0"
	const fewMade = "=> (PROCESS_LIMIT|EXITED 0).*\nlives\n=> EXITED 0" // a program may survive refused forks
	return []Attack{
		{
			Name: "a fork bomb", Class: Resources, Defence: ProcessLimit, Tries: "to exhaust processes by forking exponentially", Bomb: true,
			Steps: []Step{shell("bomb() { bomb | bomb & }; bomb; sleep 10"), shell(countOthers)},
			Held:  "=> (PROCESS_LIMIT|TIME_LIMIT|EXITED 0).*\nleft 0\n=> EXITED 0", // shells end at a refused fork, so the bomb may end on its own
		},
		{
			Name: "many processes", Class: Resources, Defence: ProcessLimit, Tries: "to exhaust processes by forking one after the other", Bomb: true,
			Steps: []Step{probe("fork", "200"), shell("echo lives")}, Held: fewMade, GVisor: gone(fewMade), Never: "made 200",
		},
		{
			Name: "many threads", Class: Resources, Defence: ProcessLimit, Tries: "to exhaust processes with threads", Bomb: true,
			Steps: []Step{probe("threads", "200"), shell("echo lives")}, Held: tooMany, GVisor: gone(tooMany), Never: "has 200",
		},
		memory("much memory", "to exhaust memory", probe("memory", "192")),
		memory("memory as root", "as root of the runner, to exhaust memory", probe("memory", "192").asRoot()),
		memory("memory of an anonymous file", "to exhaust memory with a file in memory", probe("map", "memfd", "192")),
		memory("memory of a System V segment", "to exhaust memory with a segment that outlives its process", probe("map", "shm", "192")),
		full("a full workspace", "to fill the disk or memory through the workspace", "/workspace", `\d`),
		full("a full /tmp", "to fill the disk or memory through /tmp", "/tmp", `1?\d`),
		full("a full /dev/shm", "to fill memory through /dev/shm", "/dev/shm", `[123]\d`),
		inodes("many files", "/workspace", `[1-4]?\d?\d?\d`),
		inodes("many files in /dev/shm", "/dev/shm", `1?\d?\d?\d?\d`),
		{
			Name: "large uploads", Class: Resources, Defence: Room, Tries: "to fill the runner's disk with two uploads", Bomb: true,
			Steps: []Step{upload("large", string(make([]byte, 6<<20))), upload("another", string(make([]byte, 6<<20))), shell("echo lives")},
			Held:  "^=> uploaded\n=> refused STORAGE_FULL .*\nlives\n=> EXITED 0",
		},
		{
			Name: "a flood of output", Class: Resources, Defence: OutputLimit, Tries: "to fill the server's disk with output", Bomb: true,
			Steps: []Step{shell("head -c 8000000 /dev/zero"), shell("echo lives")}, Held: "=> OUTPUT_LIMIT.*\nlives\n=> EXITED 0",
		},
		{
			Name: "an endless flood of output", Class: Resources, Defence: OutputLimit, Tries: "to fill the server's disk with two endless programs, one of which ignores signals", Bomb: true,
			Steps: []Step{shell("(trap '' TERM PIPE; exec yes) & yes >&2"), shell(countOthers)}, Held: "=> OUTPUT_LIMIT.*\nleft 0\n=> EXITED 0",
		},
		{
			Name: "CPU time", Class: Resources, Defence: CPULimit, Tries: "to use all CPUs", Bomb: true,
			Steps: []Step{probe("spin", "2", "1500", "{share}")}, Held: "^had \\d+ % of a processor, within its share\n=> EXITED 0", Tiers: shared,
		},
		{
			Name: "CPU time of other runners", Class: Resources, Defence: CPULimit, Tries: "to starve other runners of CPU time", Bomb: true,
			Steps: []Step{shell("echo on; for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait").within(3).behind(), shell("echo runs").inOther()},
			Held:  "^on\n=> \nruns\n=> EXITED 0",
		},
		{
			Name: "an endless program", Class: Resources, Defence: TimeLimit, Tries: "to run forever",
			Steps: []Step{shell("echo on; while :; do sleep 1; done").within(3)}, Held: "^on\n=> TIME_LIMIT",
		},
		{
			Name: "open files", Class: Resources, Defence: FileLimits, Tries: "to exhaust file descriptors",
			Steps: []Step{probe("open", "5000").limited(client.LimitsInput{OpenFiles: new(64)})}, Held: "^opened [1-6]?\\d EMFILE\n=> EXITED 0",
		},
		{
			Name: "a large file", Class: Resources, Defence: FileLimits, Tries: "to write a file above the size limit", Bomb: true,
			Steps: []Step{probe("fill", "/tmp/large", "4").limited(client.LimitsInput{FileSize: new(int64(2 << 20))})}, Held: "^(wrote [0-2] MiB EFBIG\n=> EXITED 0|(.*\n)*=> (SIGNALED SIGXFSZ|EXITED 2))", Never: "wrote 4 MiB",
		},
		{
			Name: "queued signals", Class: Resources, Defence: UserLimits, Tries: "to exhaust the kernel's queue for signals, which all runners share",
			Steps: []Step{probe("signals", "5000")}, Held: "^queued [1-3]?\\d?\\d EAGAIN\n=> EXITED 0",
		},
		{
			Name: "message queues", Class: Resources, Defence: UserLimits, Tries: "to use kernel memory with message queues",
			Steps: []Step{calls("mq_open")}, Held: "^mq_open E(MFILE|PERM|NOSYS|ACCES)\n=> EXITED 0",
			Tiers: shared, // gVisor's kernel has its own queues
		},
		{
			Name: "locked memory", Class: Resources, Defence: UserLimits, Tries: "to lock memory that the kernel can't reclaim",
			Steps: []Step{calls("mlock")}, Held: "^mlock E(NOMEM|PERM|AGAIN)\n=> EXITED 0",
		},
	}
}
