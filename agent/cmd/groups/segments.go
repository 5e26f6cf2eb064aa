package groups

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// System V shared memory, semaphores and message queues outlive the processes that created them.
// The agent removes them when no command runs any longer.

// initialIPC is the number of the machine's initial IPC namespace (PROC_IPC_INIT_INO).
const initialIPC = 0xEFFFFFFF

// OwnsIPC reports whether the IPC namespace can be this runner's alone: the agent is its first
// process, and it isn't the machine's. A container may still share another one's; then the server
// passes --shared-ipc.
func OwnsIPC() bool {
	var stat unix.Stat_t
	return os.Getpid() == 1 && unix.Stat("/proc/self/ns/ipc", &stat) == nil && stat.Ino != initialIPC
}

// A kindOfIPC is one of the three kinds of objects: its calls and commands (sys/shm.h, sys/sem.h,
// sys/msg.h).
type kindOfIPC struct {
	call       uintptr
	info, stat uintptr // commands that count the objects, and describe one by its index
	count      uintptr // offset of the number of objects in the result of info
	command    uintptr // index of the command argument, from 0; the buffer is the next one
}

var kindsOfIPC = []kindOfIPC{
	{call: unix.SYS_SHMCTL, info: 14, stat: 15, count: 0, command: 1},  // SHM_INFO: used_ids
	{call: unix.SYS_SEMCTL, info: 19, stat: 20, count: 28, command: 2}, // SEM_INFO: semusz
	{call: unix.SYS_MSGCTL, info: 12, stat: 13, count: 0, command: 1},  // MSG_INFO: msgpool
}

// permissions are the first fields of the result of stat: struct ipc64_perm.
type permissions struct {
	_        int32 // key
	_, _     uint32
	owner, _ uint32 // the creator
	_        [256]byte
}

// removeIPC is the command that removes an object, for every kind.
const removeIPC = 0 // IPC_RMID

func (k kindOfIPC) control(id int, command uintptr, buffer unsafe.Pointer) (int, error) {
	a := [4]uintptr{0: uintptr(id)}
	a[k.command], a[k.command+1] = command, uintptr(buffer)
	n, _, errno := unix.Syscall6(k.call, a[0], a[1], a[2], a[3], 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// RemoveSegments removes all System V objects of the namespace. The caller must ensure that it is
// the runner's own ([OwnsIPC]), and that no command runs.
func RemoveSegments() {
	for _, kind := range kindsOfIPC {
		var info [128]byte
		last, err := kind.control(0, kind.info, unsafe.Pointer(&info))
		if err != nil || *(*int32)(unsafe.Pointer(&info[kind.count])) == 0 {
			continue
		}
		ended := make(chan struct{})
		proc.StartThread(func() (unchanged bool) {
			defer close(ended)
			for index := 0; index <= last; index++ {
				var p permissions
				id, err := kind.control(index, kind.stat, unsafe.Pointer(&p))
				if err != nil || !setUser(p.owner) {
					continue
				}
				_, _ = kind.control(id, removeIPC, nil)
				// Only root may become the next owner, and see the objects of all.
				if !setUser(0) {
					return false
				}
			}
			return true
		})
		<-ended
	}
}

// setUser makes a user this thread's effective one, since only the creator of an object may remove it. The
// real and saved user stay 0, so that users can't signal the thread. It reports whether that worked.
func setUser(user uint32) bool {
	const same = ^uintptr(0)
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(user), same)
	return errno == 0
}
