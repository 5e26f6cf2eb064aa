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

// An agent with a kernel of its own makes its socket in a directory of the
// machine's, which who asks for the sandbox owns and passes on. While the agent
// starts, the directory is the sandbox's root's alone. Then it is closed to that
// one: it is on the machine's disk, and who could make a socket in it could stand
// in for the agent.

// outsideMount is where the directory of an agent's socket is mounted, in the
// helper's own mount namespace only.
const outsideMount = "/run/rockpool/outside"

// takenFile says, in the sandbox's state, which directory it has taken from whom,
// so that whoever removes the sandbox can give it back.
const takenFile = "outside"

type taken struct {
	Path   string
	Device uint64
	Inode  uint64
	Asker  int // who owned it, and is to have it back
	Root   int // who owns it meanwhile: the sandbox's root
}

// mountOutside gives the directory of the agent's socket, which is descriptor 3, to
// the sandbox's root, puts the agent into it, and both into the spec in the place
// of the agent's own mount: one directory for both is what every root has. The
// directory's group may come here, others can't. Until the directory isn't theirs,
// who asked may do with it, and with the way to it, whatever they like.
func mountOutside(c helper.Config, q *helper.Request, s *specs.Spec) (asker int, err error) {
	i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == spec.AgentPath })
	if i < 0 {
		return 0, errors.New("the spec doesn't say where the agent is")
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
	note, err := json.Marshal(taken{Path: dir, Device: stat.Dev, Inode: stat.Ino, Asker: int(stat.Uid), Root: root})
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(c.State, q.ID, takenFile), note, 0o600); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(outsideMount, 0o700); err != nil {
		return 0, err
	}
	// The descriptor is of another mount namespace: it can't be mounted itself.
	if err := unix.Mount(dir, outsideMount, "", unix.MS_BIND, ""); err != nil {
		return 0, err
	}
	var mounted unix.Stat_t
	if err := unix.Stat(outsideMount, &mounted); err != nil || mounted.Dev != stat.Dev || mounted.Ino != stat.Ino {
		return 0, errors.New("descriptor 3 isn't where its name says")
	}
	if err := errors.Join(os.Chown(outsideMount, root, -1), os.Chmod(outsideMount, 0o710)); err != nil {
		return 0, err
	}
	// From now on nobody can put anything into it.
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

// closeOutside gives the directory back, with the socket that is in it. The agent
// serves, and nothing of a user's has run. Until now both were the sandbox's
// root's: another sandbox that was asked for with the same directory may have had
// it given back meanwhile.
func closeOutside(asker, root int) error {
	var dir unix.Stat_t
	if err := unix.Stat(outsideMount, &dir); err != nil || int(dir.Uid) != root {
		return errors.New("somebody else has it")
	}
	socket, err := unix.Open(filepath.Join(outsideMount, spec.SocketName), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	var stat unix.Stat_t
	if err := unix.Fstat(socket, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFSOCK || int(stat.Uid) != root || stat.Nlink != 1 {
		return errors.New("the agent's socket isn't one, or isn't the agent's")
	}
	return errors.Join(
		unix.Fchownat(socket, "", asker, -1, unix.AT_EMPTY_PATH), // first: afterwards the asker could put another file there
		os.Chmod(outsideMount, 0o711),
		os.Chown(outsideMount, asker, -1),
	)
}

// giveBack gives back the directory of a sandbox that isn't there any more, if it is
// still that one's.
func giveBack(c helper.Config, id string) error {
	note, err := os.ReadFile(filepath.Join(c.State, id, takenFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var t taken
	if err := json.Unmarshal(note, &t); err != nil {
		return nil //nolint:nilerr // it was never taken: the note was being written
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, t.Path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil //nolint:nilerr // who owns the way to it has moved it
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Dev != t.Device || stat.Ino != t.Inode || int(stat.Uid) != t.Root {
		return nil //nolint:nilerr // likewise, or it was given back
	}
	if err := unix.Fchownat(fd, "", t.Asker, -1, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("give back the directory of its agent's socket: %w", err)
	}
	return nil
}
