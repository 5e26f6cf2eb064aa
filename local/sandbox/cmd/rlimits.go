package main

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rlimits are those of the spec, which libcontainer takes from the process alone.
func rlimits(of []specs.POSIXRlimit) (all []configs.Rlimit, err error) {
	for _, limit := range of {
		number, known := rlimitNumbers[limit.Type]
		if !known {
			return nil, fmt.Errorf("unknown limit %s", limit.Type)
		}
		all = append(all, configs.Rlimit{Type: number, Hard: limit.Hard, Soft: limit.Soft})
	}
	return all, nil
}

var rlimitNumbers = map[string]int{
	"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
}

// lowered are limits without those that this process can't give, since it has less
// itself and may not have the right to raise that.
func lowered(of []specs.POSIXRlimit) []specs.POSIXRlimit {
	of = slices.Clone(of)
	for i, limit := range of {
		var own unix.Rlimit
		if number, known := rlimitNumbers[limit.Type]; known && unix.Getrlimit(number, &own) == nil {
			of[i].Soft, of[i].Hard = min(limit.Soft, own.Max), min(limit.Hard, own.Max)
		}
	}
	return of
}
