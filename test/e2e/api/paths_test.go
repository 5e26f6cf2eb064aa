package api

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/paths"
)

// An entry is what a list and a file query return.
type entry struct {
	Path, Type  string
	Size        int
	Mode        string
	LinkTarget  *string
	DownloadURL *string
}

const entryFields = `{ path type size mode linkTarget downloadUrl }`

// file returns the entry at a path, nil if there is none.
func (w workspace) file(t *testing.T, path string, follow bool) *entry {
	t.Helper()
	var out struct{ Runner struct{ File *entry } }
	w.Call(t, `query($id: ID!, $path: String!, $follow: Boolean) { runner(id: $id) { file(path: $path, followLinks: $follow) `+entryFields+` } }`,
		object{"id": w.runner, "path": path, "follow": follow}, &out)
	return out.Runner.File
}

// names returns the names in the workspace as hexadecimal digits, as a program sees them.
func (w workspace) names(t *testing.T) []string {
	t.Helper()
	listed := w.Shell(t, w.runner, `for f in .* *; do [ -e "$f" ] || [ -L "$f" ] || continue; [ "$f" = . ] || [ "$f" = .. ] || { printf %s "$f" | od -An -tx1 -v | tr -d ' \n'; echo; }; done`)
	names := strings.Fields(listed.Stream("STDOUT"))
	slices.Sort(names)
	return names
}

// TestE2EPathsAreLiteral: a listed path means its own entry in every operation, whatever its bytes.
func TestE2EPathsAreLiteral(t *testing.T) {
	w := openWorkspace(t)
	random := rand.New(rand.NewPCG(1, 2))
	raw := []string{"*", "?", "[a]", "~", "-rf", `a\b`, "$HOME", "inv\xff", "inv\xfe", "\uFFFD", "\uFFFDff", "\xed\xa0\x80", "...", " "}
	const odd = "\xef\xbf\xbd\xff\xfe\x80\xc3\xa9*?-~\\ef0"
	for range 40 {
		name := make([]byte, 1+random.IntN(20))
		for i := range name {
			name[i] = odd[random.IntN(len(odd))]
		}
		raw = append(raw, string(name))
	}
	slices.Sort(raw)
	raw = slices.Compact(raw)
	var write []object
	var want []string
	for _, name := range raw {
		write = append(write, object{"path": paths.Text(name), "text": fmt.Sprintf("in %x", name)})
		want = append(want, hex.EncodeToString([]byte(name)))
	}
	w.update(t, object{"write": write})
	slices.Sort(want)
	if diff := cmp.Diff(want, w.names(t)); diff != "" {
		t.Fatalf("the names differ from the written ones: %s", diff)
	}
	for _, listed := range w.list(t) {
		name, err := paths.Bytes(listed)
		if err != nil {
			t.Fatal(err)
		}
		content := fmt.Sprintf("in %x", name)
		found := w.file(t, "./"+listed, false)
		if found == nil || found.Size != len(content) || found.DownloadURL == nil {
			t.Fatalf("%q: %+v", listed, found)
		}
		if got := downloadFile(t, w.Bed, *found.DownloadURL); string(got) != content {
			t.Errorf("%q: %q", listed, got)
		}
		w.Call(t, `mutation($in: MoveFileInput!) { moveFile(input: $in) { file { path } } }`, object{"in": object{"runnerId": w.runner, "from": listed, "to": listed + " moved"}}, nil)
		if out := w.update(t, object{"delete": []string{listed + " moved", "none/*"}}); len(out.UpdateFiles.Deleted) != 1 {
			t.Errorf("%q: %+v", listed, out)
		}
	} // a deletion of another one would have been found at its turn
	if left := w.names(t); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
	for _, path := range []string{"\uFFFD", "a\uFFFDb", "\uFFFDFF", "\uFFFD61", "dir/"} {
		w.Refused(t, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`, object{"in": object{"runnerId": w.runner, "write": []object{{"path": "ok", "text": ""}, {"path": path, "text": ""}}}}, runtime.CodeInvalidInput, "write.1.path")
	}
}

// TestE2EListsAndQueriesAgree: also about links to nothing, and about deep trees.
func TestE2EListsAndQueriesAgree(t *testing.T) {
	w := openWorkspace(t)
	deep := "deep" + strings.Repeat("/d", 200)
	w.Shell(t, w.runner, `ln -s nowhere lost; echo x >file; ln -s file link; ln -s "$(printf 'to\377')" odd; mkdir -p dir; ln -s dir linked; mkfifo fifo; mkdir -p `+deep)
	var out struct {
		Runner struct{ Files struct{ Nodes []entry } }
	}
	w.Call(t, `query($id: ID!) { runner(id: $id) { files(recursive: true, first: 1000) { nodes `+entryFields+` } } }`, object{"id": w.runner}, &out)
	nodes := out.Runner.Files.Nodes
	if len(nodes) != 7+201 {
		t.Errorf("%d entries are listed", len(nodes))
	}
	for _, listed := range nodes {
		found := w.file(t, listed.Path, false)
		if (listed.DownloadURL == nil) != (found == nil || found.DownloadURL == nil) {
			t.Errorf("%s: the download of %+v and %+v", listed.Path, listed, found)
		}
		listed.DownloadURL = nil
		if found != nil {
			found.DownloadURL = nil
		}
		if diff := cmp.Diff(&listed, found); diff != "" {
			t.Errorf("%s: %s", listed.Path, diff)
		}
	}
	for path, want := range map[string]string{"link": "FILE", "linked": "DIRECTORY", "none/../file": "FILE", "dir//": "DIRECTORY"} {
		if found := w.file(t, path, true); found == nil || found.Type != want {
			t.Errorf("%s: %+v", path, found)
		}
	}
	if found := w.file(t, "lost", true); found != nil {
		t.Errorf("the target of a link to nothing: %+v", found)
	}
	if found := w.file(t, "odd", false); found == nil || found.LinkTarget == nil || *found.LinkTarget != "to\uFFFDff" {
		t.Errorf("a target that isn't UTF-8: %+v", found)
	}
}

// TestE2ETextThatIsNotUnicodeIsRefused: the error names the field.
func TestE2ETextThatIsNotUnicodeIsRefused(t *testing.T) {
	w := openWorkspace(t)
	for body, field := range map[string]string{
		`{"query": "mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }", "variables": {"in": {"runnerId": "` + w.runner + `", "write": [{"path": "a", "text": "\ud800"}]}}}`:   "variables.in.write.0.text",
		`{"query": "mutation { updateFiles(input: {runnerId: \"` + w.runner + `\", write: [{path: \"a\", text: \"x\\ud800\"}]}) { written } }"}`:                                                     "query",
		"{\"query\": \"mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }\", \"variables\": {\"in\": {\"runnerId\": \"" + w.runner + "\", \"delete\": [\"b\", \"inv\xff\"]}}}": "variables.in.delete.1",
	} {
		var out any
		err := w.Post(t.Context(), []byte(body), &out)
		if client.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v, want INVALID_INPUT that names %s", body, err, field)
		}
	}
	if left := w.list(t); len(left) != 0 {
		t.Errorf("written: %q", left)
	}
	var written struct{ UpdateFiles struct{ Written []string } }
	w.Call(t, `mutation { updateFiles(input: {runnerId: "`+w.runner+`", write: [{path: "\uD83D\uDE00", text: "\\ud800"}]}) { written } }`, nil, &written)
	if got := w.list(t); len(got) != 1 || got[0] != "😀" {
		t.Errorf("a pair of surrogates is %q", got)
	}
}
