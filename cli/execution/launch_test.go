package execution

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// listed returns Rockpool's own languages as the API lists them on a server with these environments.
func listed(environments ...string) (all []client.Language) {
	for _, r := range language.Default().All() {
		l := client.Language{Id: r.ID, Name: r.Name, Aliases: r.Aliases, Extensions: r.Extensions, FileName: r.FileName, Build: r.Build, Run: r.Run, Image: r.Image}
		l.Limits = client.LanguageLimits{MemoryMiB: r.Limits.MemoryMiB, Processes: r.Limits.Processes, WorkspaceMiB: r.Limits.WorkspaceMiB, TimeLimit: r.Limits.Seconds}
		for _, id := range r.Environments {
			if l.EnvironmentIds = append(l.EnvironmentIds, string(id)); l.EnvironmentId == nil && slices.Contains(environments, string(id)) {
				l.EnvironmentId = new(string(id))
			}
		}
		all = append(all, l)
	}
	return all
}

func TestLaunch(t *testing.T) {
	script := []byte("#!/usr/bin/perl\n")
	for _, test := range []struct {
		name, environment string
		file              client.FileInput
		want              Launch
	}{
		{"file extension", "10", client.FileInput{Path: "hello.py"}, Launch{"10", nil, []string{"python3", "hello.py", "a b"}, ""}},
		{"file extension before environment", "python", client.FileInput{Path: "x.sh"}, Launch{"python", nil, []string{"sh", "x.sh", "a b"}, ""}},
		{"file extension before #!", "10", client.FileInput{Path: "x.mjs", Base64: script}, Launch{"10", nil, []string{"node", "x.mjs", "a b"}, ""}},
		{"two languages of an extension: the environment's", "objectivec", client.FileInput{Path: "x.m"}, Launch{"objectivec", []string{"gcc", "-O2", "-o", "./x.m.out", "-x", "objective-c", "x.m", "-x", "none", "-lobjc"}, []string{"./x.m.out", "a b"}, ""}},
		{"two languages of an extension: the own one", "java21", client.FileInput{Path: "X.java"}, Launch{"java21", nil, []string{"java", "--source", "21", "X.java", "a b"}, ""}},
		{"two languages of an extension, no environment", "", client.FileInput{Path: "x.m"}, Launch{"octave", nil, []string{"octave-cli", "--norc", "--silent", "x.m", "a b"}, ""}},
		{"#! line", "shell", client.FileInput{Path: "x", Base64: script}, Launch{"shell", nil, []string{"perl", "-M5;$|++", "x", "a b"}, ""}},
		{"#! line, no environment", "", client.FileInput{Path: "x", Base64: []byte("#!/usr/bin/env -S python3.12 -u\n")}, Launch{"python", nil, []string{"python3", "-u", "x", "a b"}, ""}},
		{"#! line with an option", "", client.FileInput{Path: "x", Base64: []byte("#! /bin/sh -e")}, Launch{"shell", nil, []string{"sh", "-e", "x", "a b"}, ""}},
		{"#! line of an unknown program", "shell", client.FileInput{Path: "x", Base64: []byte("#!/opt/own\n")}, Launch{"shell", nil, []string{"./x", "a b"}, ""}},
		{"no extension, no #! line", "python", client.FileInput{Path: "x"}, Launch{"python", nil, []string{"python3", "x", "a b"}, ""}},
		{"file name like an option", "shell", client.FileInput{Path: "-x.py"}, Launch{"shell", nil, []string{"python3", "./-x.py", "a b"}, ""}},
		{"C", "10", client.FileInput{Path: "x;y.c"}, Launch{"10", []string{"cc", "-O2", "-o", "./x;y.c.out", "x;y.c", "-lm"}, []string{"./x;y.c.out", "a b"}, ""}},
		{"Java", "10", client.FileInput{Path: "a/X.java", Base64: []byte("package a; public class Y { public static void main(String[] a) {} }")}, Launch{"10", []string{"javac", "-cp", ".", "-d", ".", "a/Y.java"}, []string{"java", "-cp", ".", "a.Y", "a b"}, "a/Y.java"}},
		{"file extension, no environment", "", client.FileInput{Path: "x.py", Base64: script}, Launch{"python", nil, []string{"python3", "x.py", "a b"}, ""}},
		{"the preferred environment", "", client.FileInput{Path: "x.bash"}, Launch{"shell", nil, []string{"bash", "x.bash", "a b"}, ""}},
	} {
		if test.want.Path == "" {
			test.want.Path = test.file.Path
		}
		java21 := client.Language{Id: "java21", FileName: "Main.java", Run: []string{"java", "--source", "21", "{file}", "{args}"}, EnvironmentIds: []string{"java21"}}
		got, err := LaunchOf(append(listed("python", "shell", "octave"), java21), test.environment, test.file, []string{"a b"})
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v %v", test.name, got, err)
		}
	}
}

func TestLaunchSaysWhatToDo(t *testing.T) {
	for _, test := range []struct{ environment, file, says string }{
		{"10", "x.zig", "after --"},
		{"", "x.zig", "--env"},
		{"", "x", "--env"},
		{"", "x.c", "`rockpool env put c --image gcc`"},
		{"", "x.go", "`rockpool env put go --image golang --memory 1024MiB --processes 256 --workspace 512MiB`"},
	} {
		if got, err := LaunchOf(listed(), test.environment, client.FileInput{Path: test.file}, nil); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s in %q: got %+v %v, want %q", test.file, test.environment, got, err, test.says)
		}
	}
	unknown := client.FileInput{Path: "x", Base64: []byte("#!/opt/own -v\nline 2")}
	if _, err := LaunchOf(listed("python"), "", unknown, nil); err == nil || !strings.Contains(err.Error(), `"#!/opt/own -v"`) || !strings.Contains(err.Error(), "--env") {
		t.Errorf("got %v, want the first line and --env", err)
	}
	languages := listed()
	languages[0].EnvironmentIds = nil
	if _, err := LaunchOf(languages, "", client.FileInput{Path: "x.py"}, nil); err == nil || !strings.Contains(err.Error(), "python3") || !strings.Contains(err.Error(), "--env") {
		t.Errorf("got %v, want python3 and --env", err)
	}
	unserved := UnservedError{language.Recipe{ID: "ruby", Environments: []runtime.EnvironmentID{"ruby"}, Image: "ruby:slim"}}
	if says := unserved.OnPrivate().Error(); !strings.Contains(says, "`rockpool serve`") || !strings.Contains(says, "`rockpool env put ruby --image ruby:slim`") {
		t.Errorf("got %s, want both commands", says)
	}
	unserved.recipe.Image = ""
	if says := unserved.Error(); !strings.Contains(says, "`rockpool env put ruby`") {
		t.Errorf("got %s, want the command without an image", says)
	}
	if says := unserved.OnPrivate().Error(); !strings.Contains(says, "`rockpool serve`") || strings.Contains(says, "env put") {
		t.Errorf("got %s, want `rockpool serve`", says)
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
		got, err := ReadUpload(test.path)
		if err != nil || got.Path != test.want || command.Text(got.Mode) != test.mode || string(got.Base64) != "x\xff" {
			t.Errorf("%s: %+v %v", test.path, got, err)
		}
	}
	for _, path := range []string{"src", "missing", "/dev/null"} {
		if _, err := ReadUpload(path); err == nil {
			t.Errorf("%s was read", path)
		}
	}
}
