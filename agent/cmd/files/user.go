package files

import (
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// withRights calls do with the rights that an update or a move has: those of commands or, if it is
// protected, the agent's own. So a path that user code replaces meanwhile leads to nothing that
// user code couldn't change itself.
func (f *Files) withRights(protected bool, do func() error) error {
	if protected || !f.ownUser {
		return do()
	}
	_, err := asCommand(func() (int, error) { return 0, do() })
	return err
}

func (f *Files) mayProtect(protected bool) *agent.Error {
	if protected && !f.ownUser {
		return &agent.Error{Code: agent.ErrInvalid, Field: "protected", Message: "files can't be protected in this runner, because its programs have no user of their own"}
	}
	return nil
}

func changeError(path string, protected bool, err error) *agent.Error {
	e := pathError(path, err)
	if !protected && (err == unix.EACCES || err == unix.EPERM) {
		e.Message += ": the user of programs may not change this, but root may (protected)"
	}
	return e
}

// own makes the directory name in above belong to commands, with mode 0755. If it is protected, it
// belongs to root, and each user may change only their own entries.
func own(above int, name string, protected bool) error {
	uid, gid, mode := int(confinement.User), int(confinement.Group), uint32(0o755)
	if protected {
		uid, gid, mode = 0, 0, 0o1777
	}
	fd, err := unix.Openat(above, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Fchown(fd, uid, gid); err != nil {
		return err
	}
	return unix.Fchmod(fd, mode)
}

// asCommand calls do with a command's rights at files, on a thread of its own. The thread gets its
// rights back afterwards, or ends.
func asCommand(do func() (int, error)) (fd int, err error) {
	ended := make(chan struct{})
	proc.StartThread(func() bool {
		defer close(ended)
		fd, err = -1, unix.EPERM
		undo, ok := become(confinement.User, confinement.Group)
		if ok {
			fd, err = do()
		}
		return undo()
	})
	<-ended
	return fd, err
}

// become gives this thread the rights of a user and a group at files, and no further group. Undo
// reports whether the thread has root's rights again; the further groups don't return.
func become(uid, gid uint32) (undo func() bool, ok bool) {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return func() bool { return true }, false
	}
	if setFileIDs(uid, gid) {
		return func() bool { return setFileIDs(0, 0) }, true
	}
	// gVisor's kernel has no ids for files alone.
	ok = setEffective(unix.SYS_SETRESGID, gid) && setEffective(unix.SYS_SETRESUID, uid)
	return func() bool { return setEffective(unix.SYS_SETRESUID, 0) && setEffective(unix.SYS_SETRESGID, 0) }, ok
}

// setFileIDs sets only this thread's ids for access to files. Of root's capabilities it has those
// that concern files only as root. With root's effective id, no command can change its priority.
func setFileIDs(uid, gid uint32) bool {
	// The first two calls return the previous id rather than an error; an id of -1 changes nothing.
	_, _ = unix.SetfsgidRetGid(int(gid))
	_, _ = unix.SetfsuidRetUid(int(uid))
	group, _ := unix.SetfsgidRetGid(-1)
	user, _ := unix.SetfsuidRetUid(-1)
	return group == int(gid) && user == int(uid)
}

// setEffective sets an effective id of this thread by a raw call, since package syscall would change
// every thread. The real and the saved id stay root's, so no command may signal or trace the thread.
func setEffective(call uintptr, id uint32) bool {
	const same = ^uintptr(0)
	_, _, errno := unix.RawSyscall(call, same, uintptr(id), same)
	return errno == 0
}
