package runtime

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxCommandLineBytes bounds a command line that a client gives for display.
const MaxCommandLineBytes = 4096

// ValidateCommandLine returns INVALID_INPUT for text that can't be displayed as a command line.
func ValidateCommandLine(line string) error {
	unprintable := func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }
	if len(line) > MaxCommandLineBytes || !utf8.ValidString(line) || strings.ContainsFunc(line, unprintable) {
		return Invalid("commandLine", "must be at most %d bytes of UTF-8 text without control characters except tabs and line feeds", MaxCommandLineBytes)
	}
	return nil
}

// CommandLine returns the command as its caller gave it: a command line verbatim, or arguments quoted
// as a shell needs them.
func (x Execution) CommandLine() string { return x.CommandLineStart(math.MaxInt) }

// CommandLineStart returns at most the first most bytes of CommandLine, in time proportional to most.
func (x Execution) CommandLineStart(most int) string {
	switch {
	case x.Line != "":
		return x.Line[:min(len(x.Line), most)]
	case x.Shell && len(x.Command) >= 3:
		// The script follows the shell and -c. A batch's case adds $0 and its arguments after it.
		return withArguments(x.Command[2], x.Command[min(4, len(x.Command)):], most)
	}
	return withArguments("", x.Command, most)
}

// WithArguments returns a command line with arguments appended, each quoted for a POSIX shell.
func WithArguments(line string, arguments []string) string {
	return withArguments(line, arguments, math.MaxInt)
}

// withArguments appends quoted arguments to beginning, separated by spaces, and cuts the result to
// most bytes.
func withArguments(beginning string, arguments []string, most int) string {
	var line strings.Builder
	line.WriteString(beginning[:min(len(beginning), most)])
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

// quote returns a word that a POSIX shell reads as argument, or at least the word's first most bytes.
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
