package confinement

import "golang.org/x/sys/unix"

// architecture is the only one whose calls the filter accepts.
const architecture = unix.AUDIT_ARCH_X86_64

// allowedHere are, except in the last line, older names of calls that every
// architecture has.
var allowedHere = []uint32{
	unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_GETDENTS, unix.SYS_MKDIR, unix.SYS_RMDIR,
	unix.SYS_MKNOD, unix.SYS_LINK, unix.SYS_UNLINK, unix.SYS_SYMLINK, unix.SYS_RENAME, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME,
	unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	unix.SYS_DUP2, unix.SYS_PIPE, unix.SYS_EVENTFD, unix.SYS_SIGNALFD, unix.SYS_INOTIFY_INIT, unix.SYS_SELECT, unix.SYS_POLL, unix.SYS_EPOLL_CREATE,
	unix.SYS_EPOLL_WAIT,
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_PAUSE, unix.SYS_ALARM, unix.SYS_TIME, unix.SYS_GETPGRP, unix.SYS_ARCH_PRCTL,
}

// refusedHere are like refusedCalls, but exist on this architecture only.
var refusedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS,
	unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}

// hugeSizes are the logarithms of the sizes of huge pages; 0 is the default size.
var hugeSizes = []uint32{0, 21, 30}
