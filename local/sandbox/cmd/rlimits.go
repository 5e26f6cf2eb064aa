package main

import (
	"fmt"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rlimits are those of the spec, which libcontainer takes from the process alone.
func rlimits(of []specs.POSIXRlimit) (all []configs.Rlimit, err error) {
	numbers := map[string]int{"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK}
	for _, limit := range of {
		number, known := numbers[limit.Type]
		if !known {
			return nil, fmt.Errorf("unknown limit %s", limit.Type)
		}
		all = append(all, configs.Rlimit{Type: number, Hard: limit.Hard, Soft: limit.Soft})
	}
	return all, nil
}
