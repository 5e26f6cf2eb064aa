package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
)

func TestLaunch(t *testing.T) {
	script := []byte("#!/usr/bin/perl\n")
	for _, test := range []struct {
		name, environment string
		file              client.FileInput
		want              []string // nil: nobody can tell
		line              string
	}{
		{"by ending", "10", client.FileInput{Path: "hello.py"}, []string{"python3", "hello.py", "a b"}, ""},
		{"ending before environment", "python", client.FileInput{Path: "x.sh"}, []string{"sh", "x.sh", "a b"}, ""},
		{"ending before #!", "10", client.FileInput{Path: "x.mjs", Base64: script}, []string{"node", "x.mjs", "a b"}, ""},
		{"by #! line", "shell", client.FileInput{Path: "x", Base64: script}, []string{"./x", "a b"}, ""},
		{"by environment", "python", client.FileInput{Path: "x"}, []string{"python3", "x", "a b"}, ""},
		{"C", "c", client.FileInput{Path: "x;y.c"}, []string{"sh", "-c", compileAndRun, "sh", "x;y.c", "a b"}, "'x;y.c' 'a b'"},
		{"not an option", "shell", client.FileInput{Path: "-x.py"}, []string{"python3", "./-x.py", "a b"}, ""},
		{"nobody knows", "10", client.FileInput{Path: "x.rb"}, nil, ""},
	} {
		got, line, err := launch(test.environment, test.file, []string{"a b"})
		if !slices.Equal(got, test.want) || line != test.line || (err == nil) != (test.want != nil) {
			t.Errorf("%s: %q %q %v", test.name, got, line, err)
		}
	}
}

// No name of a file is taken for a part of the script.
func TestCompileScriptRunsNothingOfAName(t *testing.T) {
	dir := t.TempDir()
	name := `$(touch pwned);"'` + "`touch pwned`\n.c"
	source := "#include <stdio.h>\nint main(int n, char **v) { printf(\"%d %s\", n, v[1]); return 3; }\n"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	script := strings.ReplaceAll(compileAndRun, "/tmp/a.out", "./a.out")
	run := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", name, "a b")
	run.Dir = dir
	var errs bytes.Buffer
	run.Stderr = &errs
	out, _ := run.Output()
	if string(out) != "2 a b" || run.ProcessState.ExitCode() != 3 {
		t.Errorf("%q, exit %d, %s", out, run.ProcessState.ExitCode(), errs.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
		t.Error("the name of a file ran a command")
	}
}

func TestReadUpload(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("src", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"src/plain": 0o600, "src/tool": 0o700} {
		if err := os.WriteFile(name, []byte("x\xff"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ path, want, mode string }{
		{"src/plain", "src/plain", ""}, {"./src/../src/tool", "src/tool", "0755"},
		{filepath.Join(dir, "src/plain"), "plain", ""}, {"../" + filepath.Base(dir) + "/src/plain", "plain", ""},
	} {
		got, err := readUpload(test.path)
		if err != nil || got.Path != test.want || text(got.Mode) != test.mode || string(got.Base64) != "x\xff" {
			t.Errorf("%s: %+v %v", test.path, got, err)
		}
	}
	for _, path := range []string{"src", "missing", "/dev/null"} {
		if _, err := readUpload(path); err == nil {
			t.Errorf("%s was read", path)
		}
	}
}
