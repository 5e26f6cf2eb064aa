package nomadtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A slot is a set of ports that no other Nomad of these tests uses. They lie below the range from
// which the kernel assigns ports, so that they are still free when a Nomad is restarted. Otherwise
// the kernel could assign one meanwhile, or connect a retrying client to itself.
type slot struct {
	file  *os.File // locked while the slot is taken; its text names the holder
	ports ports
}

// ports are the ports of one slot on 127.0.0.1.
type ports struct {
	server, client, second agentPorts
	spare                  int // for a server of the test
	first, last            int // for tasks
}

// agentPorts are the ports of one Nomad agent.
type agentPorts struct{ http, rpc, serf int }

const (
	slots     = 24
	firstPort = 11000 // ten for each slot
	taskPort  = 12000
	taskPorts = 400 // for each slot
)

// takeSlot takes a free slot for the Nomad whose files are in dir. If the slot's last holder
// crashed, it removes what that left.
func takeSlot(dir string) (*slot, error) {
	locks := filepath.Join(os.TempDir(), "rockpool-nomadtest")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return nil, err
	}
	for n := range slots {
		s, err := lockSlot(locks, n)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		if !s.usable() {
			_ = s.file.Close()
			continue
		}
		if err := s.record(dir); err != nil {
			_ = s.file.Close()
			return nil, err
		}
		return s, nil
	}
	return nil, fmt.Errorf("all %d sets of ports are taken: %s", slots, locks)
}

// lockSlot returns a slot, or nil if it is taken.
func lockSlot(dir string, n int) (*slot, error) {
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if err == unix.EWOULDBLOCK {
			return nil, nil
		}
		return nil, err
	}
	at, tasks := firstPort+10*n, taskPort+taskPorts*n
	return &slot{file: file, ports: ports{
		server: agentPorts{http: at, rpc: at + 1, serf: at + 2},
		client: agentPorts{http: at + 3, rpc: at + 4, serf: at + 5},
		second: agentPorts{http: at + 6, rpc: at + 7, serf: at + 8},
		spare:  at + 9,
		first:  tasks, last: tasks + taskPorts - 1,
	}}, nil
}

// usable removes what the last holder left, and reports whether the ports are free.
func (s *slot) usable() bool {
	text, err := os.ReadFile(s.file.Name())
	if err != nil {
		return false
	}
	if dir := strings.TrimSpace(string(text)); dir != "" && sweep(dir) != nil {
		return false
	}
	for port := s.ports.server.http; port <= s.ports.spare; port++ {
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// address returns a port's address on the loopback interface.
func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// record writes the holder's directory to the slot's file.
func (s *slot) record(dir string) error {
	_, err := s.file.WriteAt([]byte(dir), 0)
	return errors.Join(s.file.Truncate(int64(len(dir))), err)
}

// free gives the slot back. The caller has already removed the Nomad's files.
func (s *slot) free() error { return errors.Join(s.record(""), s.file.Close()) }
