package files

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
)

// foreign distinguishes the runner's files from other files that the agent sees. Root in a nested
// runner is root of the machine. A program could place a link through which that root would read
// files for a client that no user of the machine may read. So the agent uses its own rights only on
// the runner's own mounts, and elsewhere those of a command.
type foreign struct{ own map[uint64]bool } // ids of the runner's mounts

// foreignTo returns a foreign whose own mounts are those at the given points.
func foreignTo(points ...string) (*foreign, error) {
	f := &foreign{map[uint64]bool{}}
	for _, at := range points {
		id, err := mountOf(unix.AT_FDCWD, at)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		f.own[id] = true
	}
	return f, nil
}

// has reports whether an open file isn't the runner's.
func (f *foreign) has(fd int) bool {
	if f == nil {
		return false
	}
	id, err := mountOf(fd, "")
	return err != nil || !f.own[id]
}

// mountOf returns the id of the mount that a file is on. An empty path is the file dir itself.
func mountOf(dir int, path string) (uint64, error) {
	var stat unix.Statx_t
	if err := unix.Statx(dir, path, unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat); err != nil {
		return 0, err
	}
	if stat.Mask&unix.STATX_MNT_ID == 0 {
		return 0, unix.EOPNOTSUPP
	}
	return stat.Mnt_id, nil
}

// asCommand calls do with a command's rights at files, on a thread of its own. The thread gets its
// rights back afterwards, or ends. It must not be the process's first thread: a change of its
// rights clears the parent-death signal.
func asCommand(do func() (int, error)) (fd int, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			fd, err = asCommand(do) // on another thread, since this one is occupied meanwhile
			runtime.UnlockOSThread()
			return
		}
		fd, err = -1, unix.EPERM
		if become(int(confinement.User)) {
			fd, err = do()
		}
		if become(0) {
			runtime.UnlockOSThread()
		}
	}()
	<-ended
	return fd, err
}

// become gives the thread the file-system rights of a user and its group.
func become(id int) bool {
	// These two calls return the previous id rather than an error; an id of -1 changes nothing.
	_, _ = unix.SetfsgidRetGid(id)
	_, _ = unix.SetfsuidRetUid(id)
	group, _ := unix.SetfsgidRetGid(-1)
	owner, _ := unix.SetfsuidRetUid(-1)
	return group == id && owner == id
}
