package groups

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// While a command runs, Now reports the usage of its group since its start, and that of all groups.
// The files imitate a kernel with either version of cgroups.
func TestNow(t *testing.T) {
	for name, version := range map[string]struct {
		controllers   []string
		before, after map[string]string
	}{
		"version 1": {[]string{"memory", "pids", "cpuacct"}, map[string]string{
			"memory.usage_in_bytes": "1000", "memory.max_usage_in_bytes": "1000", "memory.oom_control": "oom_kill 0", "pids.current": "1", "pids.events": "max 0",
			"cpuacct.usage": "1000000000", "cpuacct.usage_user": "600000000", "cpuacct.usage_sys": "400000000",
		}, map[string]string{
			"memory.usage_in_bytes": "5000", "memory.max_usage_in_bytes": "9000", "memory.oom_control": "oom_kill 0", "pids.current": "4", "pids.events": "max 0",
			"cpuacct.usage": "4000000000", "cpuacct.usage_user": "2600000000", "cpuacct.usage_sys": "1400000000",
		}},
		"version 2": {[]string{unified}, map[string]string{
			"memory.current": "1000", "memory.peak": "1000", "memory.events": "oom_kill 0", "pids.current": "0", "pids.max": "64", "pids.events": "max 0", "pids.events.local": "max 0",
			"cpu.stat": "usage_usec 1000000\nuser_usec 600000\nsystem_usec 400000",
		}, map[string]string{
			"memory.current": "5000", "memory.peak": "9000", "memory.events": "oom_kill 0", "pids.current": "3", "pids.max": "64", "pids.events": "max 0", "pids.events.local": "max 0",
			"cpu.stat": "usage_usec 4000000\nuser_usec 2600000\nsystem_usec 1400000",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			set := func(files map[string]string) {
				t.Helper()
				for file, text := range files {
					for _, group := range []string{"x0", "."} {
						if err := os.WriteFile(filepath.Join(dir, group, file), []byte(text+"\n"), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := os.Mkdir(filepath.Join(dir, "x0"), 0o700); err != nil {
				t.Fatal(err)
			}
			tree, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Close(tree) }()
			trees := map[string]int{}
			for _, controller := range version.controllers {
				trees[controller] = tree
			}
			one := &Group{Counters: Counters{trees: trees, name: "x0", kept: newKeptFiles(), together: &refusals{by: map[string]int64{}}}}
			all := &Groups{all: []*Group{one}, together: &Counters{trees: trees, name: ".", kept: newKeptFiles()}}
			set(version.before)
			one.Begin()
			if version.controllers[0] == unified { // the peak can't be forgotten in a plain file
				_ = one.memoryPeak.Close()
				one.memoryPeak = nil
			}
			set(version.after)
			var now agent.Used
			one.Now(&now)
			if now.User+now.System != 3*time.Second || now.User != 2*time.Second || now.Memory != 4000 || now.PeakMemory != 8000 || now.Processes != 3 || now.PeakProcesses != 3 {
				t.Errorf("the command: %+v", now)
			}
			var together agent.Used
			all.Now(&together)
			if together.User != 2600*time.Millisecond || together.System != 1400*time.Millisecond || together.Memory != 5000 || together.Processes != 3 {
				t.Errorf("all: %+v", together)
			}
			set(map[string]string{"cpuacct.usage": "0", "cpuacct.usage_user": "0", "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0"})
			if !all.Now(&together) || together.User+together.System != 0 {
				t.Errorf("before anything ran: %+v", together)
			}
			delete(trees, "cpuacct")
			if version.controllers[0] != unified && all.Now(&together) {
				t.Error("it counts CPU without that controller")
			}
		})
	}
}
