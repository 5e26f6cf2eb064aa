package cli

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/config/quantity"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh" help:"bash or zsh."`
}

func (c *completionCommand) Run(s command.Streams) error {
	if _, err := io.WriteString(s.Out, Script(c.Shell)); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	return nil
}

// completeCommand answers the completion scripts. The words after -- are those of the command line;
// the last one is still being typed.
type completeCommand struct {
	// Within bounds the wait for the server, since the user has pressed a key. Distant servers need more.
	Within  time.Duration `hidden:"" env:"ROCKPOOL_COMPLETE_WITHIN" default:"1s"`
	program []string
}

func (c *completeCommand) takeProgram(words []string) { c.program = words }

// Run prints one candidate per line, each followed by a tab and its description. A line ":files"
// makes the script complete file names too.
func (c *completeCommand) Run(s command.Streams, k *kong.Kong) error {
	candidates, files := Complete(k.Model.Node, c.program, c.Within)
	for _, candidate := range candidates {
		if _, err := fmt.Fprintf(s.Out, "%s\t%s\n", candidate.Word, output.Plain(candidate.Help)); err != nil {
			return err
		}
	}
	if files {
		_, _ = fmt.Fprintln(s.Out, ":files")
	}
	return nil
}

//go:embed completion.bash
var bash string

//go:embed completion.zsh
var zsh string

// Script returns the completion script for bash or zsh. The script calls rockpool for every
// completion, so it never becomes outdated.
func Script(shell string) string { return map[string]string{"bash": bash, "zsh": zsh}[shell] }

// A Candidate is a possible completion and its description.
type Candidate struct{ Word, Help string }

// Complete returns the candidates for the last of words, which is still being typed. If the server
// doesn't respond within the given time, its ids are missing. files reports whether file names
// complete the word too.
func Complete(root *kong.Node, words []string, within time.Duration) (all []Candidate, files bool) {
	if len(words) == 0 {
		words = []string{""}
	}
	l := readLine(root, words)
	l.within = within
	for _, candidate := range l.candidates() {
		if candidate.Word != "" && strings.HasPrefix(candidate.Word, l.typed) {
			all = append(all, Candidate{l.before + candidate.Word, candidate.Help})
		}
	}
	return all, l.kind() == "file"
}

// A line is a command line, parsed up to the word that is being typed.
type line struct {
	node       *kong.Node
	flag       *kong.Flag  // whose value is being typed, or nil
	positional *kong.Value // which is being typed, or nil
	given      []string    // values of a repeated positional so far
	server     command.Flags
	within     time.Duration // the server must respond within this time
	program    bool          // the words after -- belong to another program
	before     string        // the part of the word that stays: "--env="
	typed      string        // the part of the word to complete
}

// readLine parses the words, of which the last is being typed. It tolerates incomplete and wrong
// command lines, which kong's own parser refuses.
func readLine(root *kong.Node, words []string) line {
	l := line{node: root}
	last := len(words) - 1
	positionals := 0
	for i, word := range words[:last] {
		switch name, _, hasValue := strings.Cut(word, "="); {
		case word == "--":
			l.program = true
			return l
		case l.flag != nil:
			if l.flag.Name == "server" {
				l.server.Server = word
			}
			l.flag = nil
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if flag := l.find(name); flag != nil && !hasValue && !flag.IsBool() && !flag.IsCounter() {
				l.flag = flag
			}
			if value, ok := strings.CutPrefix(words[i], "--server="); ok {
				l.server.Server = value
			}
		default:
			if child := childNamed(l.node, word); child != nil {
				if l.node != root || word != "help" { // help is followed by a command
					l.node = child
				}
				continue
			}
			l.given = append(l.given, word)
			positionals++
		}
	}
	l.typed = words[last]
	if name, value, ok := strings.Cut(l.typed, "="); ok && l.flag == nil && strings.HasPrefix(name, "--") {
		l.flag, l.before, l.typed = l.find(name), name+"=", value
	}
	if all := l.node.Positional; l.flag == nil && len(all) > 0 {
		if positionals < len(all) {
			l.positional = all[positionals]
		} else if tail := all[len(all)-1]; tail.IsCumulative() {
			l.positional = tail
		}
	}
	return l
}

func childNamed(node *kong.Node, word string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == word {
			return child
		}
	}
	return nil
}

// find returns the flag that a word names, of the command or of one of its parents.
func (l line) find(word string) *kong.Flag {
	for _, group := range l.node.AllFlags(false) {
		for _, flag := range group {
			if word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short) {
				return flag
			}
		}
	}
	return nil
}

// value returns the flag or positional whose value is being typed, or nil.
func (l line) value() *kong.Value {
	switch {
	case l.program:
		return nil
	case l.flag != nil:
		return l.flag.Value
	case strings.HasPrefix(l.typed, "-"):
		return nil
	default:
		return l.positional
	}
}

// kind returns the value's complete tag in the grammar.
func (l line) kind() string {
	if v := l.value(); v != nil && v.Tag != nil {
		return v.Tag.Get("complete")
	}
	return ""
}

// candidates returns everything that could follow, also what doesn't begin with the typed part.
func (l line) candidates() []Candidate {
	switch v := l.value(); {
	case l.program:
		return nil
	case v != nil && v.Enum != "":
		var all []Candidate
		for _, word := range v.EnumSlice() {
			all = append(all, Candidate{word, ""})
		}
		return all
	case v != nil && l.kind() != "":
		return slices.DeleteFunc(l.fetch(l.kind()), func(c Candidate) bool { return l.flag == nil && slices.Contains(l.given, c.Word) })
	case l.flag != nil:
		var all []Candidate
		for _, word := range quantity.Examples(v) {
			all = append(all, Candidate{word, quantity.Form(v)})
		}
		return all
	case strings.HasPrefix(l.typed, "-"):
		return l.flags()
	default:
		var all []Candidate
		for _, child := range l.node.Children {
			if !child.Hidden {
				all = append(all, Candidate{child.Name, firstSentence(child.Help)})
			}
		}
		return all
	}
}

// flags returns the visible flags of the command and its parents, with the negated forms.
func (l line) flags() []Candidate {
	var all []Candidate
	for _, group := range l.node.AllFlags(true) {
		for _, flag := range group {
			all = append(all, Candidate{"--" + flag.Name, firstSentence(flag.Help)})
			if flag.Tag != nil && flag.Tag.Negatable != "" {
				all = append(all, Candidate{"--no-" + flag.Name, ""})
			}
		}
	}
	return all
}

// firstSentence returns the first sentence of a help text without its full stop.
func firstSentence(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(first, ".")
}

// fetch requests ids from the server; nil if that fails.
func (l line) fetch(kind string) []Candidate {
	query := map[string]string{
		"environment": `{ environments { id help: image } }`,
		"runner":      `{ runners(first: 1000, states: [CLAIMED, IDLE]) { nodes { id help: environmentId } } }`,
		"execution":   `{ executions(first: 1000, newestFirst: true) { nodes { id help: environmentId } } }`,
	}[kind]
	if l.server.Server == "" {
		l.server.Server = os.Getenv("ROCKPOOL_SERVER")
	}
	server, err := l.server.Client()
	if query == "" || err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.within)
	defer cancel()
	type id struct{ ID, Help string }
	var out struct {
		Environments []id
		Runners      struct{ Nodes []id }
		Executions   struct{ Nodes []id }
	}
	if server.Do(ctx, query, nil, &out) != nil {
		return nil
	}
	var all []Candidate
	for _, found := range slices.Concat(out.Environments, out.Runners.Nodes, out.Executions.Nodes) {
		all = append(all, Candidate{found.ID, found.Help})
	}
	return all
}
