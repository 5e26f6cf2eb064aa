package files

import (
	"strconv"
	"strings"
	"sync"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
)

// names are the users and groups in the runner's own files. They are read once, because these files
// are read-only in a runner.
type names struct {
	once          sync.Once
	users, groups map[uint32]string
}

func (n *names) user(id uint32) string {
	n.once.Do(n.read)
	return named(n.users, id)
}

func (n *names) group(id uint32) string {
	n.once.Do(n.read)
	return named(n.groups, id)
}

func named(names map[uint32]string, id uint32) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// read reads both files. Missing files leave ids without names.
func (n *names) read() {
	n.users = readNames("/etc/passwd")
	n.groups = readNames("/etc/group")
}

// readNames reads lines of the form name:password:id… The first name of an id wins.
func readNames(path string) map[uint32]string {
	names := map[uint32]string{}
	for line := range strings.Lines(confinement.ReadSmall(path)) {
		fields := strings.SplitN(strings.TrimRight(line, "\r\n"), ":", 4)
		if len(fields) < 3 || fields[0] == "" {
			continue
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		if _, ok := names[uint32(id)]; !ok {
			// Without a clone the name would keep its whole line in memory.
			names[uint32(id)] = strings.Clone(fields[0])
		}
	}
	return names
}
