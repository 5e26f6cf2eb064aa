package groups

import (
	"slices"
	"strings"
	"testing"
)

// A container's group is mounted directly, below its tree, or as the root of a cgroup namespace. A
// group outside of the mount isn't found.
func TestOwnGroupIsFound(t *testing.T) {
	const options = " rw,nosuid - "
	for name, test := range map[string]struct {
		mounts, own []string
		want        []groupPath
	}{
		"docker, version 1": {
			[]string{"1 0 0:1 /docker/abc /sys/fs/cgroup/pids" + options + "cgroup cgroup rw,pids", "2 0 0:2 /docker/abc /sys/fs/cgroup/memory" + options + "cgroup cgroup rw,memory", "3 0 0:3 / /proc" + options + "proc proc rw"},
			[]string{"8:pids:/docker/abc", "4:memory:/docker/abc", "1:name=systemd:/docker/abc", "0::/docker/abc"},
			[]groupPath{{"pids", "/sys/fs/cgroup/pids"}, {"memory", "/sys/fs/cgroup/memory"}},
		},
		"a namespace of version 2": {
			[]string{"1 0 0:1 / /sys/fs/cgroup" + options + "cgroup2 cgroup rw"}, []string{"0::/"},
			[]groupPath{{unified, "/sys/fs/cgroup/"}},
		},
		"the machine's tree": {
			[]string{"1 0 0:1 / /sys/fs/cgroup" + options + "cgroup2 cgroup rw"}, []string{"0::/machine/abc"},
			[]groupPath{{unified, "/sys/fs/cgroup/machine/abc"}},
		},
		"together": {
			[]string{"1 0 0:1 /a /c" + options + "cgroup cgroup rw,blkio,pids"}, []string{"1:pids,blkio:/a/b"},
			[]groupPath{{"blkio", "/c/b"}, {"pids", "/c/b"}},
		},
		"another's": {
			[]string{"1 0 0:1 /a /c" + options + "cgroup cgroup rw,pids"}, []string{"1:pids:/ab"}, nil,
		},
		"nonsense": {[]string{"", "x", "1 0 0:1 / - cgroup", "- cgroup2"}, []string{"", "1", "0::"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := ownGroupPaths(strings.Join(test.mounts, "\n"), strings.Join(test.own, "\n"))
			if !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func FuzzOwnGroupIsFound(f *testing.F) {
	f.Add("1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw", "0::/")
	f.Fuzz(func(t *testing.T, mounts, own string) {
		for _, at := range ownGroupPaths(mounts, own) {
			if !watched[at.controller] {
				t.Errorf("%v", at)
			}
		}
	})
}
