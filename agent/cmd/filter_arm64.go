package main

import "golang.org/x/sys/unix"

const (
	architecture    = unix.AUDIT_ARCH_AARCH64
	sysOpenTreeAttr = 467 // since Linux 6.15
)

var deniedHere []uint32
