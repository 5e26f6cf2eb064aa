package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2ESearchFiles searches directories in which a program laid traps: links that lead out of the
// runner, and endless trees.
func TestE2ESearchFiles(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	b.Shell(t, runner, `mkdir -p src/lib && echo 'a needle here' >src/lib/a.py && printf 'x\nneedle' >src/b.py && printf 'needle\0' >binary
		ln -s / out; ln -s /etc/passwd passwd.py; ln -s /proc/1/root agent; ln -s .. src/up; mkfifo fifo.py; truncate -s 1T huge.py || true
		d=.; for i in $(seq 150); do d=$d/d; mkdir $d; done; touch deep.py $d/bottom`)
	search := func(arguments string) (out struct {
		Matches []struct {
			File struct{ Path, Type string }
			Line *int
			Text *string
		}
		Limit   *string
		Skipped int
	}) {
		t.Helper()
		var answer struct {
			Runner struct{ SearchFiles json.RawMessage }
		}
		b.Call(t, `query($id: ID!) { runner(id: $id) { searchFiles(`+arguments+`) { matches { file { path type } line text } limit skipped } } }`, object{"id": runner}, &answer)
		if err := json.Unmarshal(answer.Runner.SearchFiles, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	found := search(`containing: "needle"`)
	var got []string
	for _, m := range found.Matches {
		got = append(got, fmt.Sprint(m.File.Path, " ", *m.Line, " ", *m.Text))
	}
	if !slices.Equal(got, []string{"src/b.py 2 needle", "src/lib/a.py 1 a needle here"}) || found.Limit != nil {
		t.Errorf("%q, %v", got, found.Limit)
	}
	if found.Skipped < 1 { // the binary file; and the huge one, if it could be made
		t.Errorf("%d skipped", found.Skipped)
	}
	if deep := search(`name: "bottom"`); len(deep.Matches) != 1 || !strings.HasSuffix(deep.Matches[0].File.Path, "/d/bottom") {
		t.Errorf("%+v", deep)
	}
	got = nil
	for _, m := range search(`name: "*.py"`).Matches {
		got = append(got, m.File.Path+" "+m.File.Type)
	}
	want := []string{"deep.py FILE", "fifo.py OTHER", "huge.py FILE", "passwd.py LINK", "src/b.py FILE", "src/lib/a.py FILE"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if found := search(`containing: "root:"`); len(found.Matches) > 0 {
		t.Errorf("links were followed: %+v", found.Matches)
	}
	if found := search(`path: "src", name: "*", maxMatches: 1`); len(found.Matches) != 1 || found.Limit == nil || *found.Limit != "MATCHES" {
		t.Errorf("%+v", found)
	}
	for arguments, code := range map[string]runtime.Code{
		`path: "/proc", name: "*"`: runtime.CodeFileError, `path: "none", name: "*"`: runtime.CodeFileError, `path: "agent/proc", name: "*"`: runtime.CodeFileError, `name: "["`: runtime.CodeInvalidInput,
	} {
		field := ""
		if code == runtime.CodeInvalidInput {
			field = "name"
		}
		b.Refused(t, `query($id: ID!) { runner(id: $id) { searchFiles(`+arguments+`) { skipped } } }`, object{"id": runner}, code, field)
	}
}

// TestE2EFileChanges: a subscriber sees changes by programs and by clients. After a flood of
// changes it gets LOST, and at the runner's end an error.
func TestE2EFileChanges(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	b.Shell(t, runner, "mkdir watched")
	changes, ended := make(chan client.FileChange, 1<<16), make(chan error, 1)
	go func() {
		ended <- b.FollowFiles(t.Context(), runner, "watched", true, func(c client.FileChange) error {
			changes <- c
			return nil
		})
	}()
	until := func(kind, path string) {
		t.Helper()
		for {
			c := wait.Receive(t, changes, kind+" "+path)
			if string(c.Type) == kind && (c.Path == nil && path == "" || c.Path != nil && *c.Path == path) {
				return
			}
		}
	}
	until("BEGAN", "")
	b.Shell(t, runner, "cd watched; mkdir -p a/b; echo x >a/b/f")
	until("CREATED", "a/b/f")
	b.Shell(t, runner, "echo y >>watched/a/b/f")
	until("CHANGED", "a/b/f")
	b.Call(t, `mutation($id: ID!) { updateFiles(input: {runnerId: $id, write: [{path: "watched/put", text: "x"}]}) { written } }`, object{"id": runner}, nil)
	until("CREATED", "put")
	b.Shell(t, runner, "cd watched; rm -r a; ln -s /etc etc")
	until("REMOVED", "a")
	b.Shell(t, runner, "mkdir flood; cd flood; for i in $(seq 2000); do : >file$i; done; mv ../flood ../watched") // one burst, however slowly the files were made
	until("LOST", "")
	b.Shell(t, runner, "touch watched/last")
	until("CREATED", "last")

	b.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
	var refused *client.Error
	if err := wait.Receive(t, ended, "the end"); !errors.As(err, &refused) || !strings.Contains(fmt.Sprint(err), "RUNNER_GONE") {
		t.Errorf("%v", err)
	}
	for _, test := range []struct{ runner, path, want string }{{runner, "", "RUNNER_GONE"}, {b.Claim(t, "shell"), "none", "FILE_ERROR"}} {
		err := b.FollowFiles(t.Context(), test.runner, test.path, false, func(client.FileChange) error { return errors.New("it watches") })
		if !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
