package confinement

import (
	"testing"

	"golang.org/x/sys/unix"
)

// verdict runs a filter as the kernel does, with a call's number and arguments.
func verdict(t *testing.T, code []unix.SockFilter, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	data := map[uint32]uint32{dataNumber: number, dataArchitecture: arch}
	for i, a := range args {
		data[argument(uint32(i))] = uint32(a)
		data[argument(uint32(i))+4] = uint32(a >> 32)
	}
	var register uint32
	for at := 0; at < len(code); at++ {
		c := code[at]
		yes := false
		switch c.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			register = data[c.K]
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			register &= c.K
			continue
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(c.K)
			continue
		case unix.BPF_RET | unix.BPF_K:
			return c.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			yes = register == c.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			yes = register >= c.K
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			yes = register > c.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			yes = register&c.K != 0
		default:
			t.Fatalf("instruction %d is %#x", at, c.Code)
		}
		if yes {
			at += int(c.Jt)
		} else {
			at += int(c.Jf)
		}
	}
	t.Fatal("the filter doesn't end")
	return 0
}

// A judgedCall call has these arguments, and this result of the filter.
type judgedCall struct {
	name   string
	number uint32
	args   []uint64
	want   uint32
}

func judges(t *testing.T, code []unix.SockFilter, calls ...judgedCall) {
	t.Helper()
	for _, call := range calls {
		if got := verdict(t, code, architecture, call.number, call.args...); got != call.want {
			t.Errorf("%s: %#x, want %#x", call.name, got, call.want)
		}
	}
}

// The values at the edges of the filter's decisions.
func TestFilterJudges(t *testing.T) {
	listed := judgements(false)
	code := assemble(architecture, &listed, notify)
	judges(t, code, []judgedCall{
		{"read", unix.SYS_READ, nil, allow},
		{"an unassigned number", 400, nil, unknown},
		{"cachestat", unix.SYS_CACHESTAT, nil, unknown},
		{"a number beyond the table", 1 << 20, nil, unknown},
		{"clone3", unix.SYS_CLONE3, nil, unknown},
		{"fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
		{"a thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD}, allow},
		{"vfork", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, allow},
		{"a process with the same files", unix.SYS_CLONE, []uint64{unix.CLONE_FILES | uint64(unix.SIGCHLD)}, refuse},
		{"a user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, refuse},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, refuse},
		{"TIOCSTI with a high bit", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | 1<<40}, refuse},
		{"TIOCGWINSZ", unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, allow},
		{"query of the personality", unix.SYS_PERSONALITY, []uint64{0xffffffff}, allow},
		{"fixed addresses", unix.SYS_PERSONALITY, []uint64{0x0040000}, allow},
		{"fixed addresses, 32 bits", unix.SYS_PERSONALITY, []uint64{0x0040008}, allow},
		{"everything executable", unix.SYS_PERSONALITY, []uint64{0x0400000}, refuse},
		{"BSD", unix.SYS_PERSONALITY, []uint64{6}, refuse},
		{"TIOCSETD", unix.SYS_IOCTL, []uint64{0, unix.TIOCSETD}, refuse},
		{"FIONREAD", unix.SYS_IOCTL, []uint64{0, unix.TIOCINQ}, allow},
		{"FS_IOC_FIEMAP", unix.SYS_IOCTL, []uint64{0, 0xc020660b}, noRequest},
		{"FICLONE", unix.SYS_IOCTL, []uint64{0, unix.FICLONE}, noRequest},
		{"SIOCGIFVLAN", unix.SYS_IOCTL, []uint64{3, 0x8982}, noRequest},
		{"SIOCSIFVLAN", unix.SYS_IOCTL, []uint64{3, 0x8983}, noRequest},
		{"SIOCADDDLCI", unix.SYS_IOCTL, []uint64{3, 0x8980}, noRequest},
		{"SIOCGIFBR", unix.SYS_IOCTL, []uint64{3, 0x8940}, noRequest},
		{"SIOCBRADDBR, with a high bit", unix.SYS_IOCTL, []uint64{3, 0x89a0 | 1<<32}, noRequest},
		{"SIOCGIFCONF", unix.SYS_IOCTL, []uint64{0, 0x8912}, allow},
		{"another filter", unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER}, invalid},
		{"query of filter actions", unix.SYS_SECCOMP, []uint64{unix.SECCOMP_GET_ACTION_AVAIL}, allow},
		{"another filter, by its older name", unix.SYS_PRCTL, []uint64{unix.PR_SET_SECCOMP, 2}, invalid},
		{"a core of its own", unix.SYS_PRCTL, []uint64{unix.PR_SCHED_CORE, 1}, invalid},
		{"a name", unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME}, allow},
		{"FADV_DONTNEED", unix.SYS_FADVISE64, []uint64{3, 0, 0, unix.FADV_DONTNEED}, ignore},
		{"FADV_WILLNEED", unix.SYS_FADVISE64, []uint64{3, 0, 0, 3}, allow},
		{"memory", unix.SYS_MMAP, []uint64{0, 4096, 3, unix.MAP_ANON | unix.MAP_PRIVATE}, allow},
		{"huge pages", unix.SYS_MMAP, []uint64{0, 2 << 20, 3, unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_HUGETLB}, noMemory},
		{"a file of huge pages", unix.SYS_MEMFD_CREATE, []uint64{0, unix.MFD_CLOEXEC | unix.MFD_HUGETLB}, noMemory},
		{"huge pages of 1 GiB", unix.SYS_MMAP, []uint64{0, 1 << 30, 3, unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_HUGETLB | 30<<unix.MAP_HUGE_SHIFT}, noMemory},
		{"a file of huge pages of 2 MiB", unix.SYS_MEMFD_CREATE, []uint64{0, unix.MFD_HUGETLB | 21<<unix.MAP_HUGE_SHIFT}, noMemory},
		{"a segment of huge pages", unix.SYS_SHMGET, []uint64{0, 2 << 20, 0o1600 | hugeSegment}, noMemory},
		{"a lock of a process", unix.SYS_FCNTL, []uint64{3, unix.F_SETLK}, allow},
		{"a lock of an open file", unix.SYS_FCNTL, []uint64{3, unix.F_OFD_SETLK}, invalid},
		{"an old limit of cores", unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_CORE}, ignore},
		{"a limit of files", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_NOFILE, 1 << 40, 0}, allow},
		{"a limit of cores", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 1 << 40, 0}, ignore},
		{"a limit of cores, low in memory", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 4096, 0}, ignore},
		{"the limit of cores", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 0, 1 << 40}, allow},
		{"both limits of cores", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 1 << 40, 1 << 40}, refuse},
		{"both limits of cores, low in memory", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 4096, 4096}, refuse},
	}...)
	if got := verdict(t, code, unix.AUDIT_ARCH_I386, unix.SYS_READ); got != killProcess {
		t.Errorf("another architecture: got %#x, want %#x", got, killProcess)
	}
}

