package language_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime/language"
)

func TestCommands(t *testing.T) {
	full := language.Program{File: "src/Main.x", BuildArgs: []string{"-b"}, LinkArgs: []string{"-l"}, InterpreterArgs: []string{"-i"}, Args: []string{"a b", "{file}"}}
	for _, test := range []struct {
		id         string
		program    language.Program
		build, run []string
	}{
		{"python3", language.Program{File: "x.py"}, nil, []string{"python3", "x.py"}},
		{"python3", full, nil, []string{"python3", "-i", "src/Main.x", "a b", "{file}"}},
		{"python3", language.Program{File: "-x.py"}, nil, []string{"python3", "./-x.py"}},
		{"c", language.Program{File: "x;y.c"}, []string{"cc", "-O2", "-o", "./x;y.c.out", "x;y.c", "-lm"}, []string{"./x;y.c.out"}},
		{"c", full, []string{"cc", "-O2", "-o", "./src/Main.x.out", "-b", "src/Main.x", "-l", "-lm"}, []string{"./src/Main.x.out", "a b", "{file}"}},
		{"c", language.Program{File: "@x.c"}, []string{"cc", "-O2", "-o", "./@x.c.out", "./@x.c", "-lm"}, []string{"./@x.c.out"}},
		{"c", language.Program{File: "/tmp/x.c"}, []string{"cc", "-O2", "-o", "/tmp/x.c.out", "/tmp/x.c", "-lm"}, []string{"/tmp/x.c.out"}},
		{"java", language.Program{File: "Main.java"}, []string{"javac", "-cp", ".", "-d", ".", "Main.java"}, []string{"java", "-cp", ".", "Main"}},
		{"java", full, []string{"javac", "-cp", "src", "-d", "src", "-b", "src/Main.x"}, []string{"java", "-i", "-cp", "src", "Main", "a b", "{file}"}},
		{"java", language.Program{File: "A.java", Class: "pack.B"}, []string{"javac", "-cp", ".", "-d", ".", "A.java"}, []string{"java", "-cp", ".", "pack.B"}},
		{"pascal", language.Program{File: "x.pas"}, []string{"fpc", "-v0", "-l-", "-o./x.pas.out", "x.pas"}, []string{"./x.pas.out"}},
	} {
		r, _ := language.Default().ByID(test.id)
		if build, run := r.BuildCommand(test.program), r.RunCommand(test.program); !slices.Equal(build, test.build) || !slices.Equal(run, test.run) {
			t.Errorf("%s %s: %q, %q", test.id, test.program.File, build, run)
		}
	}
}

// TestSQLiteReadsFilesOfAnyName has a program that prints what sqlite3 would get.
func TestSQLiteReadsFilesOfAnyName(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"sqlite3": "#!/bin/sh\necho \"$#\" \"$@\"\ncat\n", `it's "$a".sql`: "select 1;\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	r, _ := language.Default().ByID("sql")
	run := r.RunCommand(language.Program{File: `it's "$a".sql`, InterpreterArgs: []string{"-cmd", ".mode box"}})
	command := exec.Command(run[0], run[1:]...)
	command.Dir, command.Env = dir, []string{"PATH=" + dir + ":/usr/bin:/bin"}
	if out, err := command.CombinedOutput(); err != nil || string(out) != "5 -batch -bail -cmd .mode box :memory:\nselect 1;\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestObjectiveCIsNotCPlusPlus: a file of Objective-C++ ends in .mm.
func TestObjectiveCIsNotCPlusPlus(t *testing.T) {
	r, _ := language.Default().ByID("objectivec")
	if file := r.Program("", nil).File; file != "main.m" {
		t.Errorf("its file is %s, want main.m", file)
	}
	if of, _ := language.Default().ByFile("main.m"); of.ID != "octave" {
		t.Errorf("other files .m are of %s, want octave", of.ID)
	}
}

// TestTemplatesDoNotExpandArguments checks that inserted values aren't expanded, and that no
// argument is split, joined or lost.
func TestTemplatesDoNotExpandArguments(t *testing.T) {
	word := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"{file}", "{args}", "{buildArgs}", "", " ", "$(x)", "-x"}))
	rapid.Check(t, func(t *rapid.T) {
		words := func(name string) []string { return rapid.SliceOfN(word, 0, 4).Draw(t, name) }
		p := language.Program{
			File: rapid.StringMatching(`[a-z{}]{1,8}(/[A-Za-z{}]{1,8})?(\.[a-z]{1,3})?`).Draw(t, "file"), BuildArgs: words("build"),
			LinkArgs: words("link"), InterpreterArgs: words("interpreter"), Args: words("args"),
		}
		r := language.Recipe{
			Build: []string{"cc", "{buildArgs}", "{file}", "{linkArgs}", "end"},
			Run:   []string{"run", "{interpreterArgs}", "-o={file}", "{args}"},
		}
		build := slices.Concat([]string{"cc"}, p.BuildArgs, []string{p.File}, p.LinkArgs, []string{"end"})
		run := slices.Concat([]string{"run"}, p.InterpreterArgs, []string{"-o=" + p.File}, p.Args)
		if got := r.BuildCommand(p); !slices.Equal(got, build) {
			t.Fatalf("%q, want %q", got, build)
		}
		if got := r.RunCommand(p); !slices.Equal(got, run) {
			t.Fatalf("%q, want %q", got, run)
		}
	})
}

