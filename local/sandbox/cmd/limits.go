package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// disinherit sets what this process has inherited through the server, for example from nohup(1), nice(1) and
// ulimit, and what sandboxes would inherit from it. It leaves settings that need a privilege that the process
// lacks; the server reports them (spec.Inherited).
func disinherit() {
	// The kernel also counts a sandbox's users against this process's limits. So these must be at least as high.
	all := uint64(unix.RLIM_INFINITY)
	for resource, least := range map[int]uint64{
		unix.RLIMIT_CPU: all, unix.RLIMIT_FSIZE: all, unix.RLIMIT_DATA: all, unix.RLIMIT_AS: all, unix.RLIMIT_RSS: all, unix.RLIMIT_NPROC: all,
		unix.RLIMIT_RTTIME: all, unix.RLIMIT_LOCKS: all, unix.RLIMIT_STACK: 8 << 20,
		unix.RLIMIT_SIGPENDING: 1 << 12, unix.RLIMIT_MEMLOCK: 8 << 20, unix.RLIMIT_MSGQUEUE: 800 << 10,
	} {
		var own unix.Rlimit
		if unix.Getrlimit(resource, &own) != nil || own.Cur >= least {
			continue
		}
		if unix.Setrlimit(resource, &unix.Rlimit{Cur: least, Max: max(own.Max, least)}) != nil {
			_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: min(least, own.Max), Max: own.Max})
		}
	}
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0)
	// Threads have priorities of their own. A thread that begins meanwhile gets those of another, so a second
	// round finds it.
	for range 2 {
		threads, _ := os.ReadDir("/proc/self/task")
		for _, thread := range threads {
			id, _ := strconv.Atoi(thread.Name())
			var ordinary struct{ priority int32 } // struct sched_param
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(id), unix.SCHED_NORMAL, uintptr(unsafe.Pointer(&ordinary)))
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, 0)
			const ofProcess = 1 // IOPRIO_WHO_PROCESS
			_, _, _ = unix.RawSyscall(unix.SYS_IOPRIO_SET, ofProcess, uintptr(id), 0)
		}
	}
}

// rlimits converts the spec's rlimits: libcontainer takes them from the process only.
func rlimits(of []specs.POSIXRlimit) (all []configs.Rlimit, err error) {
	for _, limit := range of {
		number, known := spec.RlimitNumbers[limit.Type]
		if !known {
			return nil, fmt.Errorf("unknown rlimit %s", limit.Type)
		}
		all = append(all, configs.Rlimit{Type: number, Hard: limit.Hard, Soft: limit.Soft})
	}
	return all, nil
}

// attainable returns the rlimits, each lowered to this process's hard limit. It first tries to
// raise that limit.
func attainable(of []specs.POSIXRlimit) []specs.POSIXRlimit {
	of = slices.Clone(of)
	for i, limit := range of {
		var own unix.Rlimit
		if number, known := spec.RlimitNumbers[limit.Type]; known && unix.Getrlimit(number, &own) == nil {
			if limit.Hard > own.Max && unix.Setrlimit(number, &unix.Rlimit{Cur: own.Cur, Max: limit.Hard}) == nil {
				continue
			}
			of[i].Soft, of[i].Hard = min(limit.Soft, own.Max), min(limit.Hard, own.Max)
		}
	}
	return of
}
