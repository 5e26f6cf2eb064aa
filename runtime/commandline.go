package runtime

import (
	"math"
	"strings"
)

// CommandLine returns the command as its caller gave it: a command line verbatim, or arguments quoted
// as a shell needs them.
func (x Execution) CommandLine() string { return x.CommandLineStart(math.MaxInt) }

// CommandLineStart returns the first bytes of CommandLine, at most so many. It takes the time of these.
func (x Execution) CommandLineStart(most int) string {
	var line strings.Builder
	arguments := x.Command
	if x.Shell && len(x.Command) >= 3 {
		// The script stands after the shell and -c. A batch's case adds what is $0, and its arguments.
		line.WriteString(x.Command[2][:min(len(x.Command[2]), most)])
		arguments = x.Command[min(4, len(x.Command)):]
	}
	for _, a := range arguments {
		if line.Len() >= most {
			break
		}
		if line.Len() > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(quote(a, most))
	}
	return line.String()[:min(line.Len(), most)]
}

// quote returns a word that a POSIX shell reads as this argument, or at least the first bytes of it.
func quote(argument string, most int) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r >= 0x80 || strings.ContainsRune("_-+=:,./@%^", r)
	}
	beginning := argument[:min(len(argument), most)]
	if argument != "" && strings.IndexFunc(argument, func(r rune) bool { return !plain(r) }) < 0 {
		return beginning
	}
	return "'" + strings.ReplaceAll(beginning, "'", `'\''`) + "'"
}
