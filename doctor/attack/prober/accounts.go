package main

import (
	"cmp"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The functions in this file use resources that no namespace divides. Each takes as much as it can,
// up to its own maximum, prints how much that was, and holds it.

// hold keeps the taken resources until the process is killed, at most a minute.
func hold() { time.Sleep(time.Minute) } //nolint:forbidigo // it waits to be killed

// repeat calls do until it fails, at most most times. It returns how often it succeeded.
func repeat(most int, do func(n int) error) (int, error) {
	for n := range most {
		if err := do(n); err != nil {
			return n, err
		}
	}
	return most, nil
}

var takers = map[string]func() error{
	"terminals": func() error {
		_, err := openTerminal()
		return err
	},
	"watchers": raw(unix.SYS_INOTIFY_INIT1, unix.IN_CLOEXEC),
	"netlink":  raw(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE),
	"files":    raw(unix.SYS_OPENAT, unixAt, text("/dev/null"), unix.O_RDONLY|unix.O_CLOEXEC),
	"pipes": func() error {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
			return err
		}
		_, err := unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, 1<<20)
		return err
	},
}

// take takes a resource: its name, the maximum number, and optionally "hold" to keep it.
func take(args []string) {
	n, err := repeat(number(args, 1), func(int) error { return takers[args[0]]() })
	say("took", strconv.Itoa(n), result(err))
	if len(args) > 2 {
		hold()
	}
}

// openInAll opens files in the given number of processes, at most most in each, and prints the total.
func openInAll(processes, most int) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		say("opened 0", result(err))
		return
	}
	path, started := text("/dev/null"), 0
	for range processes {
		switch pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); {
		case errno == 0 && pid == 0:
			openAndStay(path, most, uintptr(pipe[1]))
		case errno == 0:
			started++
		}
	}
	all := 0
	for range started {
		var count [8]byte
		if n, err := unix.Read(pipe[0], count[:]); n != len(count) || err != nil {
			break
		}
		all += int(binary.NativeEndian.Uint64(count[:]))
	}
	say("opened", strconv.Itoa(all), "in", strconv.Itoa(started), "processes")
	hold()
}

