package confinement

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter lets the calls of filter_calls.go through and no others. It is written
// out rather than made by go-seccomp-bpf, which compares all 64 bits of an argument
// of which the kernel reads 32, as in CVE-2019-7303.

// Offsets in struct seccomp_data, of a little-endian machine.
const (
	dataNumber       = 0
	dataArchitecture = 4
	dataArguments    = 16 // 8 bytes each
)

// argument is the offset of the low half of an argument, which is all that the
// kernel reads of most; the high half is 4 bytes on.
func argument(i uint32) uint32 { return dataArguments + 8*i }

const (
	killProcess = unix.SECCOMP_RET_KILL_PROCESS
	allow       = unix.SECCOMP_RET_ALLOW
	notify      = unix.SECCOMP_RET_USER_NOTIF
	ignore      = unix.SECCOMP_RET_ERRNO // success, and nothing is done
	refuse      = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	unknown     = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	invalid     = unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)
	noFamily    = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	noProtocol  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)
	noType      = unix.SECCOMP_RET_ERRNO | uint32(unix.ESOCKTNOSUPPORT)
	noRequest   = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOTTY)
	noSupport   = unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)
	noMemory    = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOMEM)
)

// A judgement is what is done about a call.
type judgement uint8

const (
	unlisted judgement = iota // ENOSYS, as on a kernel that doesn't have it: programs do without
	allowed
	refused     // EPERM, as without privileges: what programs know of these calls
	byArguments // the judgements from here on depend on arguments: filter_arguments.go
)

// tableSize is more than the highest number of a call that is listed: all later
// ones are as the last in the table.
const tableSize = 512

// codeSize is room for the instructions of every table that there is.
const codeSize = 384

// A table has a judgement for each number of a call.
type table [tableSize]judgement

// judgements are those of this architecture. With forks they let clone3 and seccomp through: the
// agent needs both in package launch, and refuses them to each command ([CommandFilter]). The
// flags of clone3 lie in memory, where a filter can't look: C libraries fall back to clone.
func judgements(forks bool) (t table) {
	for _, numbers := range [][]uint32{allowedCalls, allowedHere} {
		for _, number := range numbers {
			t[number] = allowed
		}
	}
	for _, numbers := range [][]uint32{refusedCalls, refusedHere} {
		for _, number := range numbers {
			t[number] = refused
		}
	}
	for number, j := range judgedCalls {
		t[number] = j
	}
	if forks {
		t[unix.SYS_CLONE3], t[unix.SYS_SECCOMP] = allowed, allowed
	}
	return t
}

// assemble writes the filter for a table: a tree of comparisons, since the kernel would go
// through a list for each call that is judged by its arguments, and before Linux 5.11 for every
// call. docs/security.md has the table. The result for a new netlink socket is netlink: with
// [notify] the agent counts them (netlink.go), [noFamily] refuses it.
func assemble(architecture uint32, t *table, netlink uint32) []unix.SockFilter {
	p := program{code: make([]unix.SockFilter, 0, codeSize), netlink: netlink} // an idle agent keeps each size that it ever allocated
	p.load(dataArchitecture)
	p.unless(architecture, killProcess)
	p.load(dataNumber)
	if architecture == unix.AUDIT_ARCH_X86_64 {
		const x32 = 0x40000000
		p.code = append(p.code, jump(unix.BPF_JGE, x32, 0, 1), ret(killProcess))
	}
	p.decide(t[:], 0)
	return p.code
}

// A program is a filter that is being written; the number of the call is in
// its register between the parts.
type program struct {
	code    []unix.SockFilter
	netlink uint32 // the result for a new netlink socket
}

func (p *program) load(offset uint32) { p.code = append(p.code, load(offset)) }

// unless ends with result if the register holds anything but value.
func (p *program) unless(value, result uint32) {
	p.code = append(p.code, jump(unix.BPF_JEQ, value, 1, 0), ret(result))
}

// decide adds what is done for the calls from first on. The tree's jumps have 8
// bits, which it is small enough for: a test goes through all numbers.
func (p *program) decide(t []judgement, first uint32) {
	changes := 0
	for i := 1; i < len(t); i++ {
		if t[i] != t[i-1] {
			changes++
		}
	}
	if changes == 0 {
		p.judge(t[0])
		return
	}
	middle := 0
	for range (changes + 1) / 2 {
		middle = nextChange(t, middle)
	}
	at := len(p.code)
	p.code = append(p.code, jump(unix.BPF_JGE, first+uint32(middle), 0, 0))
	p.decide(t[:middle], first)
	p.code[at].Jt = uint8(len(p.code) - at - 1)
	p.decide(t[middle:], first+uint32(middle))
}

// nextChange returns where the judgement changes after i.
func nextChange(t []judgement, i int) int {
	for i++; t[i] == t[i-1]; i++ {
	}
	return i
}

// judge adds what is done for a call.
func (p *program) judge(j judgement) {
	switch {
	case j == allowed:
		p.code = append(p.code, ret(allow))
	case j == refused:
		p.code = append(p.code, ret(refuse))
	case j > byArguments:
		p.judgeArguments(j)
	default:
		p.code = append(p.code, ret(unknown))
	}
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump skips so many instructions if the comparison holds, or doesn't.
func jump(comparison uint16, value uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | comparison | unix.BPF_K, Jt: yes, Jf: no, K: value}
}

func ret(result uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: result}
}

// commandFilter is of each command, beside the agent's own filter. It refuses clone3 and new
// filters, which the agent's own may allow.
var commandFilter = []unix.SockFilter{
	load(dataNumber),
	jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1),
	ret(unknown),
	jump(unix.BPF_JEQ, unix.SYS_SECCOMP, 0, 3),
	load(argument(0)),
	jump(unix.BPF_JEQ, unix.SECCOMP_SET_MODE_FILTER, 0, 1),
	ret(invalid),
	ret(allow),
}

// CommandFilter returns the filter that a command gets before its exec, where the agent was
// confined with forks. Programs get the errors of a kernel without filters.
func CommandFilter() unix.SockFprog {
	return unix.SockFprog{Len: uint16(len(commandFilter)), Filter: &commandFilter[0]}
}

// loadFilters puts the filter on every thread.
func loadFilters(forks, ownNetwork bool) error {
	t := judgements(forks)
	if ownNetwork {
		listener, err := loadFilter(assemble(architecture, &t, notify), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH)
		if err == nil {
			go countNetlink(listener) // for as long as the program runs
			return nil
		}
		// EINVAL: Linux before 5.7 has no such listener. EBUSY: a filter that was loaded
		// before has a listener already, such as a container runtime's.
		if err != unix.EINVAL && err != unix.EBUSY {
			return err
		}
		fmt.Fprintf(os.Stderr, "agent: programs can't list interfaces by netlink: its sockets can't be counted (%v)\n", err)
		_, err = loadFilter(assemble(architecture, &t, noFamily), 0)
		return err
	}
	_, err := loadFilter(assemble(architecture, &t, allow), 0)
	return err
}

// loadFilter puts a filter on every thread, and returns what the kernel does: a
// listener, where the flags ask for one.
func loadFilter(code []unix.SockFilter, flags uintptr) (int, error) {
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	made, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC|flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, errno
	}
	if made != 0 && flags == 0 {
		return -1, fmt.Errorf("thread %d has a filter of its own", made)
	}
	return int(made), nil
}
