package runtime

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxCommandLineBytes bounds a command line that a client gives to be shown.
const MaxCommandLineBytes = 4096

// ValidateCommandLine returns INVALID_INPUT for text that can't be shown as a command line.
func ValidateCommandLine(line string) error {
	unprintable := func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }
	if len(line) > MaxCommandLineBytes || !utf8.ValidString(line) || strings.ContainsFunc(line, unprintable) {
		return Invalid("commandLine", "must be at most %d bytes of text, whose only control characters are tabs and line feeds", MaxCommandLineBytes)
	}
	return nil
}

// CommandLine returns the command as its caller gave it: a command line verbatim, or arguments quoted
// as a shell needs them.
func (x Execution) CommandLine() string {
	if x.Line != "" {
		return x.Line
	}
	if x.Shell && len(x.Command) >= 3 {
		// The script stands after the shell and -c. A batch's case adds what is $0, and its arguments.
		return WithArguments(x.Command[2], x.Command[min(4, len(x.Command)):])
	}
	return strings.Join(quoteAll(x.Command), " ")
}

// WithArguments returns a command line with further arguments.
func WithArguments(line string, arguments []string) string {
	return strings.Join(append([]string{line}, quoteAll(arguments)...), " ")
}

func quoteAll(arguments []string) []string {
	quoted := make([]string, len(arguments))
	for i, a := range arguments {
		quoted[i] = quote(a)
	}
	return quoted
}

// quote returns a word that a POSIX shell reads as this argument.
func quote(argument string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r >= 0x80 || strings.ContainsRune("_-+=:,./@%^", r)
	}
	if argument != "" && strings.IndexFunc(argument, func(r rune) bool { return !plain(r) }) < 0 {
		return argument
	}
	return "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
}
