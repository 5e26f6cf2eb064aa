package attack

import "github.com/rockpool/rockpool/runtime"

// shared has the tiers in which programs use the machine's kernel.
var shared = []runtime.Isolation{runtime.IsolationNamespaces}

// no matches the error of a call that is unavailable.
const no = "E(PERM|NOSYS|ACCES|AFNOSUPPORT|PROTONOSUPPORT)"

// barred returns an attack with one system call, as a user and as root of the runner.
func barred(class Class, call, tries string, by Defence) Attack {
	return Attack{
		Name: "call " + call, Class: class, Tries: tries, Defence: by, Gentle: true,
		Steps: []Step{calls(call), calls(call).asRoot()},
		Held:  "^" + call + " " + no + "\n=> EXITED 0\n" + call + " " + no + "\n=> EXITED 0\n",
	}
}

// kernel returns the attacks on the kernel's system calls and on their filter.
func kernel() []Attack {
	var all []Attack
	for _, row := range []struct{ call, tries string }{
		{"keyctl", "to use keyrings, which namespaces don't isolate"},
		{"add_key", "to leave a key for another runner"},
		{"request_key", "to make the machine start its key helper"},
		{"bpf", "to load programs into the kernel"},
		{"io_uring", "to make system calls that bypass the filter"},
		{"perf", "to observe the machine through performance counters"},
		{"userfaultfd", "to block the kernel at a page fault"},
		{"fanotify", "to observe file access by others"},
		{"vmsplice", "to give the kernel memory pages that change later"},
		{"kexec", "to start another kernel"},
		{"init_module", "to load a module"},
		{"reboot", "to restart the machine"},
		{"swapon", "to make the machine swap to a file of the runner"},
		{"acct", "to make the machine write process accounting into a file"},
		{"settimeofday", "to set the machine's clock"},
		{"clock_settime", "to set the machine's clock with the newer call"},
		{"syslog", "to read the kernel's log"},
		{"quotactl", "to change quotas"},
		{"mbind", "to place memory, a call with a history of kernel vulnerabilities"},
		{"kcmp", "to compare kernel pointers"},
		{"sync", "to make the machine flush the writes of all programs"},
		{"cachestat", "to learn from the page cache which files others read"},
		{"memfd_secret", "to hold memory that the kernel can't move"},
		{"vsock", "to reach the hypervisor, which network namespaces don't block"},
		{"alg", "to use the kernel's crypto API, which has a history of vulnerabilities"},
		{"packet", "to read and write raw packets"},
		{"netlink-audit", "to write into the machine's audit log"},
		{"netlink-filter", "to change packet filters, which have a history of kernel vulnerabilities"},
		{"unknown", "to make a call that only a newer kernel has"},
	} {
		all = append(all, barred(Kernel, row.call, row.tries, Filter))
	}
	return append(all,
		Attack{
			Name: "calls that only x86 has", Class: Kernel, Defence: Filter, Tries: "to access I/O ports, segments and modules with old calls",
			Steps: []Step{calls("iopl", "modify_ldt", "create_thing")},
			Held:  "^iopl (is unknown here|" + no + ")\nmodify_ldt (is unknown here|" + no + ")\ncreate_thing (is unknown here|" + no + ")\n=> EXITED 0",
		},
		Attack{
			Name: "clone3", Class: Kernel, Defence: Filter, Tries: "to create namespaces with a call whose flags the filter can't read",
			Steps: []Step{calls("clone3"), calls("clone3").asRoot()}, Held: "^clone3 ENOSYS\n=> EXITED 0\nclone3 ENOSYS\n=> EXITED 0",
			Tiers: shared,
		},
		Attack{
			Name: "calls of x32", Class: Kernel, Defence: Filter, Tries: "to make calls by their x32 numbers, which the filter's list doesn't have",
			Steps: []Step{calls("x32")}, Held: "^=> SIGNALED SIGSYS$|^x32 (ENOSYS|is unknown here)\n=> EXITED 0",
			Tiers: shared,
		},
		Attack{
			Name: "calls of 32-bit programs", Class: Kernel, Defence: Filter, Tries: "to make calls through the 32-bit entry, whose numbers mean other calls",
			Steps: []Step{calls("int80")}, Held: "^=> SIGNALED (SIGSYS|SIGSEGV)$|^int80 is unknown here\n=> EXITED 0|^unexpected fault address 0x0", // the last pattern: this kernel has no such calls
			Tiers: shared,
		},
		Attack{
			Name: "typing into a terminal", Class: Kernel, Defence: Filter, Tries: "to inject input into a terminal for its next reader",
			Steps: []Step{calls("tiocsti").onTerminal()}, Held: "^tiocsti EPERM\\s",
		},
		Attack{
			Name: "typing into a terminal, with a high bit", Class: Kernel, Defence: Filter, Tries: "to bypass the filter with bits that the kernel ignores",
			Steps: []Step{calls("tiocsti-high").onTerminal()}, Held: "^tiocsti-high EPERM\\s",
		},
		Attack{
			Name: "raw sockets", Class: Kernel, Defence: OwnUsers, Tries: "to send raw packets",
			Steps: []Step{calls("raw-socket"), calls("raw-socket").asRoot()}, Held: "^raw-socket E(PERM|PROTONOSUPPORT|ACCES)\n=> EXITED 0\nraw-socket E(PERM|PROTONOSUPPORT|ACCES)\n=> EXITED 0",
		},
		Attack{
			Name: "the loaded filter", Class: Kernel, Defence: Filter, Tries: "to run without a system call filter",
			Steps: []Step{shell("grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status")}, Held: "^NoNewPrivs:\t1\nSeccomp:\t2\n",
			Tiers: shared,
		},
	)
}
