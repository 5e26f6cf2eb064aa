package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config/quantity"
	"github.com/rockpool/rockpool/test/pages"
)

// placeholder matches a word of a command line that stands for others.
var placeholder = regexp.MustCompile(`^\[|…|^[A-Z]{2}|^\$`)

// checkCommand returns an error if a command line doesn't exist.
func checkCommand(node *kong.Node, arguments []string) error {
	for i := 0; i < len(arguments); i++ {
		word := arguments[i]
		switch name, _, hasValue := strings.Cut(word, "="); {
		case word == "--" || placeholder.MatchString(word):
			return nil
		case word == "--help" || word == "-h":
		case strings.HasPrefix(word, "-") && word != "-":
			flag := findFlag(node, name)
			if flag == nil {
				return fmt.Errorf("%s has no flag %s", node.FullPath(), name)
			}
			if !hasValue && !flag.IsBool() && !flag.IsCounter() {
				i++
			}
		case len(node.Children) > 0:
			child := findCommand(node, word)
			if child == nil {
				return fmt.Errorf("%s has no command %s", node.FullPath(), word)
			}
			if child.Name == "help" {
				return checkCommand(node, arguments[i+1:])
			}
			node = child
		}
	}
	return nil
}

func findCommand(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func findFlag(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, flag := range group {
			if name == "--"+flag.Name || flag.Short != 0 && name == "-"+string(flag.Short) || flag.Tag.Negatable != "" && name == "--no-"+flag.Name {
				return flag
			}
		}
	}
	return nil
}

func grammar(t *testing.T) *kong.Node {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Name("rockpool"), kong.Vars{"version": "x"}, kong.Bind(command.Streams{}), quantity.Flags())
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Node
}

// targetsOf returns the phony targets of the Makefile.
func targetsOf(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, targets, _ := strings.Cut(string(makefile), "\n.PHONY: ")
	targets, _, _ = strings.Cut(targets, "\n")
	return strings.Fields(targets)
}

// checkTargets returns an error if make lacks one of the targets.
func checkTargets(targets, arguments []string) error {
	for _, word := range arguments {
		switch {
		case word == "-C": // it is of another Makefile
			return nil
		case strings.HasPrefix(word, "-"), strings.Contains(word, "="), placeholder.MatchString(word), slices.Contains(targets, word):
		default:
			return fmt.Errorf("the Makefile has no target %s", word)
		}
	}
	return nil
}

func TestPagesNameCommandsAndSettingsThatExist(t *testing.T) {
	root, targets, tree := grammar(t), targetsOf(t), os.DirFS(".")
	names, err := pages.Documented(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		page, err := pages.Read(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		scripts := slices.DeleteFunc(page.Code, func(c pages.Located) bool { return strings.HasPrefix(c.Text, "rockpool is ready") }) // the server's first line
		for _, b := range page.Blocks {
			switch {
			case b.Language == "sh":
				scripts = append(scripts, b.Located)
			case b.Kind == "settings" && b.Skip == "":
				if _, err := parseServe(t, "--config", writeSettings(t, b.Text)); err != nil {
					t.Errorf("%s:%d: %v", name, b.Line, err)
				}
			}
		}
		for _, script := range scripts {
			for _, arguments := range pages.Arguments("make", script.Text) {
				if err := checkTargets(targets, arguments); err != nil {
					t.Errorf("%s:%d: %v: make %s", name, script.Line, err, strings.Join(arguments, " "))
				}
			}
			for _, arguments := range pages.Arguments("rockpool", script.Text) {
				if err := checkCommand(root, arguments); err != nil {
					t.Errorf("%s:%d: %v: rockpool %s", name, script.Line, err, strings.Join(arguments, " "))
				}
			}
		}
	}
}

func TestCommandLinesThatDoNotExistAreFound(t *testing.T) {
	root := grammar(t)
	for line, fine := range map[string]bool{
		"run --env python --tty -- python3 -i": true, "run --env list x": true, "run --envv python": false, "runs x": false, "exec list --failed --since 1h": true,
		"exec lists": false, "env put -f x.yaml": true, "env put -y x": false, "help exec list": true, "help exec lists": false, "--version": true,
		"COMMAND --help": true, "runner … --nonesuch": true, "serve --data=x --nonesuch=y": false, "exec follow x --no-from-start": true,
	} {
		if err := checkCommand(root, strings.Fields(line)); (err == nil) != fine {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestTargetsThatDoNotExistAreFound(t *testing.T) {
	targets := targetsOf(t)
	for line, fine := range map[string]bool{
		"run": true, "": true, "bench BENCHFLAGS=x": true, "-j4 build": true, "build instal": false, "-C project any": true, "test-…": true,
	} {
		if err := checkTargets(targets, strings.Fields(line)); (err == nil) != fine {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestMakeRunUsesTheFlagsOfThePagesTests: package test/e2e/pages starts its server with the flags
// of make run.
func TestMakeRunUsesTheFlagsOfThePagesTests(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(makefile), "\nrun: as-root build ")
	_, recipe, _ = strings.Cut(recipe, "\n")
	if line, _, _ := strings.Cut(recipe, "\n"); line != "\t@exec bin/rockpool serve --data $(DATA) --on-stop remove" {
		t.Errorf("make run does %q", line)
	}
}
