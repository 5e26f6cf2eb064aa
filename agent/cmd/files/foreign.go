package files

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
)

// foreign tells the runner's files from others that the agent sees. Root in a nested runner is
// the machine's: through a link of a program it would read to a client what no user of the machine
// may. So there the agent has its own rights only in the runner's own mounts, and elsewhere those
// of a command.
type foreign struct{ own map[uint64]bool } // ids of mounts

// foreignTo returns what isn't below these mount points.
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

// has reports whether a descriptor's file isn't the runner's.
func (f *foreign) has(fd int) bool {
	if f == nil {
		return false
	}
	id, err := mountOf(fd, "")
	return err != nil || !f.own[id]
}

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

// asCommand calls do with a command's rights at files, on a thread that has its own rights again
// afterwards, or ends. It isn't the process's first thread: a change of its rights clears the
// parent-death signal.
func asCommand(do func() (int, error)) (fd int, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			fd, err = asCommand(do) // elsewhere, since this one is taken meanwhile
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

// become gives the thread a user's rights at files, and its group's.
func become(id int) bool {
	// These two return no error but the id before; -1 changes nothing.
	_, _ = unix.SetfsgidRetGid(id)
	_, _ = unix.SetfsuidRetUid(id)
	group, _ := unix.SetfsgidRetGid(-1)
	owner, _ := unix.SetfsuidRetUid(-1)
	return group == id && owner == id
}
