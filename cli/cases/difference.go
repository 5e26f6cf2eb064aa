package cases

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/cli/output"
)

// shown is the number of characters of a line that a difference shows.
const shown = 60

// difference describes the first line in which two outputs differ; "" if they are equal. It ignores
// white space at line ends and empty lines at the end.
func difference(wanted, got []byte) string {
	w, g := trimmed(wanted), trimmed(got)
	for i := range max(len(w), len(g)) {
		switch {
		case i >= len(g):
			return fmt.Sprintf("line %d is missing: %s", i+1, quote(w[i]))
		case i >= len(w):
			return fmt.Sprintf("line %d is unexpected: %s", i+1, quote(g[i]))
		case !bytes.Equal(w[i], g[i]):
			return fmt.Sprintf("line %d is %s, not %s", i+1, quote(g[i]), quote(w[i]))
		}
	}
	return ""
}

// trimmed returns the lines of a text without white space at their ends, and without empty lines at
// its end.
func trimmed(text []byte) [][]byte {
	all := bytes.Split(text, []byte("\n"))
	for i, line := range all {
		all[i] = bytes.TrimRight(line, " \t\r")
	}
	for len(all) > 0 && len(all[len(all)-1]) == 0 {
		all = all[:len(all)-1]
	}
	return all
}

// quote returns a line in quotes for a terminal, cut to its first shown characters.
func quote(line []byte) string {
	text := []rune(strings.ToValidUTF8(string(line), "\uFFFD"))
	if len(text) > shown {
		return fmt.Sprintf("%q…", output.Plain(string(text[:shown])))
	}
	return fmt.Sprintf("%q", output.Plain(string(text)))
}
