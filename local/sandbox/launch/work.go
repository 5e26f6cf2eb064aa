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

// ownersCapabilities are what a worker needs to give files to others, and to
// delete them.
var ownersCapabilities = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SETUID, unix.CAP_SETGID}

// Work is as Remote's, for an ordinary user: the process is root among the users
// of runners that are made from images, which are the first range of this user's,
// and has nobody else's id. Where there are none, it is root of this user alone.
// It ends with ctx, too; Working waits for its end.
func (l Direct) Work(ctx context.Context, dir *os.File) (_ *net.UnixConn, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	own, its := os.NewFile(uintptr(pair[0]), "worker"), os.NewFile(uintptr(pair[1]), "server")
	defer its.Close()
	dialed, err := net.FileConn(own)
	if err := errors.Join(err, own.Close()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = dialed.Close()
		}
	}()
	cmd := exec.CommandContext(ctx, l.Worker, helper.WorkerArgument)
	cmd.Env = []string{"GOMEMLIMIT=256MiB"}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stderr = its, os.Stderr
	cmd.ExtraFiles = []*os.File{dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
	}
	begin := func() error { return nil }
	if l.Users.Count == 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	} else {
		wait, told, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer wait.Close()
		defer told.Close()
		cmd.Args = append(cmd.Args, helper.AwaitUsers)
		cmd.ExtraFiles = append(cmd.ExtraFiles, wait)
		cmd.SysProcAttr.AmbientCaps = ownersCapabilities // who has no id when a program is executed gets no others
		begin = func() error {
			if err := l.mapOwners(ctx, cmd.Process.Pid); err != nil {
				return err
			}
			_, err := told.Write([]byte{1})
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
	l.Working.Go(func() { _ = cmd.Wait() }) // what it has to say it says to who asks
	if err != nil {
		return nil, fmt.Errorf("give a process that works on images its users: %w", err)
	}
	return dialed.(*net.UnixConn), nil
}

// mapOwners gives the user namespace of a process the users of the first range.
func (l Direct) mapOwners(ctx context.Context, pid int) error {
	count := strconv.Itoa(min(l.Users.Count, spec.UIDs))
	return errors.Join(
		mapBy(ctx, "newuidmap", pid, "0", strconv.Itoa(l.Users.UID), count),
		mapBy(ctx, "newgidmap", pid, "0", strconv.Itoa(l.Users.GID), count),
	)
}

// BecomeOwner is what a worker does that was started to await its users: a byte on
// descriptor 4. It becomes root among them.
func BecomeOwner() error {
	wait := os.NewFile(4, "users")
	defer wait.Close()
	var told [1]byte
	if _, err := wait.Read(told[:]); err != nil {
		return errors.New("the server gave it no users") // and says why
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(0, 0, 0), syscall.Setresuid(0, 0, 0)); err != nil {
		return fmt.Errorf("become root of its users: %w", err)
	}
	return nil
}
