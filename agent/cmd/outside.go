package main

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/host"
	"github.com/rockpool/rockpool/agent/cmd/peer"
)

// serveOutside serves in a runner with a kernel of its own (gVisor), where no listening socket can
// be inherited. It makes a socket in a directory of the machine, and accepts only peers from
// outside of that kernel: the directory is root's alone, but a privileged command is root too.
// It reports errors on the standard error until it listens. Then it writes agent.Ready to the
// standard output, and closes both.
func serveOutside(path string, processes int, o host.Options) error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	if err := unix.Chmod(path, 0o600); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	if processes > 0 {
		if o.Inner, err = groups.LimitInner(processes); err != nil {
			return fmt.Errorf("the limit of processes: %w", err)
		}
	}
	o.Ready = letGo
	return host.Serve(peer.OtherKernel(listener), o)
}

// letGo reports that the agent serves, and closes the descriptors 0 to 2: the maker of the runner
// waits for either.
func letGo() error {
	if _, err := os.Stdout.WriteString(agent.Ready); err != nil {
		return err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	return unix.Close(null)
}
