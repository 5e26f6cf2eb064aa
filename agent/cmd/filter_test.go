package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

// verdict runs a filter as the kernel does, with a call's number and arguments.
func verdict(t *testing.T, code []unix.SockFilter, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	data := map[uint32]uint32{dataNumber: number, dataArchitecture: arch}
	for i, a := range args {
		data[uint32(dataArgument0+8*i)] = uint32(a)
		data[uint32(dataArgument0+8*i+4)] = uint32(a >> 32)
	}
	var register uint32
	for at := 0; at < len(code); at++ {
		c := code[at]
		yes := false
		switch c.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			register = data[c.K]
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

// TestFilterJudges looks at the edges of what the filter tells apart.
func TestFilterJudges(t *testing.T) {
	listed := judgements(false)
	code := assemble(architecture, &listed)
	for _, test := range []struct {
		name   string
		number uint32
		args   []uint64
		want   uint32
	}{
		{"read", unix.SYS_READ, nil, allow},
		{"a gap", 400, nil, unknown},
		{"of no use", unix.SYS_CACHESTAT, nil, unknown},
		{"far beyond", 1 << 20, nil, unknown},
		{"clone3", unix.SYS_CLONE3, nil, unknown},
		{"fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
		{"a user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, refuse},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, refuse},
		{"TIOCSTI with a high bit", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | 1<<40}, refuse},
		{"TIOCGWINSZ", unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, allow},
		{"which persona", unix.SYS_PERSONALITY, []uint64{0xffffffff}, allow},
		{"fixed addresses", unix.SYS_PERSONALITY, []uint64{0x0040000}, allow},
		{"fixed addresses, 32 bits", unix.SYS_PERSONALITY, []uint64{0x0040008}, allow},
		{"everything executable", unix.SYS_PERSONALITY, []uint64{0x0400000}, refuse},
		{"BSD", unix.SYS_PERSONALITY, []uint64{6}, refuse},
		{"TCP", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, allow},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, noFamily},
		{"audit", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, noFamily},
	} {
		if got := verdict(t, code, architecture, test.number, test.args...); got != test.want {
			t.Errorf("%s: %#x, want %#x", test.name, got, test.want)
		}
	}
	if got := verdict(t, code, unix.AUDIT_ARCH_I386, unix.SYS_READ); got != killProcess {
		t.Errorf("another architecture: %#x", got)
	}
}
