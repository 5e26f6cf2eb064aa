package confinement

import "golang.org/x/sys/unix"

// The system calls that are judged by their arguments. docs/security.md lists the refused arguments
// and the reasons. Flags that the kernel doesn't know get its own answer, mostly EINVAL: programs test
// with them what a kernel has. TestUnknownArgumentsGetTheKernelsAnswer compares both.

const (
	byFlags     = byArguments + 1 + iota // of clone
	byRequest                            // of ioctl
	byPersona                            // of personality
	byFamily                             // of socket
	byPair                               // of socketpair: its family
	byOption                             // of setsockopt
	byOperation                          // of seccomp
	byControl                            // of prctl
	byAdvice                             // of fadvise64
	byMapping                            // of mmap
	byFile                               // of memfd_create
	bySegment                            // of shmget
	byLimit                              // of setrlimit
	byNewLimit                           // of prlimit64
	byCommand                            // of fcntl
	byCreation                           // of setxattr: its flags. The rest is EOPNOTSUPP, as on a file system without the feature
)

var judgedCalls = map[uint32]judgement{
	unix.SYS_CLONE: byFlags, unix.SYS_IOCTL: byRequest, unix.SYS_PERSONALITY: byPersona,
	unix.SYS_SOCKET: byFamily, unix.SYS_SOCKETPAIR: byPair, unix.SYS_SETSOCKOPT: byOption,
	unix.SYS_SECCOMP: byOperation, unix.SYS_PRCTL: byControl, unix.SYS_FADVISE64: byAdvice,
	unix.SYS_MMAP: byMapping, unix.SYS_MEMFD_CREATE: byFile, unix.SYS_SHMGET: bySegment,
	unix.SYS_SETXATTR: byCreation, unix.SYS_LSETXATTR: byCreation, unix.SYS_FSETXATTR: byCreation,
	unix.SYS_FCNTL: byCommand, unix.SYS_SETRLIMIT: byLimit, unix.SYS_PRLIMIT64: byNewLimit,
}

const (
	// All kinds of namespaces that clone can make.
	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

	// The personalities that a program may choose: a 32-bit machine, an old kernel's version, and
	// no randomized addresses, which sanitizers and debuggers use.
	personas   = 0x0008 | 0x0020000 | 0x0040000 // PER_LINUX32, UNAME26, ADDR_NO_RANDOMIZE
	askPersona = 0xffffffff

	socketType    = 0xf // of the second argument of socket; the rest are flags
	socketFlags   = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	socketTypes   = 11                          // and higher types are EINVAL
	families      = 46                          // and higher families are EAFNOSUPPORT
	protocols     = 263                         // of IPv4 and IPv6; higher ones are EINVAL
	requestClass  = 0xff00                      // of the second argument of ioctl
	hugeSegment   = 0o4000                      // SHM_HUGETLB
	hugeSize      = 0x3f << unix.MAP_HUGE_SHIFT // the logarithm of a huge page's size, of mmap, shmget and memfd_create
	fileFlags     = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING | unix.MFD_HUGETLB | unix.MFD_NOEXEC_SEAL | unix.MFD_EXEC
	executability = unix.MFD_NOEXEC_SEAL | unix.MFD_EXEC // one of them
	flowLabels    = 32                                   // IPV6_FLOWLABEL_MGR
	addKey        = 38                                   // TCP_AO_ADD_KEY
)

// terminalRequests inject input into a terminal or change its driver.
var terminalRequests = []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD}

// moduleRequests make the kernel run modprobe, for any caller, if a driver isn't loaded: those of
// virtual networks, bridges, and frame relay (Linux before 5.13).
var moduleRequests = []uint32{0x8982, 0x8983, unix.SIOCGIFBR, unix.SIOCSIFBR, unix.SIOCBRADDBR, unix.SIOCBRDELBR, 0x8980, 0x8981}

// fileRequests are classes of ioctl requests to file systems on disks, such as the one below /usr.
// They map blocks, which causes reads from the disk, or clone files. A runner's own file systems
// support none of them.
var fileRequests = []uint32{'f' << 8, 'v' << 8, 'X' << 8, 0x94 << 8}

