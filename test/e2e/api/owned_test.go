package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

// editing is a program that does with an uploaded file what its owner can do.
const editing = `import os
with open("data.csv", "a") as f: f.write("3,4\n")
os.rename("data.csv", "other.csv")
os.chmod("other.csv", 0o600)
print(open("other.csv").read())
os.remove("other.csv")
`

// TestE2EFilesBelongToThePrograms: programs work with files that the API wrote as on their own
// machine: editors, compilers, git and patch change, rename and delete them. Also with
// a loaded interpreter.
func TestE2EFilesBelongToThePrograms(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "owned", "poolSize": 1})
	b.Put(t, object{"id": "owned-warm", "poolSize": 1, "warm": object{"interpreter": "PYTHON"}})
	write := []object{
		{"path": "notes.txt", "text": "one\ntwo\n"}, {"path": "src/a.txt", "text": "a\n"}, {"path": "run.sh", "text": "#!/bin/sh\necho ran\n"},
		{"path": "sub/hello.c", "text": "#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n"},
		{"path": "data.csv", "text": "1,2\n"}, {"path": "edit.py", "text": editing},
		{"path": "fix.patch", "text": "--- notes.txt\n+++ notes.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n"},
	}
	for _, environment := range []string{"owned", "owned-warm"} {
		runner := b.Claim(t, environment)
		for _, test := range []struct{ script, want string }{
			{"sed -i s/one/1/ notes.txt; cat notes.txt", "1\ntwo\n"},
			{"mv notes.txt src/; mv src moved; ls moved", "a.txt\nnotes.txt\n"},
			{"rm notes.txt; rm -r src sub; ls", "data.csv\nedit.py\nfix.patch\nrun.sh\n"},
			{"mkdir src/x; echo x >src/x/y; cat src/x/y", "x\n"},
			{"patch -s <fix.patch; cat notes.txt", "one\nzwei\n"},
			{"chmod +x run.sh; ./run.sh", "ran\n"},
			{"export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git init -q; git add -A; git commit -qm x; git log --format=%s; git status --porcelain", "x\n"},
			{"cd sub; gcc hello.c -o hello; ./hello", "hello\n"},
			{"python3 edit.py", "1,2\n3,4\n\n"},
			{"stat -c '%a %U %n' . src src/a.txt run.sh", "755 runner .\n755 runner src\n644 runner src/a.txt\n644 runner run.sh\n"},
		} {
			b.Call(t, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { failed { path message } } }`,
				object{"in": object{"runnerId": runner, "empty": []string{"."}, "write": write}}, nil)
			got := b.Shell(t, runner, "set -e; "+test.script)
			if got.Outcome != runtime.OutcomeExited || *got.ExitCode != 0 || got.Stream("STDOUT") != test.want {
				t.Errorf("%s: %s:\n got %q %q\nwant %q", environment, test.script, got.Stream("STDOUT"), got.Stream("STDERR"), test.want)
			}
		}
		b.Call(t, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`, object{"in": object{"runnerId": runner, "write": write}}, nil)
		got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "edit.py"}}) // started from the loaded interpreter
		if got.Stream("STDOUT") != "1,2\n3,4\n\n" {
			t.Errorf("%s: python3 edit.py: %q %q", environment, got.Stream("STDOUT"), got.Stream("STDERR"))
		}
	}
}

// TestE2ERunProtectsFiles: a run's files belong to the program, or are read-only for it. Both can be built.
func TestE2ERunProtectsFiles(t *testing.T) {
	b := bed.Open(t)
	for _, protected := range []bool{false, true} {
		in := object{"environmentId": "shell", "protected": protected, "waitFor": 30, "files": []object{{"path": "data", "text": "kept\n"}, {"path": "sub/data", "text": "kept\n"}, {"path": "sub/a.c", "text": "int main(void) { return 0; }\n"}},
			"shell": "cc sub/a.c -o sub/a && sub/a && echo built; for f in data sub/data; do (echo x >>$f) 2>/dev/null && echo changed; rm -f $f 2>/dev/null && echo removed; done; mv sub moved 2>/dev/null && echo moved; echo y >own; cat own"}
		var out struct {
			Run struct{ Execution struct{ ID string } }
		}
		b.Call(t, `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, object{"in": in}, &out)
		want := "built\ny\n"
		if !protected {
			want = "built\n" + strings.Repeat("changed\nremoved\n", 2) + "moved\ny\n"
		}
		if got := b.Await(t, out.Run.Execution.ID); got.Stream("STDOUT") != want {
			t.Errorf("protected %t: %s", protected, fmt.Sprintf("got %q %q, want %q", got.Stream("STDOUT"), got.Stream("STDERR"), want))
		}
	}
}
