package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// Subordinate is the range of ids that an administrator gave an ordinary user for its user
// namespaces (subuid(5)).
type Subordinate struct{ UID, GID, Count int }

// FindSubordinate returns this user's largest range. It returns an error if there is no range of
// 65536 ids, which each sandbox needs, or if the program newuidmap is missing.
func FindSubordinate() (Subordinate, error) {
	if os.Geteuid() == 0 { // and not root of the machine: newuidmap can't map ids that this namespace lacks
		return Subordinate{}, errors.New("the server runs as root of a user namespace, which maps too few ids")
	}
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			return Subordinate{}, fmt.Errorf("%s is missing: install the package uidmap", program)
		}
	}
	names := []string{strconv.Itoa(os.Geteuid())}
	if own, err := user.LookupId(names[0]); err == nil {
		names = append(names, own.Username)
	}
	uid, users := largestRange("/etc/subuid", names)
	gid, groups := largestRange("/etc/subgid", names)
	count := min(users, groups)
	if count < spec.UIDs {
		return Subordinate{}, fmt.Errorf("/etc/subuid and /etc/subgid give this user fewer than %d ids", spec.UIDs)
	}
	return Subordinate{UID: uid, GID: gid, Count: count}, nil
}

// largestRange returns the largest range of the names in a file of lines name:first:count.
func largestRange(file string, names []string) (first, count int) {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		for _, name := range names {
			begin, err := strconv.Atoi(fields[1])
			n, err2 := strconv.Atoi(fields[2])
			if fields[0] == name && err == nil && err2 == nil && n > count {
				first, count = begin, n
			}
		}
	}
	return first, count
}

// runMapped runs a helper in a user namespace and a mount namespace of its own, as root of this
// user's ids only. The helper waits until its ids are mapped.
func (l Direct) runMapped(ctx context.Context, cmd *exec.Cmd) error {
	wait, begin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer begin.Close()
	cmd.Args[1] = helper.Wait
	cmd.ExtraFiles = append([]*os.File{cmd.ExtraFiles[0], wait}, cmd.ExtraFiles[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, Setsid: true}
	err = cmd.Start()
	_ = wait.Close()
	if err != nil {
		return fmt.Errorf("start rockpool-sandbox in a user namespace (this machine may forbid these to ordinary users): %w", err)
	}
	mapped := l.mapUsers(ctx, cmd.Process.Pid)
	if mapped == nil {
		_, mapped = begin.Write([]byte{1})
	}
	_ = begin.Close()
	return errors.Join(mapped, cmd.Wait())
}

// mapUsers maps the ids of a process's user namespace: 0 is this user.
func (l Direct) mapUsers(ctx context.Context, pid int) error {
	uid, gid := strconv.Itoa(os.Geteuid()), strconv.Itoa(os.Getegid())
	if l.Users.Count == 0 {
		// Without privileges, gid_map can be written only after setgroups is denied
		// (user_namespaces(7)).
		for _, file := range []struct{ name, text string }{{"uid_map", "0 " + uid + " 1"}, {"setgroups", "deny"}, {"gid_map", "0 " + gid + " 1"}} {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file.name), []byte(file.text), 0); err != nil {
				return err
			}
		}
		return nil
	}
	count := strconv.Itoa(l.Users.Count)
	return errors.Join(
		mapBy(ctx, "newuidmap", pid, "0", uid, "1", "1", strconv.Itoa(l.Users.UID), count),
		mapBy(ctx, "newgidmap", pid, "0", gid, "1", "1", strconv.Itoa(l.Users.GID), count),
	)
}

// mapBy maps ids of a process's user namespace with a setuid program.
func mapBy(ctx context.Context, program string, pid int, ids ...string) error {
	said, err := exec.CommandContext(ctx, program, append([]string{strconv.Itoa(pid)}, ids...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(said)))
	}
	return nil
}

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
