package attack

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// names matches a name for a word in a text of the corpus.
var names = regexp.MustCompile(`\{[a-zA-Z]\w*\}`)

func TestEachNameInTheCorpusHasAWord(t *testing.T) {
	known := []string{"{secret}", "{port}", "{abstract}", "{hostname}", "{uptime}", "{share}", "{reads}", "{runner}", "{other4}", "{other6}"}
	for _, a := range Corpus() {
		texts := []string{a.Name, a.Tries, a.Defence, a.Held, a.Never, a.GVisor}
		for _, s := range a.Steps {
			texts = append(texts, s.script, s.path, s.prober, strings.Join(s.command, " "))
			if s.kind != posts { // GraphQL has braces
				texts = append(texts, s.text)
			}
		}
		for _, text := range texts {
			for _, name := range names.FindAllString(text, -1) {
				if !slices.Contains(known, name) {
					t.Errorf("%s: %s has no word in %.200q", a.Name, name, text)
				}
			}
		}
		for _, pattern := range []string{a.Held, a.Never, a.GVisor} {
			if _, err := regexp.Compile(pattern); err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
		}
		for _, tier := range a.Tiers {
			if tier != runtime.IsolationNamespaces {
				t.Errorf("%s: the tier is %s, want %s", a.Name, tier, runtime.IsolationNamespaces)
			}
		}
	}
}

func TestAskContactsEachAddressOfAList(t *testing.T) {
	a := Attack{Held: "{{others}}", Steps: []Step{{prober: "ask tcp/{public4} udp/{two} tcp/::1 tcp/{public4}:22"}}}
	a = a.replaced(map[string]string{"two": "10.0.0.1,10.0.0.2", "public4": "20.0.0.2"}).resolved()
	got, want := fmt.Sprint(a.Steps[0].command[1:]), "[ask tcp/20.0.0.2:7777 udp/10.0.0.1:7777 udp/10.0.0.2:7777 tcp/[::1]:7777 tcp/20.0.0.2:22]"
	if got != want || a.Held != "{4}" {
		t.Errorf("got %s and %s, want %s and {4}", got, a.Held, want)
	}
}
