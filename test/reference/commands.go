package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// commandName returns a command's words with slashes between them, for example runner/claim.
func commandName(node *kong.Node) string {
	if node.Parent == nil || node.Parent.Type == kong.ApplicationNode {
		return node.Name
	}
	return commandName(node.Parent) + "/" + node.Name
}

func title(node *kong.Node) string {
	return "rockpool " + strings.ReplaceAll(commandName(node), "/", " ")
}

// summary lists all commands.
func (r *Reference) summary() string {
	t := table{head: []string{"command", "what"}}
	for _, name := range r.commands.names {
		node := r.commands.items[name]
		t.add("["+title(node)+"](#"+strings.ReplaceAll(title(node), " ", "-")+")", prose(node.Help))
	}
	return t.String()
}

// sharedFlags has flags that many commands have, each from the first command with it.
func (r *Reference) sharedFlags(names []string) (string, error) {
	var flags []*kong.Flag
	for _, name := range names {
		found := false
		for _, command := range r.commands.names {
			node := r.commands.items[command]
			at := slices.IndexFunc(node.Flags, func(f *kong.Flag) bool { return f.Name == name })
			if command == "serve" || command == "doctor" || at < 0 {
				continue
			}
			r.shared[name], found = node.Flags[at].Help, true
			flags = append(flags, node.Flags[at])
			break
		}
		if !found {
			return "", fmt.Errorf("no command has --%s", name)
		}
	}
	return flagsTable(flags), nil
}

func flagsTable(flags []*kong.Flag) string {
	t := table{head: []string{"flag", "what"}}
	for _, flag := range flags {
		name := "--" + flag.Name
		if !flag.IsBool() {
			name += "=" + strings.Replace(flag.FormatPlaceHolder(), "…,...", "…", 1)
		}
		if flag.Short != 0 {
			name = "-" + string(flag.Short) + ", " + name
		}
		t.add(code(name), prose(kong.DefaultHelpValueFormatter(flag.Value)))
	}
	return t.String()
}

func (r *Reference) command(node *kong.Node) string {
	var out strings.Builder
	fmt.Fprintf(&out, "### %s\n\n%s\n\n%s\n%s\n", title(node), wrap(prose(node.Help), 100), "```text\nrockpool "+node.Summary()+"\n```\n", detail(node.Detail))
	arguments := table{head: []string{"argument", "what"}}
	for _, argument := range node.Positional {
		arguments.add(code(argument.Name), prose(argument.Help))
	}
	fmt.Fprintf(&out, "%s\n", arguments)
	shares := false
	flags := slices.DeleteFunc(slices.Clone(node.Flags), func(f *kong.Flag) bool {
		_, isSetting := r.settings.items[f.Name]
		help, isShared := r.shared[f.Name]
		isShared = isShared && help == f.Help
		shares = shares || isShared
		return f.Hidden || f.Name == "help" || isShared || isSetting && node.Name == "serve"
	})
	fmt.Fprintf(&out, "%s\n", flagsTable(flags))
	if node.Name == "serve" {
		out.WriteString("All [settings](settings.md) are flags, too.\n")
	}
	if shares {
		out.WriteString("Also: [flags of many commands](#flags-of-many-commands).\n")
	}
	return regexp.MustCompile(`\n{3,}`).ReplaceAllString(out.String(), "\n\n")
}

// detail returns a command's long help as Markdown. Indented lines are examples, or exit codes below a
// line that says so.
func detail(text string) string {
	var out strings.Builder
	var examples []string
	exits := false
	flush := func() {
		switch {
		case len(examples) == 0:
		case exits:
			out.WriteString("\n" + exitTable(examples))
		default:
			out.WriteString("\n" + block(examples))
		}
		examples = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if example, is := strings.CutPrefix(line, "    "); is {
			examples = append(examples, example)
			continue
		}
		flush()
		exits = strings.Contains(strings.ToLower(line), "exit code") && strings.HasSuffix(line, ":")
		out.WriteString("\n" + wrap(prose(line), 100) + "\n")
	}
	flush()
	return out.String()
}

// block returns lines as a block of code: commands, which no test runs, or any other text.
func block(lines []string) string {
	language := "text"
	if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "rockpool ") }) {
		language = "sh skip: examples of the help, without what they need"
	}
	return "```" + language + "\n" + strings.Join(lines, "\n") + "\n```\n"
}

func exitTable(lines []string) string {
	t := table{head: []string{"exit code", "when"}}
	for _, line := range lines {
		codes, when, ok := strings.Cut(line, "  ")
		if !ok {
			codes, when, ok = strings.Cut(line, ", ")
		}
		if !ok {
			codes, when = "", line
		}
		t.add(prose(codes), prose(when))
	}
	return t.String()
}

// exitCodes has the exit codes in a command's help.
func (r *Reference) exitCodes(names []string) (string, error) {
	if len(names) != 1 || r.commands.items[names[0]] == nil {
		return "", fmt.Errorf("there is no command %q", names)
	}
	_, after, found := strings.Cut(r.commands.items[names[0]].Detail, "Exit codes")
	if !found {
		return "", fmt.Errorf("the help of %s has no exit codes", names[0])
	}
	var lines []string
	for line := range strings.SplitSeq(after, "\n") {
		if example, is := strings.CutPrefix(line, "    "); is {
			lines = append(lines, example)
		} else if len(lines) > 0 {
			break
		}
	}
	return exitTable(lines), nil
}
