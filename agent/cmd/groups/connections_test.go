package groups

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/namespaces"
	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/test/need"
)

// Measuring needs no free descriptor on the machine. An error means that nothing was measured.
func TestMeasuringNeedsNoNewFile(t *testing.T) {
	need.Sandboxes(t)
	c := inNetwork(t, func() {
		connect(t, "127.0.0.1", 12, 0) // which stay open
	})
	path := filepath.Join(t.TempDir(), "locks")
	if err := os.WriteFile(path, []byte("2: OFDLCK ADVISORY  WRITE -1 00:1b:1201 2 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := proc.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	locks, nobodys := &Locks{list}, func(int) (bool, error) { return false, nil }
	withoutFiles(t, func() {
		if excessive, err := c.Excessive(); excessive || err != nil {
			t.Errorf("connections: %t, %v", excessive, err)
		}
		if excessive, err := locks.Excessive(nobodys); excessive || err != nil {
			t.Errorf("locks: %t, %v", excessive, err)
		}
	})
	directory, err := proc.Open("/proc") // reading it fails
	if err != nil {
		t.Fatal(err)
	}
	if excessive, err := (&Connections{diag: -1, lists: [2]*proc.File{directory, nil}}).Excessive(); excessive || err == nil {
		t.Errorf("connections that can't be read: %t, %v", excessive, err)
	}
	if excessive, err := (&Locks{directory}).Excessive(nobodys); excessive || err == nil {
		t.Errorf("locks that can't be read: %t, %v", excessive, err)
	}
}

// Lines of /proc/net/tcp are parsed.
func TestUnacceptedSize(t *testing.T) {
	for line, want := range map[string]int64{
		"   0: 0100007F:1F90 0100007F:8A2C 08 00000000:00000400 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n":   connectionBytes + 1024,
		"   1: 0100007F:1F90 0100007F:8A2C 01 00000000:00000400 00:00000000 00000000  1000        0 771 1 0 20 4 30 10 -1\n": 0,
		"   2: 0100007F:8A2C 0100007F:1F90 06 00000000:00000000 03:00001000 00000000     0        0 0 3 0\n":                 0,
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n":                 0,
	} {
		if got := unacceptedSize([]byte(line)); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}

// Both ways of measuring agree about the same sockets.
func TestSockDiagAndListsAgree(t *testing.T) {
	need.Sandboxes(t)
	c := inNetwork(t, func() {
		connect(t, "127.0.0.1", 7, 1000)
		connect(t, "::1", 5, 1000)
	})
	if c.diag < 0 {
		need.Lacks(t, "the kernel has no sock_diag")
	}
	asked, err := c.query()
	read, readErr := c.read()
	if err := errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	const sent = 12 * (connectionBytes + 1000)
	if asked.sockets != 12*2+2 || read.sockets != asked.sockets+len(c.lists) /* titles */ || read.size != sent || asked.size <= sent || asked.size > 2*sent {
		t.Errorf("sock_diag %+v, lists %+v", asked, read)
	}
	if many, err := c.Excessive(); many || err != nil {
		t.Errorf("many: %t, %v", many, err)
	}
	_ = unix.Close(c.diag)
	if many, err := c.Excessive(); many || err != nil {
		t.Errorf("by the lists: %t, %v", many, err)
	}
}

// Answers of sock_diag are parsed.
func TestUnacceptedMemory(t *testing.T) {
	socket := func(state byte, inode, queue uint32, numbers ...uint32) []byte {
		m := make([]byte, diagSize)
		m[diagState] = state
		binary.NativeEndian.PutUint32(m[diagQueue:], queue)
		binary.NativeEndian.PutUint32(m[diagInode:], inode)
		m = binary.NativeEndian.AppendUint64(m, 1<<32|8<<16|5) // INET_DIAG_SHUTDOWN, of 5 bytes
		if len(numbers) > 0 {
			m = binary.NativeEndian.AppendUint16(m, uint16(4+4*len(numbers)))
			m = binary.NativeEndian.AppendUint16(m, diagMemory)
			for _, n := range numbers {
				m = binary.NativeEndian.AppendUint32(m, n)
			}
		}
		return m
	}
	memory := []uint32{18308, 8388608, 0, 3939840, 2172, 0, 0, 7, 0}
	for name, test := range map[string]struct {
		socket []byte
		want   int64
	}{
		"unaccepted: counted":               {socket(unix.BPF_TCP_ESTABLISHED, 0, 2500, memory...), connectionBytes + 18308 + 7},
		"closed unaccepted: counted":        {socket(unix.BPF_TCP_CLOSE_WAIT, 0, 2501, memory...), connectionBytes + 18308 + 7},
		"no memory numbers: queue counted":  {socket(unix.BPF_TCP_CLOSE_WAIT, 0, 2501), connectionBytes + 2501},
		"cut memory numbers: queue counted": {socket(unix.BPF_TCP_CLOSE_WAIT, 0, 2501, memory...)[:diagSize+16], connectionBytes + 2501},
		"accepted: not counted":             {socket(unix.BPF_TCP_ESTABLISHED, 771, 2500, memory...), 0},
		"TIME_WAIT: not counted":            {socket(unix.BPF_TCP_TIME_WAIT, 0, 0), 0},
		"SYN_RECV: not counted":             {socket(unix.BPF_TCP_SYN_RECV, 0, 0), 0},
	} {
		if got := unacceptedMemory(test.socket); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// Parts of an answer of sock_diag are parsed.
func TestEachSocket(t *testing.T) {
	message := func(kind uint16, question uint32, size int) []byte {
		m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+size))
		m = binary.NativeEndian.AppendUint16(m, kind)
		m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_MULTI)
		m = binary.NativeEndian.AppendUint32(m, question)
		return append(m, make([]byte, 4+size)...)
	}
	join := func(messages ...[]byte) (all []byte) {
		for _, m := range messages {
			all = append(all, m...)
		}
		return all
	}
	row, done := message(unix.SOCK_DIAG_BY_FAMILY, 3, diagSize), message(unix.NLMSG_DONE, 3, 4)
	refused := message(unix.NLMSG_ERROR, 3, 20)
	binary.NativeEndian.PutUint32(refused[unix.NLMSG_HDRLEN:], uint32(1<<32-int64(unix.ENOENT)))
	for name, test := range map[string]struct {
		part    []byte
		sockets int
		done    bool
		err     error
	}{
		"two sockets":          {join(row, row), 2, false, nil},
		"a socket and the end": {join(row, done), 1, true, nil},
		"another question":     {join(message(unix.SOCK_DIAG_BY_FAMILY, 2, diagSize), message(unix.NLMSG_DONE, 2, 4), row), 1, false, nil},
		"an error":             {refused, 0, false, unix.ENOENT},
		"half a header":        {row[:10], 0, false, errDiag},
		"half a socket":        {join(row, row[:50]), 1, false, errDiag},
		"a short socket":       {message(unix.SOCK_DIAG_BY_FAMILY, 3, diagSize-4), 0, false, errDiag},
		"no length":            {make([]byte, 16), 0, false, errDiag},
		"empty part":           {nil, 0, false, nil},
	} {
		sockets := 0
		if done, err := eachSocket(test.part, 3, func([]byte) { sockets++ }); done != test.done || err != test.err || sockets != test.sockets {
			t.Errorf("%s: %d sockets, %t, %v", name, sockets, done, err)
		}
	}
}

// BenchmarkConnections measures sockets, half of which are unaccepted.
func BenchmarkConnections(b *testing.B) {
	for name, many := range map[string]int{"1000": 1000, "16000": 16000} {
		c := inNetwork(b, func() {
			for left := many / 2; left > 0; left -= 4000 {
				connect(b, "127.0.0.1", min(left, 4000), 1)
			}
		})
		for how, look := range map[string]func() (tally, error){"sock_diag": c.query, "lists": c.read} {
			b.Run(name+"/"+how, func(b *testing.B) {
				for b.Loop() {
					if t, err := look(); err != nil || t.sockets < many/2 {
						b.Fatal(t, err)
					}
				}
			})
		}
	}
}

// inNetwork calls do on a thread in a new network, and returns its connections.
func inNetwork(t testing.TB, do func()) (c *Connections) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and ends with the thread
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = namespaces.RaiseLoopback()
		}
		if err == nil {
			c, err = OpenConnections()
		}
		for i, protocol := range []string{"tcp", "tcp6"} { // of the thread's network
			if err == nil {
				c.lists[i], err = proc.Open("/proc/thread-self/net/" + protocol)
			}
		}
		if err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-ended
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// connect makes unaccepted connections and sends data on them. They stay until the test ends.
func connect(t testing.TB, address string, many, size int) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { _ = listener.Close() })
	for range many {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			_, err = conn.Write(make([]byte, size))
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// withoutFiles calls do while this process can open no file.
func withoutFiles(t *testing.T, do func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	do()
	_, err := os.Open("/proc/self/stat")
	if restore := unix.Prlimit(0, unix.RLIMIT_NOFILE, &before, nil); restore != nil || !errors.Is(err, unix.EMFILE) {
		t.Fatalf("limit: %v; restored: %v", err, restore)
	}
}