func TestFilterJudgesSockets(t *testing.T) {
	listed := judgements(false)
	judges(t, assemble(architecture, &listed, notify), []judgedCall{
		{"TCP", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, allow},
		{"TCP by its number, with flags", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP}, allow},
		{"UDP", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, allow},
		{"a pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET, 0}, allow},
		{"MPTCP", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, noProtocol},
		{"UDP-Lite", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}, noProtocol},
		{"echo requests", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, allow},
		{"echo requests of IPv6", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK, unix.IPPROTO_ICMPV6}, allow},
		{"SCTP, by its type", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_SEQPACKET, 0}, noType},
		{"DCCP, by its type", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DCCP | unix.SOCK_CLOEXEC, 0}, noType},
		{"packets, by their type", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_PACKET, 0}, noType},
		{"no type", unix.SYS_SOCKET, []uint64{unix.AF_INET6, 0, unix.IPPROTO_TCP}, noType},
		{"no type, with a high bit", unix.SYS_SOCKET, []uint64{unix.AF_INET, 1 << 32, 0}, noType},
		{"UDP by a stream", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_UDP}, noProtocol},
		{"ICMP by a stream", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_ICMPV6}, noProtocol},
		{"TCP by datagrams", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, unix.IPPROTO_TCP}, noProtocol},
		{"ICMP of the other family", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6}, noProtocol},
		{"ICMP of the other family, IPv6", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, noProtocol},
		{"raw packets", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, refuse},
		{"raw packets of any protocol", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_RAW | unix.SOCK_CLOEXEC, 0}, refuse},
		{"a pair of IPv4", unix.SYS_SOCKETPAIR, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_UDP}, noSupport},
		{"a pair of another family", unix.SYS_SOCKETPAIR, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, noFamily},
		{"interfaces", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, notify},
		{"a timeout", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_RCVTIMEO}, allow},
		{"a filter", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, refuse},
		{"a filter with a high bit", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET | 1<<32, unix.SO_ATTACH_FILTER | 1<<32}, refuse},
		{"a program", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF}, refuse},
		{"no delay", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_TCP, unix.TCP_NODELAY}, allow},
		{"a key", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_TCP, unix.TCP_MD5SIG}, refuse},
		{"only IPv6", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_IPV6, unix.IPV6_V6ONLY}, allow},
		{"a flow label", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_IPV6, flowLabels}, refuse},
		{"multicast of IPv6", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_IPV6, unix.IPV6_JOIN_GROUP}, refuse},
		{"multicast of IPv4", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_IP, unix.IP_ADD_MEMBERSHIP}, refuse},
		{"a kind of service", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_IP, unix.IP_TOS}, allow},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, noFamily},
		{"audit", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, noProtocol},
	}...)
}

func TestFilterOfCommands(t *testing.T) {
	judges(t, commandFilter, []judgedCall{
		{"clone3", unix.SYS_CLONE3, nil, unknown},
		{"another filter", unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER}, invalid},
		{"query of filter actions", unix.SYS_SECCOMP, []uint64{unix.SECCOMP_GET_ACTION_AVAIL}, allow},
		{"read", unix.SYS_READ, nil, allow},
	}...)
}
