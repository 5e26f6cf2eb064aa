package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// An agent with its own kernel makes its socket in a directory of the machine, which the client
// that requests the sandbox owns and passes on. While the agent starts, the directory belongs to
// the sandbox's root user only. Afterwards that user has no access: the directory is on the
// machine's disk, and a program that could make a socket there could impersonate the agent.

// outsideMount is where the directory of an agent's socket is mounted, in the helper's mount
// namespace only.
const outsideMount = "/run/rockpool/outside"

// takenFile is a file in the sandbox's state that records whose directory the sandbox has taken, so
// that it can be returned when the sandbox is removed.
const takenFile = "outside"

// taken is the record of a taken directory. It is stored, so its fields keep their names.
type taken struct {
	Path   string
	Device uint64
	Inode  uint64
	Asker  int // uid of the client, who owned it and gets it back
	Root   int // uid of the sandbox's root, who owns it meanwhile
}

// mountOutside gives the directory of the agent's socket, descriptor 3, to the sandbox's root user,
// and mounts the agent's program in it. The spec mounts this directory in place of the agent's,
// because every root has that mount point. The directory's group may enter it, others may not.
// Until it is the sandbox's, the client can change the directory and the path to it in any way, so
// each step checks.
func mountOutside(c helper.Config, q *helper.Request, s *specs.Spec) (client int, err error) {
	i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == spec.AgentPath })
	if i < 0 {
		return 0, errors.New("the spec has no mount for the agent")
	}
	program := s.Mounts[i].Source
	var stat unix.Stat_t
	if err := unix.Fstat(3, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, errors.New("descriptor 3 isn't a directory")
	}
	dir, err := os.Readlink("/proc/self/fd/3")
	if err != nil {
		return 0, err
	}
	root := owner(s)
	note, _ := json.Marshal(taken{Path: dir, Device: stat.Dev, Inode: stat.Ino, Asker: int(stat.Uid), Root: root}) // it can't fail
	// The record comes before the change of the owner: a remove can return the directory even if
	// this process dies now.
	if err := os.WriteFile(filepath.Join(c.State, q.ID, takenFile), note, 0o600); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(outsideMount, 0o700); err != nil {
		return 0, err
	}
	// The descriptor belongs to another mount namespace, so it can't be mounted itself.
	if err := unix.Mount(dir, outsideMount, "", unix.MS_BIND, ""); err != nil {
		return 0, err
	}
	var mounted unix.Stat_t
	if err := unix.Stat(outsideMount, &mounted); err != nil || mounted.Dev != stat.Dev || mounted.Ino != stat.Ino {
		return 0, errors.New("descriptor 3 isn't the directory at its path")
	}
	if err := errors.Join(os.Chown(outsideMount, root, -1), os.Chmod(outsideMount, 0o710)); err != nil {
		return 0, err
	}
	// From now on the client can't put anything into it.
	if entries, err := os.ReadDir(outsideMount); err != nil || len(entries) > 0 {
		return 0, errors.New("descriptor 3 isn't an empty directory")
	}
	at := filepath.Join(outsideMount, path.Base(spec.AgentPath))
	target, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	_ = target.Close()
	if err := unix.Mount(program, at, "", unix.MS_BIND, ""); err != nil {
		return 0, err
	}
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return 0, err
	}
	s.Mounts[i] = specs.Mount{Destination: path.Dir(spec.AgentPath), Type: "bind", Source: outsideMount, Options: []string{"rbind", "rw", "nosuid", "nodev"}}
	return int(stat.Uid), nil
}

// closeOutside returns the directory and the socket in it to the client. The agent serves, and no
// program of a user has run yet. Until now both belonged to the sandbox's root user. Another
// sandbox that was requested with the same directory may have been removed meanwhile, which
// returned it.
func closeOutside(client, root int) error {
	var dir unix.Stat_t
	if err := unix.Stat(outsideMount, &dir); err != nil || int(dir.Uid) != root {
		return errors.New("another user owns it")
	}
	socket, err := unix.Open(filepath.Join(outsideMount, spec.SocketName), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	var stat unix.Stat_t
	if err := unix.Fstat(socket, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFSOCK || int(stat.Uid) != root || stat.Nlink != 1 {
		return errors.New("the agent's socket isn't a socket, or isn't owned by the agent")
	}
	return errors.Join(
		unix.Fchownat(socket, "", client, -1, unix.AT_EMPTY_PATH), // first: then its new owner could replace it
		os.Chmod(outsideMount, 0o711),
		os.Chown(outsideMount, client, -1),
	)
}

// returnOutside returns the directory of a sandbox that has ended to its client, if the sandbox's
// root user still owns it.
func returnOutside(c helper.Config, id string) error {
	note, err := os.ReadFile(filepath.Join(c.State, id, takenFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var t taken
	if err := json.Unmarshal(note, &t); err != nil {
		return nil //nolint:nilerr // the record is incomplete, so the directory was never taken
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, t.Path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil //nolint:nilerr // the path's owner has moved it
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Dev != t.Device || stat.Ino != t.Inode || int(stat.Uid) != t.Root {
		return nil //nolint:nilerr // it was moved or returned already
	}
	if err := unix.Fchownat(fd, "", t.Asker, -1, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("return the directory of its agent's socket: %w", err)
	}
	return nil
}
