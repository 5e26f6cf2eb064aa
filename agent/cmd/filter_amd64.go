package main

import "golang.org/x/sys/unix"

const (
	architecture    = unix.AUDIT_ARCH_X86_64
	sysOpenTreeAttr = 467 // since Linux 6.15
)

var deniedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS,
	unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}
