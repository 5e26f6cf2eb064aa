package process

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// The test checks which processes belong to an execution, and whether one could be missing.
func TestProcessesOfAnExecution(t *testing.T) {
	self := unix.Getpid()
	live := map[int]proc.Status{
		100: {Parent: self, Threads: 1, Session: 100, Mark: 7}, 101: {Parent: 100, Threads: 1, Session: 101, Mark: 7},
		200: {Parent: self, Threads: 1, Session: 200, Mark: 8}, 201: {Parent: 200, Threads: 0, Session: 200, Mark: 8, Dead: true},
	}
	with := func(pid int, s proc.Status) map[int]proc.Status {
		all := maps.Clone(live)
		all[pid] = s
		return all
	}
	ended := proc.Status{Parent: self, Session: 100, Mark: 7, Dead: true}
	for name, test := range map[string]struct {
		marking, complete bool
		all               map[int]proc.Status
		want              []int
		sure              bool
	}{
		"marked":                     {true, true, live, []int{100, 101}, true},
		"marked, one has gone":       {true, false, live, []int{100, 101}, false},
		"marked, one is dead":        {true, true, with(101, ended), []int{100}, false},
		"marked, none is left":       {true, true, map[int]proc.Status{200: live[200], 201: live[201]}, nil, true},
		"marked, none, one has gone": {true, false, map[int]proc.Status{200: live[200]}, nil, false},
		"sessions":                   {false, true, live, []int{100, 101}, true},
		"sessions, another's zombie": {false, true, map[int]proc.Status{200: live[200], 201: live[201]}, nil, true},
		"sessions, one is dead":      {false, true, with(101, ended), []int{100}, false},
	} {
		p := &process{pid: 100, mark: 7, starter: &Starter{marking: test.marking}}
		found, sure := p.among(test.all, test.complete, false)
		slices.Sort(found)
		if !slices.Equal(found, test.want) || sure != test.sure {
			t.Errorf("%s: %v, sure %v", name, found, sure)
		}
	}
}