// openAndStay opens a file at most most times, writes how often it succeeded to tell, and never
// returns. It runs in a forked child without Go's other threads, so it may use only raw system
// calls.
func openAndStay(path uintptr, most int, tell uintptr) {
	count := uint64(0)
	for range most {
		if _, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, unixAt, path, unix.O_RDONLY, 0, 0, 0); errno != 0 {
			break
		}
		count++
	}
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, tell, uintptr(unsafe.Pointer(&count)), 8)
	for {
		_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// fillBuffers fills unread socket buffers on the loopback, at most mib MiB, and prints how much the
// kernel accepted. It opens all sockets first: after that, it makes no call in which the kernel
// would check the memory of its cgroup.
func fillBuffers(network string, mib int) {
	senders, err := map[string]func(descriptors int) ([]sender, error){"tcp": connections, "udp": receivers}[network](240)
	if err != nil {
		say("holds nothing", result(err))
		return
	}
	took, piece := 0, make([]byte, 32<<10)
	for _, send := range senders {
		if took < mib<<20 {
			took += send(piece, mib<<20-took)
		}
	}
	say("holds", strconv.Itoa(took>>20), "MiB")
	if took>>20 >= mostHeld {
		hold() // until the agent ends it
	}
}

// mostHeld is the size of buffers in MiB that exceeds the limits of attacked runners: the kernel's
// with cgroup version 1, and the agent's with version 2.
const mostHeld = 60

// A sender sends to a buffer until it is full, or until it has taken most bytes.
type sender func(piece []byte, most int) (took int)

const bufferSize = 4 << 20 // the kernel doubles it, up to the machine's maximum

func connections(descriptors int) ([]sender, error) {
	listener, at, err := bound(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(listener, 1); err != nil {
		return nil, err
	}
	var all []sender
	for range descriptors / 2 {
		from, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return nil, err
		}
		if err := unix.Connect(from, at); err != nil {
			return nil, err
		}
		to, _, err := unix.Accept(listener)
		if err != nil {
			return nil, err
		}
		_ = unix.SetsockoptInt(from, unix.SOL_SOCKET, unix.SO_SNDBUF, bufferSize)
		_ = unix.SetsockoptInt(to, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferSize)
		all = append(all, func(piece []byte, most int) (took int) {
			for idle := 0; took < most && idle < 3; {
				if n, err := unix.SendmsgN(from, piece, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err == nil {
					took, idle = took+n, 0
					continue
				}
				idle++                       // the bytes may still be on their way to the other buffer
				time.Sleep(time.Millisecond) //nolint:forbidigo // there is nothing to wait for
			}
			return took
		})
	}
	return all, nil
}

// receivers returns senders to UDP sockets. All send from one socket, which leaves more descriptors
// for receivers.
func receivers(descriptors int) ([]sender, error) {
	from, _, err := bound(unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	_ = unix.SetsockoptInt(from, unix.SOL_SOCKET, unix.SO_SNDBUF, bufferSize)
	var all []sender
	for range descriptors {
		to, at, err := bound(unix.SOCK_DGRAM)
		if err != nil {
			return nil, err
		}
		_ = unix.SetsockoptInt(to, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferSize)
		all = append(all, func(piece []byte, most int) (took int) {
			for took < most {
				_ = unix.Sendto(from, piece, unix.MSG_DONTWAIT, at)
				before := took
				if took = queued(to); took <= before {
					break // the packet was dropped, and the next one would be
				}
			}
			return took
		})
	}
	return all, nil
}

// bound returns a socket that is bound to a loopback address.
func bound(kind int) (fd int, at unix.Sockaddr, err error) {
	if fd, err = unix.Socket(unix.AF_INET, kind, 0); err != nil {
		return 0, nil, err
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, nil, err
	}
	at, err = unix.Getsockname(fd)
	return fd, at, err
}

// queued returns the memory of a socket's receive queue in bytes (SO_MEMINFO).
func queued(fd int) int {
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return int(info[0])
}

// neighbours sends to the given number of addresses on the runner's link, and prints how many of
// them are in the kernel's neighbour table.
func neighbours(addresses int) {
	interfaces, err := net.Interfaces()
	fd, noSocket := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err = cmp.Or(err, noSocket); err != nil {
		say("knows nothing", result(err))
		return
	}
	for n := range addresses {
		at := &unix.SockaddrInet6{Port: 9, ZoneId: uint32(interfaces[len(interfaces)-1].Index), Addr: [16]byte{0: 0xfe, 1: 0x80, 13: 1, 14: byte(n >> 8), 15: byte(n)}}
		_ = unix.Sendto(fd, []byte{0}, 0, at) // an address to which sending fails adds no neighbour
	}
	table, err := syscall.NetlinkRIB(unix.RTM_GETNEIGH, unix.AF_INET6)
	if err != nil {
		say("knows nothing", result(err))
		return
	}
	known, err := syscall.ParseNetlinkMessage(table)
	count := 0
	for _, message := range known {
		if message.Header.Type == unix.RTM_NEWNEIGH {
			count++
		}
	}
	say("knows", strconv.Itoa(count), result(err))
}

// cores sets the limit of core files to 0 and prints the resulting limits.
func cores() {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	var now unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &now)
	say("cores", result(err), strconv.FormatUint(now.Cur, 10), strconv.FormatUint(now.Max, 10))
}

// drop asks the kernel to evict files of the machine from the page cache, and prints whether it
// did. The kernel keeps pages that are in use.
func drop() {
	answer := "no file"
	for _, path := range []string{"/usr/bin/gpgv", "/usr/bin/apt-get", "/usr/bin/localedef", "/usr/bin/pstree", "/usr/bin/nl", "/usr/bin/tac", "/bin/busybox"} {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		if forgotten(file) {
			say("forgotten")
			return
		}
		answer = "cached"
	}
	say(answer)
}

// forgotten reads a file, asks the kernel to evict it, and reports whether the file's end is no
// longer cached.
func forgotten(file *os.File) bool {
	size, err := io.Copy(io.Discard, file)
	if err != nil {
		return false
	}
	_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	const noWait = 8 // RWF_NOWAIT: EAGAIN for uncached data
	_, err = unix.Preadv2(int(file.Fd()), [][]byte{make([]byte, 4096)}, (size-1)&^4095, noWait)
	return err == unix.EAGAIN
}

// readDisk reads the machine's programs from its disk, bypassing the cache, for the given seconds.
// It prints whether that is more than most MiB per second.
func readDisk(seconds, most int) {
	size := 1 << 20
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		say("read nothing", result(err))
		return
	}
	began, read := time.Now(), 0
	over := func() bool { return time.Since(began) > time.Duration(seconds)*time.Second }
	for !over() && read < seconds*4*most<<20 {
		before := read
		_ = filepath.Walk("/usr", func(path string, info os.FileInfo, err error) error {
			if err != nil || !info.Mode().IsRegular() || info.Size() < int64(size) || read >= seconds*4*most<<20 {
				return nil
			}
			fd, err := unix.Open(path, unix.O_RDONLY|syscall.O_DIRECT|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil
			}
			defer func() { _ = unix.Close(fd) }()
			for !over() {
				n, err := unix.Read(fd, memory)
				if read += max(n, 0); err != nil || n < size {
					break
				}
			}
			if over() {
				return filepath.SkipAll
			}
			return nil
		})
		if read == before {
			break
		}
	}
	share := "within"
	if rate := float64(read) / time.Since(began).Seconds(); rate > float64(most<<20) {
		share = "beyond"
	}
	say("read", strconv.Itoa(read>>20), "MiB,", share, "its share")
}

func attachFilter() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	all := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &all})
}

