package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// completes returns the candidates for a command line.
func completes(t *testing.T, words ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := execute(nil, &out, &errs, append([]string{"__complete", "--"}, words...)...); code != 0 {
		t.Fatalf("%q: %d %s", words, code, errs.String())
	}
	var all []string
	for line := range strings.Lines(out.String()) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		all = append(all, word)
	}
	return all
}

func TestCompletion(t *testing.T) {
	t.Setenv("ROCKPOOL_SERVER", "http://127.0.0.1:1") // nobody there: what it would know is left out
	for _, test := range []struct {
		line      string
		want, not string // words, one of each at least
	}{
		{"", "run env runner exec completion", "__complete"},
		{"ru", "run runner", "env exec"},
		{"env ", "list show put delete", "run"},
		{"env s", "show", "list"},
		{"env list --", "--server --output --json --help", "--pool-size"},
		{"env put x --n", "--network --no-network", "--memory"},
		{"env list -o ", "table json yaml", "list"},
		{"env list --output=j", "--output=json", "--output=yaml"},
		{"env list -o j", "json", "yaml"},
		{"env list -o json ", "", "table json"},
		{"exec ", "list show follow cancel", "run"},
		{"exec list --", "--label --failed --since --limit --command --outcome", ""},
		{"exec list --outcome T", "TIME_LIMIT", "EXITED"},
		{"exec cancel --", "--label --since", "--failed --outcome"},
		{"runner e", "exec", "shell"},
		{"runner exec x --", "--stdin --label --time-limit", ""},
		{"run --env x --l", "--label", ""},
		{"runner list --state C", "CLAIMED CLAIMING", "IDLE"},
		{"run --env x --file ", ":files", "--help"},
		{"run --env x ", ":files", ""},
		{"runner cp ", ":files", ""},
		{"runner cp a ", ":files", ""},
		{"runner cp a b ", "", ":files"},
		{"run --env x -- l", "", ":files --env"},
		{"completion ", "bash zsh", ""},
		{"nonesuch ", "", ":files"},
		{"exec list --nonesuch ", "", ":files"},
		{"env show ", "", ":files"},
	} {
		got := completes(t, strings.Split(test.line, " ")...)
		for _, want := range strings.Fields(test.want) {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %q, want %s", test.line, got, want)
			}
		}
		for _, not := range strings.Fields(test.not) {
			if slices.Contains(got, not) {
				t.Errorf("%q: %q, don't want %s", test.line, got, not)
			}
		}
	}
	if got := completes(t); !slices.Contains(got, "run") {
		t.Errorf("no words at all: %q", got)
	}
}
