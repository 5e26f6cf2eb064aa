package launch

import (
	"errors"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// Between its fork and its exec a command gets limits, which aren't the agent's. It
// also gives up system calls that the agent itself needs. syscall.ForkExec can do neither. So this
// package forks itself, and otherwise does the same as far as commands need it. It changes the user
// and the directory last. Afterwards processes of the same user can stop the child, and so delay
// the start.
//
// In version 2 of cgroups a thread can't be in another group than its process. There the kernel
// puts the command into its group when it creates it, with clone3. That takes no lock against
// forks, whereas a move would.
//
// Until its exec the child shares the parent's memory and the thread's stack. So the parent
// allocates everything that the child needs, and the child only makes system calls. The Go runtime
// doesn't know the child. All signals are blocked, so that no handler of the runtime runs in it;
// CLONE_CLEAR_SIGHAND removes the handlers before the child unblocks signals.

// A cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags      uint64
	pidFD      uint64
	_          [2]uint64 // where the kernel writes ids
	exitSignal uint64
	_          [5]uint64 // stack, thread-local storage, requested ids
	cgroup     uint64
}

// vfork calls clone3. It returns 0 in the child. In the parent it returns when the child has
// executed a program or ended.
//
//go:noescape
func vfork(args *cloneArgs) (pid, errno uintptr)

// Stuck is the time after which a start counts as held up. Another process of the same user can
// stop a child before its exec.
const Stuck = 2 * time.Second

// ErrHeldUp says that a child was killed because it didn't execute its program within [Stuck].
var ErrHeldUp = errors.New("the command didn't start in time: the runner is too busy, or another of its programs stops new processes; stop that program, or retry")

// A deadline is a timer of the kernel (timer_create(2)) whose signal is SIGKILL. A stopped child
// can't end itself. The agent can't end it either: the forking thread holds a processor of the Go
// runtime until the exec. A garbage collection waits for that processor while all goroutines stand
// still. An exec deletes the timers of a process.
type deadline struct {
	event struct { // struct sigevent
		value          uint64
		signal, notify int32
		_              [48]byte
	}
	spec struct{ interval, value unix.Timespec } // struct itimerspec
	id   int32
}

// A child is everything that a child needs to become a program, allocated before the fork.
type child struct {
	clone     cloneArgs
	mask, all uint64 // sets of signals: the parent's blocked ones, and all
	none      uint64 // what the child blocks
	file, dir *byte
	argv, env []*byte
	files     []uintptr
	above     uintptr // the lowest descriptor above all that are in use
	report    uintptr // the descriptor to which the child writes an errno
	terminal  bool    // descriptor 0 becomes the controlling terminal
	who       *syscall.Credential
	ambient   []uintptr // ambient capabilities that the child keeps
	nofile    unix.Rlimit
	limits    []rlimit
	filter    unix.SockFprog
	deadline  deadline
	errno     uintptr
}

// CanFork reports whether [Into] works: the kernel supports it (Linux 5.5) and permits it, which
// some container runtimes don't. It makes a valid request that must fail, because it has no place
// for the child's descriptor.
func CanFork() bool {
	args := cloneArgs{flags: childFlags | unix.CLONE_PIDFD, pidFD: 1, exitSignal: uint64(unix.SIGCHLD)}
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	return errno == unix.EFAULT
}

const childFlags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_CLEAR_SIGHAND

// startIn forks a child into a group, with a limit of open files, and returns when the child has
// executed file or failed. Group and files are as in Into.
func startIn(group, files int, file string, argv []string, attr *Attr) (int, error) {
	c, err := newChild(group, files, file, argv, attr)
	if err != nil {
		return 0, err
	}
	var report [2]int
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	c.report = uintptr(report[1])
	c.above = max(c.above, c.report+1)
	syscall.ForkLock.Lock() // as ForkExec does: no descriptor may leak into the child
	began := time.Now()
	pid, errno := c.run()
	syscall.ForkLock.Unlock()
	_ = unix.Close(report[1])
	defer func() { _ = unix.Close(report[0]) }()
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	// The pipe is closed by a successful exec, so its end without an answer means success. A killed
	// child closes it too.
	var answer [8]byte
	for {
		n, err := unix.Read(report[0], answer[:])
		if err == unix.EINTR {
			continue
		}
		if n == 0 && err == nil {
			if time.Since(began) < Stuck || proc.Executed(int(pid)) {
				return int(pid), nil
			}
			reap(int(pid))
			return 0, ErrHeldUp
		}
		break
	}
	reap(int(pid))
	return 0, syscall.Errno(*(*uint64)(unsafe.Pointer(&answer)))
}

// reap waits for a child that executed nothing.
func reap(pid int) {
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			return
		}
	}
}

