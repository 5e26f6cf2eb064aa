package runtime

import "strings"

// CommandLine returns the command as its caller gave it: a command line verbatim, or arguments quoted
// as a shell needs them.
func (x Execution) CommandLine() string {
	if x.Shell && len(x.Command) >= 3 {
		// The script stands after the shell and -c. A batch's case adds what is $0, and its arguments.
		return strings.Join(append([]string{x.Command[2]}, quoteAll(x.Command[min(4, len(x.Command)):])...), " ")
	}
	return strings.Join(quoteAll(x.Command), " ")
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
