package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// completeCommand is what the completion scripts ask. The words after -- are
// those of the command line, the last as far as it has been typed.
type completeCommand struct {
	// Within bounds what a server may take: somebody has pressed a key and waits. One that is far away needs more.
	Within  time.Duration `hidden:"" env:"ROCKPOOL_COMPLETE_WITHIN" default:"1s"`
	program []string
}

func (c *completeCommand) takeProgram(words []string) { c.program = words }

// Run prints the candidates, one per line, each with a tab and what it is.
// Beside them ":files" asks for names of files, and ":nospace" for no space
// behind the candidate.
func (c *completeCommand) Run(s Streams, k *kong.Kong) error {
	words := c.program
	if len(words) == 0 {
		words = []string{""}
	}
	l := readLine(k.Model.Node, words)
	l.within = c.Within
	for _, candidate := range l.candidates() {
		if candidate.word == "" || !strings.HasPrefix(candidate.word, l.typed) {
			continue
		}
		if _, err := fmt.Fprintf(s.Out, "%s%s\t%s\n", l.before, candidate.word, plain(candidate.help)); err != nil {
			return err
		}
	}
	if l.kind() == "file" {
		_, _ = fmt.Fprintln(s.Out, ":files")
	}
	return nil
}

type candidate struct{ word, help string }

// A line is a command line, understood up to the word that is being typed.
type line struct {
	node       *kong.Node
	flag       *kong.Flag  // whose value is being typed; nil: no flag's
	positional *kong.Value // that is being typed; nil: none
	given      []string    // values of the positional so far, where it takes several
	server     serverFlag
	within     time.Duration // that the server answers, or it completes nothing
	program    bool          // what follows -- is another program's
	before     string        // of the word, what isn't completed: "--env="
	typed      string        // of the word, what is
}

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
				l.node = child
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

// find returns the flag that a word names, of the command or of one above it.
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

// value returns what is being typed the value of.
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

// kind returns what its grammar says of the value, as complete:"…".
func (l line) kind() string {
	if v := l.value(); v != nil && v.Tag != nil {
		return v.Tag.Get("complete")
	}
	return ""
}

func (l line) candidates() []candidate {
	switch v := l.value(); {
	case l.program:
		return nil
	case v != nil && v.Enum != "":
		var all []candidate
		for _, word := range v.EnumSlice() {
			all = append(all, candidate{word, ""})
		}
		return all
	case v != nil && l.kind() != "":
		return slices.DeleteFunc(l.ask(l.kind()), func(c candidate) bool { return l.flag == nil && slices.Contains(l.given, c.word) })
	case l.flag != nil:
		return nil
	case strings.HasPrefix(l.typed, "-"):
		return l.flags()
	default:
		var all []candidate
		for _, child := range l.node.Children {
			if !child.Hidden {
				all = append(all, candidate{child.Name, firstSentence(child.Help)})
			}
		}
		return all
	}
}

func (l line) flags() []candidate {
	var all []candidate
	for _, group := range l.node.AllFlags(true) {
		for _, flag := range group {
			all = append(all, candidate{"--" + flag.Name, firstSentence(flag.Help)})
			if flag.Tag != nil && flag.Tag.Negatable != "" {
				all = append(all, candidate{"--no-" + flag.Name, ""})
			}
		}
	}
	return all
}

func firstSentence(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(first, ".")
}

// ask asks the server for ids. One that can't be asked completes nothing.
func (l line) ask(kind string) []candidate {
	query := map[string]string{
		"environment": `{ environments { id help: image } }`,
		"runner":      `{ runners(first: 1000, states: [CLAIMED, IDLE]) { nodes { id help: environmentId } } }`,
		"execution":   `{ executions(first: 1000) { nodes { id help: environmentId } } }`,
	}[kind]
	if l.server.Server == "" {
		l.server.Server = os.Getenv("ROCKPOOL_SERVER")
	}
	server, err := l.server.client()
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
	if server.Ask(ctx, query, nil, &out) != nil {
		return nil
	}
	var all []candidate
	for _, found := range slices.Concat(out.Environments, out.Runners.Nodes, out.Executions.Nodes) {
		all = append(all, candidate{found.ID, found.Help})
	}
	return all
}