func FuzzNoFileIsAnOptionOrAnotherCommand(f *testing.F) {
	for _, file := range []string{"x.py", "-c", "@file", "a/../-x", "../x", ".", "", "-/x.c", "{program}"} {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file string) {
		for _, r := range language.Default().All() {
			p := language.Program{File: file}
			build, run := r.BuildCommand(p), r.RunCommand(p)
			if len(build) > 0 && (len(build) != len(r.BuildCommand(language.Program{File: "x"})) || build[0] != r.Build[0]) {
				t.Errorf("%s builds %q by %q", r.ID, file, build)
			}
			if len(run) != len(r.RunCommand(language.Program{File: "x"})) || run[0] != r.Run[0] && !strings.Contains(run[0], "/") {
				t.Errorf("%s runs %q by %q", r.ID, file, run)
			}
			if r.ID == "python3" && (strings.HasPrefix(run[1], "-") || strings.HasPrefix(run[1], "@")) {
				t.Errorf("%q is the option %q", file, run[1])
			}
		}
	})
}

func TestParseVersion(t *testing.T) {
	for id, test := range map[string][2]string{
		"python3": {"Python 3.11.2\n", "3.11.2"},
		"c":       {"cc (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.\n", "12.2.0"},
		"cpp":     {"Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n", "14.0.6"},
		"java":    {"openjdk version \"17.0.9\" 2023-10-17\nOpenJDK Runtime Environment\n", "17.0.9"},
		"nodejs":  {"v22.12.0\n", "22.12.0"},
		"php":     {"PHP 8.2.7 (cli) (built: Jun  9 2023 19:37:27) (NTS)\n", "8.2.7"},
		"pascal":  {"3.2.2\n", "3.2.2"},
		"octave":  {"GNU Octave, version 7.3.0\n", "7.3.0"},
		"go":      {"go version go1.26.1 linux/amd64\n", "1.26.1"},
		"rust":    {"rustc 1.85.0 (4d91de4e4 2025-02-17)\n", "1.85.0"},
		"bash":    {"GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)\n", "5.2.15"},
		"ruby":    {"ruby 3.1.2p20 (2022-04-12 revision 4491ae72ff) [x86_64-linux-gnu]\n", "3.1.2"},
		"perl":    {"5.36.0", "5.36.0"},
		"lua":     {"Lua 5.4.4  Copyright (C) 1994-2022 Lua.org, PUC-Rio\n", "5.4.4"},
		"shell":   {"anything 1.2", ""},
	} {
		r, _ := language.Default().ByID(id)
		if got := r.ParseVersion(test[0]); got != test[1] {
			t.Errorf("%s: %q, want %q", id, got, test[1])
		}
		if got := r.ParseVersion("sh: not found"); got != "" {
			t.Errorf("%s: %q of a failure, want \"\"", id, got)
		}
	}
}

func TestPatternsOfOwnRecipes(t *testing.T) {
	own, _ := language.Of(language.Recipe{ID: "own", VersionPattern: "v(.)"}).ByID("own")
	if got := own.ParseVersion("v1"); got != "1" {
		t.Errorf("got %q, want \"1\"", got)
	}
}
