package language_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

func load(t testing.TB, text string) (*language.Set, error) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return language.Load(file)
}

func TestLoadChangesTheFieldsThatItNames(t *testing.T) {
	set, err := load(t, `
languages:
  - id: python3
    environments: [school]
    limits: {memoryMiB: 1000}
  - id: zig
    extensions: [.zig]
    fileName: main.zig
    run: [zig, run, "{file}", --, "{args}"]
`)
	if err != nil {
		t.Fatal(err)
	}
	was, _ := language.Default().ByID("python3")
	got, _ := set.ByID("py")
	if !slices.Equal(got.Environments, []runtime.EnvironmentID{"school"}) || got.Limits.MemoryMiB != 1000 || !slices.Equal(got.Run, was.Run) || got.FileName != was.FileName {
		t.Errorf("%+v", got)
	}
	zig, found := set.ByFile("x.zig")
	if !found || zig.Name != "zig" || zig.ID != "zig" || len(set.All()) != len(language.Default().All())+1 {
		t.Errorf("%+v", zig)
	}
	if again, _ := language.Default().ByID("python3"); slices.Contains(again.Environments, "school") {
		t.Error("a file changed the default set")
	}
}

func TestAnEmptyFileIsTheDefaultSet(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "languages:\n", "languages: []\n"} {
		if set, err := load(t, text); err != nil || len(set.All()) != len(language.Default().All()) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestErrorsNameFileLanguageAndField(t *testing.T) {
	whole := "id: zig\n    fileName: a.zig\n    "
	for _, test := range []struct{ text, language, field string }{
		{whole + "build: [zig]", "zig", "run"},
		{whole + "run: [" + strings.Repeat("a,", 65) + "]", "zig", "run"},
		{whole + "run: [zig]\n    environments: [" + strings.Repeat("a,", 65) + "]", "zig", "environments"},
		{whole + `run: [zig, "{files}"]`, "zig", "run"},
		{whole + `run: [zig, "-x{args}"]`, "zig", "run"},
		{whole + `run: ["{args}"]`, "zig", "run"},
		{whole + `run: [""]`, "zig", "run"},
		{whole + `run: ["a\0"]`, "zig", "run"},
		{whole + "run: [zig]\n    version: [zig, version]", "zig", "versionPattern"},
		{whole + "run: [zig]\n    version: [zig, '{file}']\n    versionPattern: (.)", "zig", "version"},
		{whole + "run: [zig]\n    versionPattern: '('", "zig", "versionPattern"},
		{whole + "run: [zig]\n    environments: [-x]", "zig", "environments"},
		{whole + "run: [zig]\n    debian: [-x]", "zig", "debian"},
		{whole + "run: [zig]\n    cache: {make: [\"{file}\"]}", "zig", "cache.make"},
		{whole + "run: [zig]\n    cache: {variables: [A]}", "zig", "cache.variables"},
		{whole + "run: [zig]\n    extensions: [zig]", "zig", "extensions"},
		{whole + "run: [zig]\n    extensions: [.py]", "zig", "extensions"},
		{whole + "run: [zig]\n    aliases: [py]", "zig", "aliases"},
		{whole + "run: [zig]\n    aliases: [Z]", "zig", "aliases"},
		{whole + "run: [zig]\n    name: ''", "zig", "name"},
		{whole + "run: [zig]\n    limits: {memoryMiB: -1}", "zig", "limits.memoryMiB"},
		{whole + "run: [zig]\n    limits: {seconds: 86401}", "zig", "limits.seconds"},
		{"id: python3\n    fileName: a/b.py", "python3", "fileName"},
		{"id: python3\n  - id: python3", "python3", "id"},
		{whole + "run: [zig]\n    aliases: [z, z]", "zig", "aliases contains z twice"},
		{whole + "run: [zig]\n    aliases: [zig]", "zig", "aliases contains zig, which is the id"},
		{whole + "run: [zig]\n    extensions: [.zig, .zig]", "zig", "extensions contains .zig twice"},
		{"id: ''", "", "id"},
		{"name: Zig", "", "id"},
		{"id: python3\n    colour: red", "", ""},
		{"id: python3\n    run: python3", "", ""},
	} {
		_, err := load(t, "languages:\n  - "+test.text+"\n")
		var wrong *language.Error
		field, _, _ := strings.Cut(test.field, " ")
		if !errors.As(err, &wrong) || filepath.Base(wrong.File) != "mine.yaml" || wrong.Language != test.language || wrong.Field != field {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), wrong.File+": ") || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: %v", test.text, err)
		}
	}
	if _, err := language.Load(filepath.Join(t.TempDir(), "absent.yaml")); !errors.As(err, new(*language.Error)) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestASetIsBounded(t *testing.T) {
	text, own := "languages:\n", len(language.Default().All())
	for i := own; i < 256; i++ {
		text += fmt.Sprintf("  - {id: l%d, fileName: a, run: [a]}\n", i)
	}
	if _, err := load(t, text); err != nil {
		t.Error(err)
	}
	if _, err := load(t, text+"  - {id: more, fileName: a, run: [a]}\n"); err == nil || !strings.Contains(err.Error(), "256") {
		t.Errorf("one more: got %v, want the limit of 256", err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("languages:\n  - id: zig\n    fileName: a.zig\n    run: [zig, '{file}']\n")
	f.Add("languages: [{id: c, build: [], run: [tcc, -run, '{file}', '{args}']}]")
	f.Add("languages: {a: b}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := load(t, text)
		if err != nil {
			if !errors.As(err, new(*language.Error)) {
				t.Errorf("an error without a type: %v", err)
			}
			return
		}
		for _, r := range set.All() {
			if wrong := r.Check(); wrong != nil {
				t.Errorf("%s was loaded, and is wrong: %v", r.ID, wrong)
			}
			if len(r.RunCommand(language.Program{File: "x"})) == 0 {
				t.Errorf("%s can't be run", r.ID)
			}
		}
	})
}