// socketOptions are options, by level, that allocate kernel memory that no control group counts.
var socketOptions = []struct {
	level   uint32
	options []uint32
}{
	{unix.SOL_SOCKET, []uint32{unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF}},
	{unix.SOL_TCP, []uint32{unix.TCP_ULP, unix.TCP_MD5SIG, unix.TCP_MD5SIG_EXT, addKey}},
	{unix.SOL_IP, []uint32{unix.IP_ADD_MEMBERSHIP, unix.IP_ADD_SOURCE_MEMBERSHIP, unix.IP_MSFILTER, unix.MCAST_JOIN_GROUP, unix.MCAST_JOIN_SOURCE_GROUP, unix.MCAST_MSFILTER}},
	{unix.SOL_IPV6, []uint32{flowLabels, unix.IPV6_JOIN_GROUP, unix.IPV6_JOIN_ANYCAST, unix.MCAST_JOIN_GROUP, unix.MCAST_JOIN_SOURCE_GROUP, unix.MCAST_MSFILTER}},
}

func (p *program) judgeArguments(j judgement) {
	switch j {
	case byFlags:
		p.ifAll(0, unix.CLONE_NEWNS|unix.CLONE_FS, invalid)
		p.ifAll(0, unix.CLONE_NEWUSER|unix.CLONE_FS, invalid)
		p.ifAny(0, newNamespaces, refuse)
		// Processes that share their file table share its locks. The kernel doesn't list such locks
		// after the process that made them has ended.
		p.load(argument(0))
		p.mask(unix.CLONE_FILES | unix.CLONE_THREAD)
		p.ifOneOf([]uint32{unix.CLONE_FILES}, refuse)
	case byRequest:
		p.load(argument(1))
		p.ifOneOf(terminalRequests, refuse)
		p.ifOneOf(moduleRequests, noRequest)
		p.mask(requestClass)
		p.ifOneOf(fileRequests, noRequest)
	case byPersona:
		p.load(argument(0))
		p.code = append(p.code,
			jump(unix.BPF_JEQ, askPersona, 2, 0),
			jump(unix.BPF_JSET, ^uint32(personas), 0, 1),
			ret(refuse))
	case byFamily:
		p.judgeFamily()
		return
	case byPair: // of all allowed families, only this one has pairs
		p.judgeType()
		p.ifOneOf([]uint32{unix.AF_UNIX}, allow)
		p.ifOneOf([]uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, noSupport)
		p.code = append(p.code, ret(noFamily))
		return
	case byOption:
		for _, of := range socketOptions {
			p.load(argument(1))
			at := len(p.code)
			p.code = append(p.code, jump(unix.BPF_JEQ, of.level, 0, 0))
			p.load(argument(2))
			p.ifOneOf(of.options, refuse)
			p.code = append(p.code, ret(allow))
			p.code[at].Jf = uint8(len(p.code) - at - 1)
		}
	case byOperation:
		p.load(argument(0))
		p.ifOneOf([]uint32{unix.SECCOMP_SET_MODE_FILTER}, invalid)
	case byControl:
		p.load(argument(0))
		p.ifOneOf([]uint32{unix.PR_SET_SECCOMP, unix.PR_SCHED_CORE}, invalid)
	case byAdvice: // success without an effect is always correct
		p.load(argument(3))
		p.ifOneOf([]uint32{unix.FADV_DONTNEED}, ignore)
	case byMapping:
		// The flag is only for memory without a file: the kernel refuses it for files.
		p.judgeHuge(3, unix.MAP_HUGETLB|unix.MAP_ANONYMOUS)
	case byFile:
		p.ifAny(1, ^uint32(fileFlags|hugeSize), invalid)
		p.ifAll(1, executability, invalid)
		p.ifAny(1, unix.MFD_HUGETLB, noMemory)
	case bySegment:
		p.judgeHuge(2, hugeSegment)
	case byLimit:
		p.load(argument(0))
		p.ifOneOf([]uint32{unix.RLIMIT_CORE}, ignore)
	case byNewLimit:
		p.judgeNewLimit()
		return
	case byCreation: // access control lists take memory that no control group counts
		p.ifAny(4, ^uint32(unix.XATTR_CREATE|unix.XATTR_REPLACE), invalid)
		p.code = append(p.code, ret(noSupport))
		return
	case byCommand: // locks of open file descriptions belong to no process, so they can't be counted
		p.load(argument(1))
		p.ifOneOf([]uint32{unix.F_OFD_SETLK, unix.F_OFD_SETLKW}, invalid)
	}
	p.code = append(p.code, ret(allow))
}

// judgeFamily judges the family of a new socket. A network namespace doesn't isolate every family:
// vsock reaches the hypervisor and other runners. AF_ALG and other rare families expose more of the
// kernel to attacks.
func (p *program) judgeFamily() {
	p.judgeType()
	p.code = append(p.code,
		jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 1),
		ret(allow),
		jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, 4),
		load(argument(2)),
		jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 0, 1), // it lists interfaces and addresses
		ret(p.netlink),
		ret(noProtocol),
		jump(unix.BPF_JEQ, unix.AF_INET, 0, 0))
	at := len(p.code)
	p.judgeProtocol(unix.IPPROTO_ICMP)
	p.code[at-1].Jf = uint8(len(p.code) - at)
	p.unless(unix.AF_INET6, noFamily)
	p.judgeProtocol(unix.IPPROTO_ICMPV6)
}

