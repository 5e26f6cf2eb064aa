package languages

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Came is what came of a program.
type Came struct {
	Outcome, Signal, Message, Hint string
	ExitCode                       *int
	Stdout, Stderr                 string
	PeakMiB, Processes             float64 // of the program; -1 means unknown
	CPUMs, WallMs                  float64 // of the build and the program
}

// wrong returns how it differs from what must come; empty means it doesn't.
func (c Came) wrong(want Want) (all []string) {
	wrong := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if outcome := cmp.Or(want.Outcome, "EXITED"); c.Outcome != outcome {
		wrong("outcome %s, want %s", c.Outcome, outcome)
	} else if outcome == "EXITED" && (c.ExitCode == nil || *c.ExitCode != want.Exit) {
		wrong("exit code %s, want %d", shown(c.ExitCode), want.Exit)
	}
	if c.Signal != want.Signal {
		wrong("signal %q, want %q", c.Signal, want.Signal)
	}
	for _, text := range []struct {
		what, got string
		exact     *string
		pattern   string
	}{{"stdout", c.Stdout, want.Stdout, want.StdoutMatches}, {"stderr", c.Stderr, want.Stderr, want.StderrMatches}, {"message", c.Message, nil, want.Message}, {"hint", c.Hint, nil, want.Hint}} {
		if text.exact != nil && text.got != *text.exact {
			wrong("%s %q, want %q", text.what, brief(text.got), brief(*text.exact))
		}
		// Without an expected hint there must be none: a false hint misleads.
		if text.what == "hint" && text.pattern == "" && text.got != "" {
			wrong("hint %q, want none", text.got)
		}
		if !regexp.MustCompile(text.pattern).MatchString(text.got) {
			wrong("%s %q, want a match of %s", text.what, brief(text.got), text.pattern)
		}
	}
	for _, number := range []struct {
		what string
		got  float64
		want *Range
	}{{"peak MiB", c.PeakMiB, want.Peak}, {"processes", c.Processes, want.Processes}, {"CPU ms", c.CPUMs, want.CPU}} {
		if r := number.want; r != nil && (number.got < r[0] || number.got > r[1]) {
			wrong("%s %.2f, want %v to %v", number.what, number.got, r[0], r[1])
		}
	}
	return all
}

func shown(code *int) string {
	if code == nil {
		return "none"
	}
	return strconv.Itoa(*code)
}

// brief returns a text's beginning and end.
func brief(text string) string {
	const most = 600
	if len(text) <= 2*most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " … " + strings.ToValidUTF8(text[len(text)-most:], "")
}
