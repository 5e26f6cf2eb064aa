package main

import "golang.org/x/sys/unix"

// foreign has calls through the system call entries of other architectures.
var foreign = map[string]call{
	"x32":          raw(0x40000000 + unix.SYS_GETPID),
	"int80":        func() error { _ = int80(20); return nil }, // getpid
	"iopl":         raw(unix.SYS_IOPL, 3),
	"modify_ldt":   raw(unix.SYS_MODIFY_LDT, 0, buffer(64), 64),
	"create_thing": raw(unix.SYS_CREATE_MODULE, 0, 0),
}

// int80 makes a system call without arguments through the entry of 32-bit programs.
func int80(number uint32) uint32
