package proc

import (
	"os"
	"strconv"
	"strings"
)

// Mapped reports whether a user namespace's map of ids, such as /proc/self/uid_map, has an id.
func Mapped(file string, id uint32) bool {
	text, _ := os.ReadFile(file)
	// Not with fmt, whose scanning alone costs an idle agent 20 KiB.
	for line := range strings.Lines(string(text)) {
		var n [3]uint64 // first id inside, outside, how many
		field := 0
		for word := range strings.FieldsSeq(line) {
			if field < len(n) {
				n[field], _ = strconv.ParseUint(word, 10, 32)
			}
			field++
		}
		if inside, count := n[0], n[2]; field == len(n) && uint64(id) >= inside && uint64(id)-inside < count {
			return true
		}
	}
	return false
}
