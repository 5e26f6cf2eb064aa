package attack

// accounts are attacks on what the machine counts once for all that run on it. One
// runner takes what it can get, and holds it; a neighbour needs some of the same.
func accounts() []Attack {
	var all []Attack
	for _, row := range []struct{ call, tries, refused string }{
		{"filter-packets", "to use up the kernel's room for compiled filters, by packets'", "EPERM"},
		{"filter-program", "to use it up by a program on a socket", "EPERM"},
		{"filter-reuse", "to use it up by filters that choose a socket", "EPERM"},
		{"filter-calls", "to use it up by filters of calls", "EINVAL"},
		{"filter-by-name", "to use it up by filters of calls, by their older name", "EINVAL"},
		{"tcp-keys", "to have memory that nobody counts, by keys of TCP", "EPERM"},
		{"shared-files", "to hold more locks than anybody counts, by processes that share their files", "EPERM"},
		{"multicast4", "to have memory that nobody counts, by groups of IPv4", "EPERM"},
		{"multicast6", "to have memory that nobody counts, by groups of IPv6", "EPERM"},
		{"flow-labels", "to use up the machine's labels of flows", "EPERM"},
		{"file-users", "to have memory that nobody counts, by lists of who may use files", "ENOTSUP|EOPNOTSUPP"},
		{"io_setup", "to use up the machine's requests for input and output", "ENOSYS"},
		{"huge-memory", "to use up the machine's huge pages", "ENOMEM"},
		{"huge-file", "to use up huge pages by a file without a name", "ENOMEM"},
		{"huge-segment", "to use up huge pages by a segment", "ENOMEM"},
		{"line-discipline", "to have the kernel load drivers, by what a terminal can be", "EPERM"},
		{"core-scheduling", "to have no neighbour on the other half of a core", "EINVAL"},
		{"fiemap", "to have the disk read by asking where files are", "ENOTTY"},
		{"clone-file", "to write by clones of files", "ENOTTY"},
		{"mptcp", "to use a protocol that has been a way into kernels", "EPROTONOSUPPORT"},
		{"udplite", "to use one that packet filters don't know", "EPROTONOSUPPORT"},
		{"sctp", "to have the kernel load a module, by a protocol", "EPROTONOSUPPORT"},
		{"dccp", "to have it load another", "ESOCKTNOSUPPORT"},
		{"stream-udp", "to have it run modprobe, by a protocol of another type", "EPROTONOSUPPORT"},
		{"datagram-tcp", "to have it run modprobe, by a type of another protocol", "EPROTONOSUPPORT"},
		{"icmp-of-other", "to have it run modprobe, by the ICMP of the other family", "EPROTONOSUPPORT"},
		{"raw-any", "to have it run modprobe, by raw packets of no protocol", "EPERM"},
		{"packet-type", "to have it load a module, by the old type of packets", "ESOCKTNOSUPPORT"},
		{"vlan", "to have it run modprobe, by a request about virtual networks", "ENOTTY"},
		{"bridges", "to have it run modprobe, by a request about bridges", "ENOTTY"},
		{"new-bridge", "to have it run modprobe, by a bridge that nobody may make", "ENOTTY"},
	} {
		refused := row.call + " (" + row.refused + ")\n=> EXITED 0\n"
		all = append(all, Attack{
			Name: "call " + row.call, Class: Accounts, Defence: Filter, Tries: row.tries, Gentle: true,
			Steps: []Step{calls(row.call), calls(row.call).asRoot()}, Held: "^" + refused + refused,
		})
	}
	// taken is of one who takes, and a neighbour that needs a few.
	taken := func(name, tries, what, most, refused string, by Defence) Attack {
		return Attack{
			Name: name, Class: Accounts, Defence: by, Tries: tries, Tiers: shared, Bomb: true,
			Steps: []Step{probe("take", what, "64", "hold").within(30).behind(), probe("take", what, "4").inOther()},
			Held:  "^took " + most + " " + refused + "\n=> \ntook 4 done\n=> EXITED 0",
		}
	}
	// Version 2 refuses no packet of UDP: the command ends, or with it the runner. One that
	// isn't ended holds them until its time is over.
	buffers := func(network string) Attack {
		return Attack{
			Name: "buffers of " + network, Class: Accounts, Defence: Buffers, Tries: "to fill the kernel's memory by what nobody reads", Tiers: shared, Bomb: true,
			Steps: []Step{probe("buffers", network, "96").within(12), probe("buffers", network, "1").inOther()},
			Held:  "^(holds [0-5]?\\d MiB\n=> EXITED 0|(holds 9\\d MiB\n)?=> (MEMORY_LIMIT|RUNNER_GONE OUT_OF_MEMORY).*)\nholds [01] MiB\n=> EXITED 0",
		}
	}
	// charged is of memory of the kernel's that is counted for the runner. What the agent
	// counts is held until it ends the command, or its time is over.
	charged := func(kind, most string, seconds int, by Defence) Attack {
		return Attack{
			Name: "memory of " + kind, Class: Accounts, Defence: by, Tries: "to fill the kernel's memory by " + kind, Tiers: shared, Bomb: true,
			Steps: []Step{probe("charge", kind, most).within(seconds), shell("echo lives")},
			Held:  "^(made \\d+ E(NOMEM|NOLCK|NOSPC|AGAIN)\n=> EXITED 0|(made \\d+ held\n)?=> MEMORY_LIMIT.*)\nlives\n=> EXITED 0", Never: "made \\d+ done",
		}
	}
	return append(all,
		Attack{
			Name: "open files of many processes", Class: Accounts, Defence: OpenFiles, Tries: "to take all files that the machine can have open", Tiers: shared, Bomb: true,
			Steps: []Step{probe("all", "16", "2000").within(30).behind(), probe("take", "files", "100").inOther()},
			Held:  "^opened 1[56]\\d{3} in 16 processes\n=> \ntook 100 done\n=> EXITED 0",
		},
		taken("terminals", "to take all of the machine's terminals", "terminals", "3[0-2]", "ENOSPC", Terminals),
		taken("watchers of files", "to take all watchers that the user has who made the runners", "watchers", "1[0-6]", "EMFILE", Watchers),
		taken("netlink sockets", "to fill the kernel's memory by answers that nobody reads", "netlink", "1[0-6]", "ENOBUFS", Netlink),
		buffers("tcp"),
		buffers("udp"),
		charged("locks", "400000", 20, Uncounted),
		charged("connections", "12000", 20, Uncounted),
		Attack{
			Name: "memory of small segments", Class: Accounts, Defence: Uncounted, Tries: "to fill the kernel's memory by many bytes, each sent by itself, that nobody accepts", Tiers: shared, Bomb: true,
			Steps: []Step{probe("segments", "200", "15").within(30), shell("echo lives")},
			Held:  "^(holds ([12]?\\d|3[01]) MiB\n=> EXITED 0|(holds \\d+ MiB\n)?=> MEMORY_LIMIT.*)\nlives\n=> EXITED 0",
		},
		charged("messages", "40000", 40, MemoryLimit),
		charged("semaphores", "30000", 40, MemoryLimit),
		Attack{
			Name: "neighbours", Class: Accounts, Defence: NoNeighbours, Tries: "to fill the machine's table of neighbours, by places beside its own", Reach: Open, Tiers: shared, Bomb: true,
			Steps: []Step{probe("neighbours", "200")}, Held: "^knows \\d done\n=> EXITED 0",
		},
		Attack{
			Name: "cores", Class: Accounts, Defence: Filter, Tries: "to have a program of the machine's take the core of what crashed", Gentle: true,
			Steps: []Step{probe("cores"), probe("cores").asRoot()}, Held: "^(cores done 1 1\n=> EXITED 0\n){2}",
			Tiers: shared, // gVisor writes none
		},
		Attack{
			Name: "semaphores of the one before", Class: Accounts, Defence: Ended, Tries: "to keep what System V has when the execution is over",
			Steps: []Step{probe("sem", "make"), probe("sem", "find")}, Held: "^semaphore done\n=> EXITED 0\nsemaphore ENOENT\n=> EXITED 0",
		},
		Attack{
			Name: "the cache of others", Class: Accounts, Defence: Filter, Tries: "to have the machine forget what others read from its disk", Tiers: shared, Gentle: true,
			Steps: []Step{probe("drop")}, Held: "^cached\n=> EXITED 0",
		},
		Attack{
			Name: "a flood of reads", Class: Accounts, Defence: DiskReads, Tries: "to have the machine's disk for itself", Tiers: shared, Bomb: true, Disk: true,
			Steps: []Step{probe("disk", "2", "{reads}")}, Held: "^read \\d+ MiB, within its share\n=> EXITED 0",
		},
	)
}
