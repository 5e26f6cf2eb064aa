package pages

import (
	"regexp"
	"strings"
)

// Missing compares what a page shows with what was printed. It returns the first shown line that isn't
// printed after the ones before it; "" if all are. In a shown line … stands for any text. A line … stands
// for any lines. Lines are compared whole. White space counts as one space, since the columns of a table
// depend on its content.
func Missing(shown, printed string) string {
	rest := strings.Split(printed, "\n")
	for line := range strings.Lines(shown) {
		line = normal(line)
		if line == "" || line == "…" {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
		at := 0
		for at < len(rest) && !pattern.MatchString(normal(rest[at])) {
			at++
		}
		if at == len(rest) {
			return line
		}
		rest = rest[at+1:]
	}
	return ""
}

func normal(line string) string { return strings.Join(strings.Fields(line), " ") }