// option returns a call that sets a socket option to zeros. The kernel checks the value only if the
// filter allows the option.
func option(family, kind, level, name int) call {
	return opened(func() (int, error) { return unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0) },
		func(fd int) error { return unix.SetsockoptString(fd, level, name, string(make([]byte, 256))) })
}

var seccompFilter = unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}

func openTerminal() (fd int, err error) {
	return unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// fileUsers sets a file's access control list (posix_acl_xattr(5)).
func fileUsers() error {
	path := "/tmp/file-users-" + strconv.Itoa(os.Getuid())
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	list := []byte{2, 0, 0, 0}                                                           // the version
	for _, entry := range []struct{ tag, permissions uint16 }{{1, 6}, {4, 0}, {32, 0}} { // owner, group, others
		list = binary.NativeEndian.AppendUint16(list, entry.tag)
		list = binary.NativeEndian.AppendUint16(list, entry.permissions)
		list = binary.NativeEndian.AppendUint32(list, ^uint32(0))
	}
	return unix.Setxattr(path, "system.posix_acl_access", list, 0)
}

// opened returns a call that opens a descriptor, uses it and closes it.
func opened(open func() (fd int, err error), use func(fd int) error) call {
	return func() error {
		fd, err := open()
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return use(fd)
	}
}

// requests returns a call that makes a request with zeros: to the file system of the machine's programs if
// family is 0, otherwise to the kernel's network.
func requests(family int, request uintptr) call {
	return opened(func() (int, error) {
		if family == 0 {
			return unix.Open("/usr", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		return unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	}, func(fd int) error { return raw(unix.SYS_IOCTL, uintptr(fd), request, buffer(bigBuffer))() })
}

func accountCalls() map[string]call {
	const (
		flowLabels = 32         // IPV6_FLOWLABEL_MGR
		fiemap     = 0xc020660b // FS_IOC_FIEMAP
		vlan       = 0x8982     // SIOCGIFVLAN
	)
	return map[string]call{
		"filter-packets":  attachFilter,
		"filter-program":  option(unix.AF_INET, unix.SOCK_DGRAM, unix.SOL_SOCKET, unix.SO_ATTACH_BPF),
		"filter-reuse":    option(unix.AF_INET, unix.SOCK_DGRAM, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF),
		"filter-calls":    raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&seccompFilter))),
		"filter-by-name":  raw(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&seccompFilter))),
		"tcp-keys":        option(unix.AF_INET, unix.SOCK_STREAM, unix.SOL_TCP, unix.TCP_MD5SIG),
		"multicast4":      option(unix.AF_INET, unix.SOCK_DGRAM, unix.SOL_IP, unix.IP_ADD_MEMBERSHIP),
		"shared-files":    func() error { return cloneWith(unix.CLONE_FILES) },
		"multicast6":      option(unix.AF_INET6, unix.SOCK_DGRAM, unix.SOL_IPV6, unix.IPV6_JOIN_GROUP),
		"flow-labels":     option(unix.AF_INET6, unix.SOCK_DGRAM, unix.SOL_IPV6, flowLabels),
		"file-users":      fileUsers,
		"io_setup":        raw(unix.SYS_IO_SETUP, 1024, word()),
		"huge-memory":     raw(unix.SYS_MMAP, 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_HUGETLB, noDir, 0),
		"huge-file":       raw(unix.SYS_MEMFD_CREATE, text("huge"), unix.MFD_HUGETLB),
		"huge-segment":    raw(unix.SYS_SHMGET, 0, 2<<20, unix.IPC_CREAT|0o600|0o4000),
		"line-discipline": opened(openTerminal, func(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCSETD, 0) }), // N_TTY, which it has
		"core-scheduling": raw(unix.SYS_PRCTL, unix.PR_SCHED_CORE, 1, 0, 0, 0),                                               // PR_SCHED_CORE_CREATE
		"fiemap":          requests(0, fiemap),
		"clone-file":      requests(0, unix.FICLONE),
		"mptcp":           socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
		"udplite":         socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE),
		"sctp":            socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
		"dccp":            socket(unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP),
		"stream-udp":      socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_UDP),
		"datagram-tcp":    socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_TCP),
		"icmp-of-other":   socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
		"raw-any":         socket(unix.AF_INET, unix.SOCK_RAW, 0),
		"packet-type":     socket(unix.AF_INET, unix.SOCK_PACKET, 0),
		"vlan":            requests(unix.AF_INET, vlan),
		"bridges":         requests(unix.AF_INET, unix.SIOCGIFBR),
		"new-bridge":      requests(unix.AF_INET, unix.SIOCBRADDBR),
	}
}
