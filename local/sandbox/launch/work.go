package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// ownersCapabilities let a worker give files to other owners, and delete them.
var ownersCapabilities = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SETUID, unix.CAP_SETGID}

// Work works as Remote.Work, without root. The process is root among the users of runners that are
// made from images, which are this user's first range, and has no other ids. Without subordinate
// ids it is root of this user only. It also ends with ctx. Working waits for its end.
func (l Direct) Work(ctx context.Context, dir *os.File) (_ *net.UnixConn, err error) {
	conn, its, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer its.Close()
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	cmd := WorkerCommand(ctx, l.Worker, its, dir)
	begin := func() error { return nil }
	if l.Users.Count == 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	} else {
		// newuidmap needs a running process, so the process waits on the pipe until its users are
		// mapped.
		wait, ready, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer wait.Close()
		defer ready.Close()
		cmd.Args = append(cmd.Args, helper.AwaitUsers)
		cmd.ExtraFiles = append(cmd.ExtraFiles, wait)
		// A process without an id loses its other capabilities at execve.
		cmd.SysProcAttr.AmbientCaps = ownersCapabilities
		begin = func() error {
			if err := l.mapOwners(ctx, cmd.Process.Pid); err != nil {
				return err
			}
			_, err := ready.Write([]byte{1})
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process to work on images: %w", err)
	}
	err = begin()
	if err != nil {
		_ = cmd.Process.Kill()
	}
	l.Working.Go(func() { _ = cmd.Wait() }) // its errors go over the connection
	if err != nil {
		return nil, fmt.Errorf("map the users of a process that works on images: %w", err)
	}
	return conn, nil
}

// WorkerCommand returns the command of a process that works on a directory, with a connection as its
// stdin. It has namespaces of its own, for which the caller sets the users.
func WorkerCommand(ctx context.Context, program string, conn, dir *os.File) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, helper.WorkerArgument)
	cmd.Env = []string{"GOMEMLIMIT=256MiB"}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stderr = conn, os.Stderr
	cmd.ExtraFiles = []*os.File{dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
	}
	return cmd
}

// mapOwners maps the users of the first range into a process's user namespace.
func (l Direct) mapOwners(ctx context.Context, pid int) error {
	count := strconv.Itoa(min(l.Users.Count, spec.UIDs))
	return errors.Join(
		mapBy(ctx, "newuidmap", pid, "0", strconv.Itoa(l.Users.UID), count),
		mapBy(ctx, "newgidmap", pid, "0", strconv.Itoa(l.Users.GID), count),
	)
}

// BecomeOwner waits in a worker until its users are mapped, signalled by a byte on descriptor 4,
// and becomes root among them.
func BecomeOwner() error {
	wait := os.NewFile(4, "users")
	defer wait.Close()
	var signal [1]byte
	if _, err := wait.Read(signal[:]); err != nil {
		return errors.New("the server mapped no users for it") // the server reports why
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(0, 0, 0), syscall.Setresuid(0, 0, 0)); err != nil {
		return fmt.Errorf("become root of its users: %w", err)
	}
	return nil
}
