package runtime

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Workspace is the directory of a runner that its programs write to, by contract.
const Workspace = "/workspace"

// Home is the home directory of the user of programs. It isn't the workspace, so that caches of
// languages and settings of tools are no files of the program. Every runner has a bounded /tmp.
const Home = "/tmp/home"

// Shell is the program that runs a shell string, given to it as one argument.
const Shell = "/bin/sh"

// SearchPath are the directories with the programs of an image.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// MachinePath are the directories with the programs of [DefaultImage]. The last one is that of Go's own archives.
const MachinePath = SearchPath + ":/usr/local/go/bin"

// Offline are variables with which tools fail in a second and say why where there is no network. Otherwise
// they try again for up to a minute.
var Offline = []Variable{
	{Name: "CARGO_NET_OFFLINE", Value: "true"},
	{Name: "GOPROXY", Value: "off"},
	{Name: "GOTOOLCHAIN", Value: "local"},
	{Name: "NPM_CONFIG_FETCH_RETRIES", Value: "0"},
	{Name: "PIP_RETRIES", Value: "0"},
	{Name: "UV_OFFLINE", Value: "1"},
}

// CommandVariables returns all variables of a command. Rockpool's defaults come first, then the
// image's variables, the environment's and own; later ones win. HOME, USER and LOGNAME override
// the image's. defaults are the names that still have Rockpool's value: where only the agent knows
// the image, the image's value replaces it.
func (e Environment) CommandVariables(privileged, terminal bool, own []Variable) (all, defaults []string) {
	user := cmp.Or(e.Pin.User, "runner")
	if privileged {
		user = "root"
	}
	path := SearchPath
	if e.Image == DefaultImage {
		path = MachinePath
	}
	base := []Variable{
		{Name: "PATH", Value: path},
		{Name: "SHELL", Value: Shell},
		{Name: "LANG", Value: "C.UTF-8"},
		{Name: "PYTHONUNBUFFERED", Value: "1"}, // otherwise a program that a limit ends loses what it printed
		// These libraries would use ptrace and process_vm_readv, which are refused, and say so on stderr.
		{Name: "ASAN_OPTIONS", Value: "detect_leaks=0"},
		{Name: "LSAN_OPTIONS", Value: "detect_leaks=0"},
		{Name: "OMPI_MCA_btl_vader_single_copy_mechanism", Value: "none"},
		{Name: "OMPI_MCA_btl_sm_single_copy_mechanism", Value: "none"},
	}
	if !e.Network.Access && e.Isolation != IsolationNone {
		base = append(base, Offline...)
	}
	who := []Variable{{Name: "HOME", Value: Home}, {Name: "USER", Value: user}, {Name: "LOGNAME", Value: user}}
	if terminal {
		base = append(base, Variable{Name: "TERM", Value: "xterm-256color"})
	}
	at := map[string]int{}
	for i, list := range [][]Variable{base, e.Pin.Variables, who, e.Variables, own} {
		for _, v := range list {
			entry := v.Name + "=" + v.Value
			if i == 0 {
				defaults = append(defaults, v.Name)
			} else {
				// A variable that a later list sets is no longer a default.
				defaults = slices.DeleteFunc(defaults, func(name string) bool { return name == v.Name })
			}
			if i, ok := at[v.Name]; ok {
				all[i] = entry
				continue
			}
			at[v.Name] = len(all)
			all = append(all, entry)
		}
	}
	return all, defaults
}

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
