package main

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

func TestAPrivateServerHasAnEnvironmentForTheLanguageOfTheFile(t *testing.T) {
	recipes := language.Of(
		language.Recipe{ID: "own", Extensions: []string{".own"}, Build: []string{"cat"}, Run: []string{"{program}"}, Environments: []runtime.EnvironmentID{"first", "second"},
			Limits: language.Limits{MemoryMiB: 700, Seconds: 9}},
		language.Recipe{ID: "served", Extensions: []string{".served"}, Run: []string{"cat"}, Environments: []runtime.EnvironmentID{"other", "shell"}},
		language.Recipe{ID: "built", Extensions: []string{".built"}, Build: []string{"nonesuch"}, Run: []string{"cat"}, Environments: []runtime.EnvironmentID{"built"}},
		language.Recipe{ID: "run", Extensions: []string{".run"}, Run: []string{"nonesuch"}, Environments: []runtime.EnvironmentID{"run"}},
		language.Recipe{ID: "nowhere", Extensions: []string{".nowhere"}, Run: []string{"cat"}},
	)
	for _, test := range []struct{ id, file, want string }{
		{"", "x.own", "first"}, {"second", "x", "second"}, {"shell", "x.own", ""}, {"", "x.served", ""}, {"other", "x.served", "other"},
		{"", "x.built", ""}, {"", "x.run", ""}, {"", "x.nowhere", ""}, {"", "x", ""},
	} {
		made, _ := fromRecipe(runtime.EnvironmentID(test.id), test.file, recipes, []runtime.EnvironmentID{"shell"})
		if string(made.ID) != test.want {
			t.Errorf("%s in %q: %q, want %q", test.file, test.id, made.ID, test.want)
		}
	}
	inputs, err := privateEnvironments("first", "", recipes)
	if err != nil || len(inputs) != 1 {
		t.Fatal(inputs, err)
	}
	if in := inputs[0]; in.ID != "first" || *in.PoolSize != 0 || *in.MemoryMiB != 700 || *in.DefaultTimeLimit != 9 || in.Processes != nil || in.WorkspaceMiB != nil || in.Image != nil {
		t.Errorf("%+v", in)
	}
	if _, err := privateEnvironments("run", "", recipes); err == nil || !strings.Contains(err.Error(), `"run"`) {
		t.Errorf("got %v, want an error that names run", err)
	}
	mistyped := unknownOnPrivate("frist", []runtime.EnvironmentID{"shell", "python"}, recipes)
	if says := mistyped.Error(); !strings.Contains(says, `"frist"`) || !strings.Contains(says, "shell, python, first") || strings.Contains(says, "python?") {
		t.Errorf("got %s, want the environments without a suggestion", says)
	}
	mistyped = unknownOnPrivate("pyton", []runtime.EnvironmentID{"shell", "python"}, recipes)
	if says := mistyped.Error(); !strings.Contains(says, "shell, python, first") || !strings.Contains(says, "python?") {
		t.Errorf("got %s, want the environments and the suggestion python", says)
	}
	if inputs, err := privateEnvironments("", "x.own", recipes); err != nil || inputs[len(inputs)-1].ID != "first" {
		t.Errorf("%v %v", inputs, err)
	}
}
