package attack

// accounts returns attacks on resources that the kernel counts for the whole machine. One runner
// takes as much as it can and holds it; a neighbour then needs some of the same resource.
func accounts() []Attack {
	var all []Attack
	for _, row := range []struct{ call, tries, refused string }{
		{"filter-packets", "to exhaust kernel memory with packet filters", "EPERM"},
		{"filter-program", "to exhaust kernel memory with a BPF program on a socket", "EPERM"},
		{"filter-reuse", "to exhaust kernel memory with reuseport filters", "EPERM"},
		{"filter-calls", "to exhaust kernel memory with seccomp filters", "EINVAL"},
		{"filter-by-name", "to exhaust kernel memory with seccomp filters, through prctl", "EINVAL"},
		{"tcp-keys", "to use uncharged memory with TCP MD5 keys", "EPERM"},
		{"shared-files", "to hold uncounted locks with processes that share their files", "EPERM"},
		{"multicast4", "to use uncharged memory with IPv4 multicast groups", "EPERM"},
		{"multicast6", "to use uncharged memory with IPv6 multicast groups", "EPERM"},
		{"flow-labels", "to exhaust the machine's IPv6 flow labels", "EPERM"},
		{"file-users", "to use uncharged memory with access control lists", "ENOTSUP|EOPNOTSUPP"},
		{"io_setup", "to exhaust the machine's asynchronous I/O requests", "ENOSYS"},
		{"huge-memory", "to exhaust the machine's huge pages", "ENOMEM"},
		{"huge-file", "to exhaust huge pages with an anonymous file", "ENOMEM"},
		{"huge-segment", "to exhaust huge pages with a System V segment", "ENOMEM"},
		{"line-discipline", "to make the kernel load a driver through a line discipline", "EPERM"},
		{"core-scheduling", "to block the other hyperthread of a core", "EINVAL"},
		{"fiemap", "to cause disk reads with requests for file locations", "ENOTTY"},
		{"clone-file", "to write by cloning files", "ENOTTY"},
		{"mptcp", "to use a protocol with a history of kernel vulnerabilities", "EPROTONOSUPPORT"},
		{"udplite", "to use a protocol that packet filters don't know", "EPROTONOSUPPORT"},
		{"sctp", "to make the kernel load a module through a protocol", "EPROTONOSUPPORT"},
		{"dccp", "to make the kernel load another module", "ESOCKTNOSUPPORT"},
		{"stream-udp", "to make the kernel run modprobe with a protocol of another socket type", "EPROTONOSUPPORT"},
		{"datagram-tcp", "to make the kernel run modprobe with a socket type of another protocol", "EPROTONOSUPPORT"},
		{"icmp-of-other", "to make the kernel run modprobe with ICMP of the other address family", "EPROTONOSUPPORT"},
		{"raw-any", "to make the kernel run modprobe with a raw socket of no protocol", "EPERM"},
		{"packet-type", "to make the kernel load a module with the obsolete packet socket type", "ESOCKTNOSUPPORT"},
		{"vlan", "to make the kernel run modprobe with a VLAN request", "ENOTTY"},
		{"bridges", "to make the kernel run modprobe with a request about bridges", "ENOTTY"},
		{"new-bridge", "to make the kernel run modprobe by creating a bridge", "ENOTTY"},
	} {
		refused := row.call + " (" + row.refused + ")\n=> EXITED 0\n"
		all = append(all, Attack{
			Name: "call " + row.call, Class: Accounts, Defence: Filter, Tries: row.tries, Gentle: true,
			Steps: []Step{calls(row.call), calls(row.call).asRoot()}, Held: "^" + refused + refused,
		})
	}
	// taken returns an attack in which one runner takes all that it can and a neighbour needs a few.
	taken := func(name, tries, what, most, refused string, by Defence) Attack {
		return Attack{
			Name: name, Class: Accounts, Defence: by, Tries: tries, Tiers: shared, Bomb: true,
			Steps: []Step{probe("take", what, "64", "hold").within(30).behind(), probe("take", what, "4").inOther()},
			Held:  "^took " + most + " " + refused + "\n=> \ntook 4 done\n=> EXITED 0",
		}
	}
	// cgroup version 2 doesn't refuse UDP packets: the kernel ends the command or the whole runner.
	// A command that isn't ended holds the buffers until its time limit.
	buffers := func(network string) Attack {
		return Attack{
			Name: "buffers of " + network, Class: Accounts, Defence: Buffers, Tries: "to fill kernel memory with unread data", Tiers: shared, Bomb: true,
			Steps: []Step{probe("buffers", network, "96").within(12), probe("buffers", network, "1").inOther()},
			Held:  "^(holds [0-5]?\\d MiB\n=> EXITED 0|(holds 9\\d MiB\n)?=> (MEMORY_LIMIT|RUNNER_GONE OUT_OF_MEMORY).*)\nholds [01] MiB\n=> EXITED 0",
		}
	}
	// charged returns an attack on kernel memory that is charged to the runner. If only the agent
	// counts it, the command holds it until the agent ends the command, or until its time limit.
	charged := func(kind, most string, seconds int, by Defence) Attack {
		return Attack{
			Name: "memory of " + kind, Class: Accounts, Defence: by, Tries: "to fill kernel memory with " + kind, Tiers: shared, Bomb: true,
			Steps: []Step{probe("charge", kind, most).within(seconds), shell("echo lives")},
			Held:  "^(made \\d+ E(NOMEM|NOLCK|NOSPC|AGAIN)\n=> EXITED 0|(made \\d+ held\n)?=> MEMORY_LIMIT.*)\nlives\n=> EXITED 0", Never: "made \\d+ done",
		}
	}
	return append(all,
		Attack{
			Name: "open files of many processes", Class: Accounts, Defence: OpenFiles, Tries: "to exhaust the machine's open files", Tiers: shared, Bomb: true,
			Steps: []Step{probe("all", "16", "2000").within(30).behind(), probe("take", "files", "100").inOther()},
			Held:  "^opened 1[56]\\d{3} in 16 processes\n=> \ntook 100 done\n=> EXITED 0",
		},
		taken("terminals", "to exhaust the machine's terminals", "terminals", "3[0-2]", "ENOSPC", Terminals),
		taken("watchers of files", "to exhaust the inotify instances of the user that created the runners", "watchers", "1[0-6]", "EMFILE", Watchers),
		taken("netlink sockets", "to fill kernel memory with unread netlink responses", "netlink", "1[0-6]", "ENOBUFS", Netlink),
		buffers("tcp"),
		buffers("udp"),
		charged("locks", "400000", 20, Uncounted),
		charged("connections", "12000", 20, Uncounted),
		Attack{
			Name: "memory of small segments", Class: Accounts, Defence: Uncounted, Tries: "to fill kernel memory with many one-byte segments that no program accepts", Tiers: shared, Bomb: true,
			Steps: []Step{probe("segments", "200", "15").within(30), shell("echo lives")},
			Held:  "^(holds ([12]?\\d|3[01]) MiB\n=> EXITED 0|(holds \\d+ MiB\n)?=> MEMORY_LIMIT.*)\nlives\n=> EXITED 0",
		},
		charged("messages", "40000", 40, MemoryLimit),
		charged("semaphores", "30000", 40, MemoryLimit),
		Attack{
			Name: "the neighbour table", Class: Accounts, Defence: NoNeighbours, Tries: "to fill the machine's neighbour table with addresses on its own link", Reach: Open, Tiers: shared, Bomb: true,
			Steps: []Step{probe("neighbours", "200")}, Held: "^knows \\d done\n=> EXITED 0",
		},
		Attack{
			Name: "core dumps", Class: Accounts, Defence: Filter, Tries: "to send a core dump to a program on the machine", Gentle: true,
			Steps: []Step{probe("cores"), probe("cores").asRoot()}, Held: "^(cores done 1 1\n=> EXITED 0\n){2}",
			Tiers: shared, // gVisor writes no core dumps
		},
		Attack{
			Name: "semaphores of the previous execution", Class: Accounts, Defence: Ended, Tries: "to keep System V objects after the execution ends",
			Steps: []Step{probe("sem", "make"), probe("sem", "find")}, Held: "^semaphore done\n=> EXITED 0\nsemaphore ENOENT\n=> EXITED 0",
		},
		Attack{
			Name: "the page cache", Class: Accounts, Defence: Filter, Tries: "to evict files that others read from the page cache", Tiers: shared, Gentle: true,
			Steps: []Step{probe("drop")}, Held: "^cached\n=> EXITED 0",
		},
		Attack{
			Name: "a flood of reads", Class: Accounts, Defence: DiskReads, Tries: "to use all of the disk's bandwidth", Tiers: shared, Bomb: true, Disk: true,
			Steps: []Step{probe("disk", "2", "{reads}")}, Held: "^read \\d+ MiB, within its share\n=> EXITED 0",
		},
	)
}
