package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestHelpHasExamples also checks that the help names every environment variable.
func TestHelpHasExamples(t *testing.T) {
	parser, err := kong.New(&struct{ Commands }{}, kong.Name("rockpool"))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range parser.Model.Leaves(true) {
		var words []string
		for _, word := range strings.Fields(node.FullPath())[1:] {
			if strings.ContainsAny(word, "<[") { // its arguments
				break
			}
			words = append(words, word)
		}
		var out, errs bytes.Buffer
		if code := execute(nil, &out, &errs, slices.Concat(words, []string{"--help"})...); code != 0 {
			t.Errorf("%q: %d %s", words, code, errs.String())
		}
		help, command := out.String(), "rockpool "+strings.Join(words, " ")
		if !slices.ContainsFunc([]string{"\n    ", "$(", "<("}, func(before string) bool { return strings.Contains(help, before+command) }) {
			t.Errorf("no example:\n%s", help)
		}
		for _, flag := range node.Flags {
			for _, name := range flag.Envs {
				if !strings.Contains(help, "$"+name) {
					t.Errorf("%q doesn't name %s", words, name)
				}
			}
		}
		if !strings.Contains(help, "Show this help.") {
			t.Errorf("%q: %s", words, help)
		}
		if strings.Contains(help, "${") {
			t.Errorf("something wasn't filled in: %s", help)
		}
	}
}