// judgeType judges the type of a new socket, and loads its family.
func (p *program) judgeType() {
	p.ifAny(1, ^uint32(socketType|socketFlags), invalid)
	p.load(argument(0))
	p.code = append(p.code, jump(unix.BPF_JGE, families, 0, 1), ret(noFamily), load(argument(1)))
	p.mask(socketType)
	p.code = append(p.code, jump(unix.BPF_JGE, socketTypes, 0, 1), ret(invalid), load(argument(0)))
}

// judgeHuge refuses memory in huge pages, which no control group counts: flags that have all these
// bits. A size that the machine lacks is EINVAL, as the kernel answers.
func (p *program) judgeHuge(number, bits uint32) {
	p.load(argument(number))
	p.mask(bits)
	p.code = append(p.code, jump(unix.BPF_JEQ, bits, 1, 0), ret(allow), load(argument(number)))
	p.mask(hugeSize)
	sizes := make([]uint32, 0, len(hugeSizes))
	for _, size := range hugeSizes {
		sizes = append(sizes, size<<unix.MAP_HUGE_SHIFT)
	}
	p.ifOneOf(sizes, noMemory)
	p.code = append(p.code, ret(invalid))
}

// judgeProtocol judges the type and protocol of a socket of IPv4 or IPv6 together. For each
// unregistered pair the kernel runs modprobe twice, as root of the machine. Other pairs have had
// exploitable bugs.
func (p *program) judgeProtocol(icmp uint32) {
	p.load(argument(1))
	p.mask(socketType)
	for _, of := range []struct {
		kind      uint32
		protocols []uint32
	}{
		{unix.SOCK_STREAM, []uint32{0, unix.IPPROTO_TCP}},
		{unix.SOCK_DGRAM, []uint32{0, unix.IPPROTO_UDP, icmp}},
	} {
		at := len(p.code)
		p.code = append(p.code, jump(unix.BPF_JEQ, of.kind, 0, 0))
		p.load(argument(2))
		p.code = append(p.code, jump(unix.BPF_JGE, protocols, 0, 1), ret(invalid))
		p.ifOneOf(of.protocols, allow)
		p.code = append(p.code, ret(noProtocol))
		p.code[at].Jf = uint8(len(p.code) - at - 1)
	}
	p.ifOneOf([]uint32{unix.SOCK_RAW}, refuse) // it needs a capability
	p.code = append(p.code, ret(noType))
}

// judgeNewLimit protects the limit of core files that the agent set: with a limit of 0 the kernel
// would pipe cores to a program of the machine (core(5)). A program that sets the limit to 0 gets
// success without an effect, and no cores. If it also requests the old limit it gets EPERM, since a
// filter can't write that.
func (p *program) judgeNewLimit() {
	const low, high = 0, 4
	p.load(argument(1))
	p.code = append(p.code,
		jump(unix.BPF_JEQ, unix.RLIMIT_CORE, 1, 0), ret(allow),
		load(argument(2)+low), jump(unix.BPF_JEQ, 0, 0, 3),
		load(argument(2)+high), jump(unix.BPF_JEQ, 0, 0, 1),
		ret(allow), // it only reads the limit
		load(argument(3)+low), jump(unix.BPF_JEQ, 0, 0, 3),
		load(argument(3)+high), jump(unix.BPF_JEQ, 0, 0, 1),
		ret(ignore),
		ret(refuse))
}

// ifAny ends the filter with result if an argument has any of these bits.
func (p *program) ifAny(number, bits, result uint32) {
	p.load(argument(number))
	p.code = append(p.code, jump(unix.BPF_JSET, bits, 0, 1), ret(result))
}

// ifAll ends the filter with result if an argument has all of these bits.
func (p *program) ifAll(number, bits, result uint32) {
	p.load(argument(number))
	p.mask(bits)
	p.ifOneOf([]uint32{bits}, result)
}

// ifOneOf ends the filter with result if the register holds one of these values.
func (p *program) ifOneOf(values []uint32, result uint32) {
	for i, value := range values {
		no := uint8(0)
		if i == len(values)-1 {
			no = 1
		}
		p.code = append(p.code, jump(unix.BPF_JEQ, value, uint8(len(values)-1-i), no))
	}
	p.code = append(p.code, ret(result))
}

func (p *program) mask(bits uint32) {
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: bits})
}
