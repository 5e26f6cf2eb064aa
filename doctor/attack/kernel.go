package attack

import "github.com/rockpool/rockpool/runtime"

// shared are the tiers in which programs call the machine's own kernel.
var shared = []runtime.Isolation{runtime.IsolationNamespaces}

// no is what a call answers that isn't to be had.
const no = "E(PERM|NOSYS|ACCES|AFNOSUPPORT)"

// barred is an attack by one call, as a user and as root of the runner.
func barred(class Class, call, tries string, by Defence) Attack {
	return Attack{
		Name: "call " + call, Class: class, Tries: tries, Defence: by, Gentle: true,
		Steps: []Step{calls(call), calls(call).asRoot()},
		Held:  "^" + call + " " + no + "\n=> EXITED 0\n" + call + " " + no + "\n=> EXITED 0\n",
	}
}

func kernel() []Attack {
	var all []Attack
	for _, row := range []struct{ call, tries string }{
		{"keyctl", "to use keyrings, which no namespace divides"},
		{"add_key", "to leave a key where another runner's user could find it"},
		{"request_key", "to have the machine start its program for keys"},
		{"bpf", "to load programs into the kernel"},
		{"io_uring", "to have calls made that no filter sees"},
		{"perf", "to watch the machine by its counters"},
		{"userfaultfd", "to hold up the kernel at a page that it needs"},
		{"fanotify", "to be told of the files that others use"},
		{"vmsplice", "to give the kernel pages that change later"},
		{"kexec", "to start another kernel"},
		{"init_module", "to load a module"},
		{"reboot", "to restart the machine"},
		{"swapon", "to have the machine swap to a file of the runner's"},
		{"acct", "to have the machine write about processes into a file"},
		{"settimeofday", "to set the machine's clock"},
		{"clock_settime", "to set the machine's clock, by its newer name"},
		{"syslog", "to read the kernel's log"},
		{"quotactl", "to change quotas"},
		{"mbind", "to place memory, an old way into kernels"},
		{"kcmp", "to compare pointers of the kernel's"},
		{"sync", "to have the machine write out what all its programs wrote"},
		{"cachestat", "to learn from the machine's cache which files others read"},
		{"memfd_secret", "to hold memory that the machine can't move"},
		{"vsock", "to talk to the hypervisor, which no network namespace hinders"},
		{"alg", "to use the kernel's ciphers, an old way into it"},
		{"packet", "to read and write raw packets"},
		{"netlink-audit", "to write into the machine's audit log"},
		{"netlink-filter", "to change packet filters, an old way into kernels"},
		{"unknown", "to call what a newer kernel may have"},
	} {
		all = append(all, barred(Kernel, row.call, row.tries, Filter))
	}
	return append(all,
		Attack{
			Name: "calls of x86 only", Class: Kernel, Defence: Filter, Tries: "to reach ports, segments and modules by old calls",
			Steps: []Step{calls("iopl", "modify_ldt", "create_thing")},
			Held:  "^iopl (is unknown here|" + no + ")\nmodify_ldt (is unknown here|" + no + ")\ncreate_thing (is unknown here|" + no + ")\n=> EXITED 0",
		},
		Attack{
			Name: "clone3", Class: Kernel, Defence: Filter, Tries: "to make namespaces by a call whose flags no filter can read",
			Steps: []Step{calls("clone3"), calls("clone3").asRoot()}, Held: "^clone3 ENOSYS\n=> EXITED 0\nclone3 ENOSYS\n=> EXITED 0",
			Tiers: shared,
		},
		Attack{
			Name: "calls of x32", Class: Kernel, Defence: Filter, Tries: "to call by numbers that a list of others doesn't have",
			Steps: []Step{calls("x32")}, Held: "^=> SIGNALED SIGSYS$|^x32 (ENOSYS|is unknown here)\n=> EXITED 0",
			Tiers: shared,
		},
		Attack{
			Name: "calls of 32-bit programs", Class: Kernel, Defence: Filter, Tries: "to call by another door, whose numbers mean something else",
			Steps: []Step{calls("int80")}, Held: "^=> SIGNALED (SIGSYS|SIGSEGV)$|^int80 is unknown here\n=> EXITED 0|^unexpected fault address 0x0", // the last: this kernel has no such calls
			Tiers: shared,
		},
		Attack{
			Name: "typing into a terminal", Class: Kernel, Defence: Filter, Tries: "to have a terminal's next reader read what somebody else typed",
			Steps: []Step{calls("tiocsti").onTerminal()}, Held: "^tiocsti EPERM\\s",
		},
		Attack{
			Name: "typing with a high bit", Class: Kernel, Defence: Filter, Tries: "to pass a filter with bits that the kernel doesn't read",
			Steps: []Step{calls("tiocsti-high").onTerminal()}, Held: "^tiocsti-high EPERM\\s",
		},
		Attack{
			Name: "raw sockets", Class: Kernel, Defence: OwnUsers, Tries: "to make packets by hand",
			Steps: []Step{calls("raw-socket"), calls("raw-socket").asRoot()}, Held: "^raw-socket E(PERM|PROTONOSUPPORT|ACCES)\n=> EXITED 0\nraw-socket E(PERM|PROTONOSUPPORT|ACCES)\n=> EXITED 0",
		},
		Attack{
			Name: "what the filter says of itself", Class: Kernel, Defence: Filter, Tries: "to run without a filter",
			Steps: []Step{shell("grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status")}, Held: "^NoNewPrivs:\t1\nSeccomp:\t2\n",
			Tiers: shared,
		},
	)
}
