package files

import (
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
)

// named returns the name of an id, or its number.
func named(names map[uint32]string, id uint32) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// readNames reads lines of the form name:password:id… The first name of an id wins. Without the file
// ids have no names.
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