func newChild(group, files int, file string, argv []string, attr *Attr) (*child, error) {
	c := &child{
		clone:    cloneArgs{flags: childFlags, exitSignal: uint64(unix.SIGCHLD)},
		all:      ^uint64(0),
		files:    attr.Files,
		above:    uintptr(len(attr.Files)),
		terminal: attr.Sys.Setctty,
		who:      attr.Sys.Credential,
		ambient:  attr.Sys.AmbientCaps,
		filter:   confinement.CommandFilter(),
	}
	if group != NoGroup {
		c.clone.flags |= unix.CLONE_INTO_CGROUP
		c.clone.cgroup = uint64(group)
	}
	for _, fd := range attr.Files {
		c.above = max(c.above, fd+1)
	}
	var err error
	if c.file, err = syscall.BytePtrFromString(file); err != nil {
		return nil, err
	}
	if c.argv, err = syscall.SlicePtrFromStrings(argv); err != nil {
		return nil, err
	}
	if c.env, err = syscall.SlicePtrFromStrings(attr.Env); err != nil {
		return nil, err
	}
	if attr.Dir != "" {
		if c.dir, err = syscall.BytePtrFromString(attr.Dir); err != nil {
			return nil, err
		}
	}
	// The Go runtime raises its own soft limit to one below the hard limit. Programs get the usual
	// soft limit.
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &c.nofile); err != nil {
		return nil, err
	}
	c.deadline.event.signal = int32(unix.SIGKILL)
	c.deadline.spec.value = unix.NsecToTimespec(int64(Stuck))
	if c.nofile.Cur == c.nofile.Max-1 {
		c.nofile.Cur = min(usualFiles, c.nofile.Max)
	}
	if files > 0 {
		c.nofile.Max = min(uint64(files), c.nofile.Max)
		c.nofile.Cur = min(usualFiles, c.nofile.Max)
	}
	if c.limits, err = attr.Limits.lowered(); err != nil {
		return nil, err
	}
	for i, l := range c.limits {
		if l.resource == unix.RLIMIT_NOFILE { // the agent's own limit is higher
			c.limits[i].value = unix.Rlimit{Cur: min(l.value.Cur, c.nofile.Max), Max: min(l.value.Max, c.nofile.Max)}
		}
	}
	return c, nil
}

// usualFiles is the soft limit of open files that the kernel gives to processes by default.
const usualFiles = 1024

func (c *child) run() (pid, errno uintptr) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const size = unsafe.Sizeof(c.all)
	if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&c.all)), uintptr(unsafe.Pointer(&c.mask)), size, 0, 0); errno != 0 {
		return 0, uintptr(errno)
	}
	pid, errno = c.fork()
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&c.mask)), 0, size, 0, 0)
	return pid, errno
}

// fork returns only in the parent, and without further calls: the child uses the same stack frame.
//
//go:noinline
//go:norace
func (c *child) fork() (pid, errno uintptr) {
	if pid, errno = vfork(&c.clone); pid != 0 || errno != 0 {
		return pid, errno
	}
	c.errno = c.become()
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, c.report, uintptr(unsafe.Pointer(&c.errno)), unsafe.Sizeof(c.errno))
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 253, 0, 0)
	}
}

// become runs in the child. It returns an errno if it fails.
//
//go:noinline
//go:norace
//go:nosplit
func (c *child) become() uintptr {
	// The timer comes first, since root of the runner can stop the child. The start still hangs
	// until the child is continued if the child is stopped before this line, or the kernel refuses
	// the timer.
	if _, _, errno := syscall.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&c.deadline.event)), uintptr(unsafe.Pointer(&c.deadline.id))); errno == 0 {
		_, _, _ = syscall.RawSyscall6(unix.SYS_TIMER_SETTIME, uintptr(c.deadline.id), 0, uintptr(unsafe.Pointer(&c.deadline.spec)), 0, 0, 0)
	}
	var errno syscall.Errno
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
		return uintptr(errno)
	}
	if _, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&c.none)), 0, unsafe.Sizeof(c.none), 0, 0); errno != 0 {
		return uintptr(errno)
	}
	// First move the descriptors out of the way, then to their numbers.
	last := c.above + uintptr(len(c.files))
	if _, _, errno = syscall.RawSyscall(unix.SYS_DUP3, c.report, last, unix.O_CLOEXEC); errno != 0 {
		return uintptr(errno)
	}
	c.report = last
	for i, fd := range c.files {
		if _, _, errno = syscall.RawSyscall(unix.SYS_DUP3, fd, c.above+uintptr(i), unix.O_CLOEXEC); errno != 0 {
			return uintptr(errno)
		}
	}
	for i := range c.files {
		if _, _, errno = syscall.RawSyscall(unix.SYS_DUP3, c.above+uintptr(i), uintptr(i), 0); errno != 0 {
			return uintptr(errno)
		}
	}
	if c.terminal {
		if _, _, errno = syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 1); errno != 0 {
			return uintptr(errno)
		}
	}
	if _, _, errno = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&c.nofile)), 0, 0, 0); errno != 0 {
		return uintptr(errno)
	}
	for i := range c.limits {
		if _, _, errno = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(c.limits[i].resource), uintptr(unsafe.Pointer(&c.limits[i].value)), 0, 0, 0); errno != 0 {
			return uintptr(errno)
		}
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&c.filter))); errno != 0 {
		return uintptr(errno)
	}
	if len(c.ambient) > 0 {
		if _, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0, 0); errno != 0 {
			return uintptr(errno)
		}
	}
	// Change the user last: afterwards other processes of the same user can stop the child.
	if c.who != nil {
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(c.who.Groups)), uintptr(unsafe.Pointer(unsafe.SliceData(c.who.Groups))), 0); errno != 0 {
			return uintptr(errno)
		}
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETGID, uintptr(c.who.Gid), 0, 0); errno != 0 {
			return uintptr(errno)
		}
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETUID, uintptr(c.who.Uid), 0, 0); errno != 0 {
			return uintptr(errno)
		}
	}
	for _, capability := range c.ambient {
		if _, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, capability, 0, 0, 0); errno != 0 {
			return uintptr(errno)
		}
	}
	if c.dir != nil {
		if _, _, errno = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(c.dir)), 0, 0); errno != 0 {
			return uintptr(errno)
		}
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.file)), uintptr(unsafe.Pointer(unsafe.SliceData(c.argv))), uintptr(unsafe.Pointer(unsafe.SliceData(c.env))))
	return uintptr(errno)
}
