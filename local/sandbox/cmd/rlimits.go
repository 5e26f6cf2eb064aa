package main

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/spec"
)

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
