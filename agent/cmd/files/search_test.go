package files

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// workspace returns the files of a directory with these contents; a name that ends in / is a
// directory.
func workspace(t testing.TB, contents map[string]string) (*Files, string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range contents {
		put(t, filepath.Join(dir, name), content, strings.HasSuffix(name, "/"))
	}
	f, err := New(dir, "", false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(f.root) })
	return f, dir
}

func put(t testing.TB, at, content string, directory bool) {
	t.Helper()
	made := filepath.Dir(at)
	if directory {
		made = at
	}
	if err := os.MkdirAll(made, 0o755); err != nil {
		t.Fatal(err)
	}
	if directory {
		return
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// find returns matches as path, or path:line:text.
func find(t testing.TB, f *Files, search agent.Search) ([]string, agent.Found) {
	t.Helper()
	if search.Most == 0 {
		search.Most = 100
	}
	found, err := f.Search(t.Context(), search)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, m := range found.Matches {
		if m.Line == 0 {
			all = append(all, string(m.File.Path))
		} else {
			all = append(all, fmt.Sprintf("%s:%d:%s", m.File.Path, m.Line, m.Text))
		}
	}
	return all, found
}

func TestSearch(t *testing.T) {
	f, dir := workspace(t, map[string]string{
		"main.py": "import os\nprint('needle')\r\nneedle needle", "lib/util.py": "x\n\nneedle", "lib/util.go": "needle",
		"lib/deep/a/b.py": "none", "empty": "", "binary": "needle\n\x00needle\n", "odd\xff\n.py": "\xfeneedle\xfe", "d.py/": "",
	})
	if err := os.Symlink("main.py", filepath.Join(dir, "link.py")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		search  agent.Search
		want    []string
		limit   string
		skipped int
	}{
		{agent.Search{Name: "*.py"}, []string{"d.py", "lib/deep/a/b.py", "lib/util.py", "link.py", "main.py", "odd\xff\n.py"}, "", 0},
		{agent.Search{Name: "util.?o"}, []string{"lib/util.go"}, "", 0},
		{agent.Search{Name: "deep"}, []string{"lib/deep"}, "", 0},
		{agent.Search{Name: "odd\uFFFDff?*"}, []string{"odd\xff\n.py"}, "", 0},
		{agent.Search{Name: "none"}, []string{}, "", 0},
		{agent.Search{Name: "*.py", Path: "lib"}, []string{"deep/a/b.py", "util.py"}, "", 0},
		{agent.Search{Name: "*.py", Path: dir + "/lib/"}, []string{"deep/a/b.py", "util.py"}, "", 0},
		{agent.Search{Text: []byte("needle")}, []string{
			"binary:1:needle", "lib/util.go:1:needle", "lib/util.py:3:needle", "main.py:2:print('needle')", "main.py:3:needle needle", "odd\xff\n.py:1:\xfeneedle\xfe"}, "", 1},
		{agent.Search{Text: []byte("needle"), Name: "*.py", Path: "lib"}, []string{"util.py:3:needle"}, "", 0},
		{agent.Search{Text: []byte("needle\xfe")}, []string{"odd\xff\n.py:1:\xfeneedle\xfe"}, "", 1},
		{agent.Search{Text: []byte("needle"), Most: 2}, []string{"binary:1:needle", "lib/util.go:1:needle"}, agent.LimitMatches, 1},
		{agent.Search{Name: "*.py", Most: 6}, []string{"d.py", "lib/deep/a/b.py", "lib/util.py", "link.py", "main.py", "odd\xff\n.py"}, "", 0},
	} {
		got, found := find(t, f, test.search)
		if !slices.Equal(got, test.want) || found.Limit != test.limit || found.Skipped != test.skipped {
			t.Errorf("%+v:\n%q, %q, %d skipped, want\n%q", test.search, got, found.Limit, found.Skipped, test.want)
		}
	}
	for path, want := range map[string]agent.ErrorCode{"none": agent.ErrNotFound, "main.py": agent.ErrWrongType, "/proc": agent.ErrDenied} {
		var e *agent.Error
		if _, err := f.Search(t.Context(), agent.Search{Path: path, Name: "*", Most: 1}); !errors.As(err, &e) || e.Code != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// No link of a hostile tree is followed, no FIFO is opened, and a search of it ends.
func TestSearchOfAHostileTree(t *testing.T) {
	outside := t.TempDir()
	put(t, filepath.Join(outside, "secret.txt"), "needle", false)
	f, dir := workspace(t, map[string]string{"a/needle.txt": "needle"})
	for link, target := range map[string]string{
		"out": outside, "out.txt": outside + "/secret.txt", "root": "/", "proc": "/proc", "loop": ".", "a/up": "..", "self": "/proc/self/cwd", "zero.txt": "/dev/zero",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fifo.txt", "a/fifo"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	huge, err := os.Create(filepath.Join(dir, "huge.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := huge.Truncate(1 << 40); err != nil {
		t.Logf("no sparse file here: %v", err)
	}
	_ = huge.Close()
	if got, found := find(t, f, agent.Search{Text: []byte("needle")}); !slices.Equal(got, []string{"a/needle.txt:1:needle"}) || found.Limit != "" || found.Skipped != 1 {
		t.Errorf("%q, %+v", got, found)
	}
	if got, _ := find(t, f, agent.Search{Name: "secret*"}); len(got) > 0 {
		t.Errorf("found outside: %q", got)
	}
	deep := dir
	for range 200 {
		deep = filepath.Join(deep, "d")
	}
	put(t, filepath.Join(deep, "needle.txt"), "", false)
	if got, found := find(t, f, agent.Search{Name: "needle.txt"}); !slices.Equal(got, []string{"a/needle.txt", strings.Repeat("d/", 200) + "needle.txt"}) || found.Limit != "" {
		t.Errorf("deep: %q, %+v", got, found)
	}
}

// A search is limited by entries, by bytes read, and by the size of its response.
func TestSearchIsBounded(t *testing.T) {
	f, dir := workspace(t, nil)
	for i := range 1100 {
		put(t, fmt.Sprintf("%s/%06d", dir, i), "", false)
	}
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &search{Search: agent.Search{Name: "*", Most: agent.MaxMatches}, ctx: t.Context(), files: f, until: time.Now().Add(time.Hour)}
	s.entries = maxEntries - 900 // were seen before
	s.directory(at, "", 0)
	if len(s.found.Matches) != 900 || s.found.Limit != agent.LimitEntries {
		t.Errorf("%d of 900 entries, %q", len(s.found.Matches), s.found.Limit)
	}
	answered, err := f.Search(t.Context(), agent.Search{Name: "*", Most: agent.MaxMatches})
	if err != nil || len(answered.Matches) != agent.MaxMatches || answered.Limit != agent.LimitMatches {
		t.Errorf("%d matches, %q, %v", len(answered.Matches), answered.Limit, err)
	}

	f, dir = workspace(t, nil)
	line := bytes.Repeat([]byte("x"), 1000)
	line[999] = '\n'
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // at least one piece beyond the bound
		if _, err := log.Write(bytes.Repeat(line, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	_ = log.Close()
	put(t, filepath.Join(dir, "z"), "needle", false)
	near := func(binary bool) agent.Found { // it has read nearly all that it may
		t.Helper()
		if binary {
			put(t, filepath.Join(dir, "log"), "\x00"+strings.Repeat("x", 1000), false)
		}
		at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		try(t, err)
		s := &search{Search: agent.Search{Text: []byte("needle"), Most: 9}, ctx: t.Context(), files: f, until: time.Now().Add(time.Hour), reader: bufio.NewReaderSize(nil, searchBuffer)}
		s.read = mostSearched - 1000
		s.directory(at, "", 0)
		return s.found
	}
	if found := near(false); len(found.Matches) > 0 || found.Limit != agent.LimitBytes || found.Skipped > 0 {
		t.Errorf("%+v", found)
	}
	full, err := f.Search(t.Context(), agent.Search{Text: []byte("x"), Most: agent.MaxMatches})
	if err != nil || full.Limit != agent.LimitMatches {
		t.Fatalf("%+v, %v", full.Limit, err)
	}
	if _, err := agent.AppendJSON(nil, agent.KindResponse, agent.Response{Found: &full}); err != nil {
		t.Errorf("%d matches: %v", len(full.Matches), err)
	}
	if found := near(true); len(found.Matches) > 0 || found.Limit != agent.LimitBytes || found.Skipped != 1 {
		t.Errorf("of a binary file: %+v", found)
	}
}

// A directory whose path is too long must not hide the earlier limit of entries.
func TestSearchKeepsItsFirstBound(t *testing.T) {
	f, dir := workspace(t, map[string]string{"d/": ""})
	at, err := unix.Open(dir, unix.O_PATH, 0)
	try(t, err)
	defer unix.Close(at)
	s := &search{files: f, found: agent.Found{Limit: agent.LimitEntries}}
	s.below(at, "d", "d", 1)
	if s.found.Limit != agent.LimitEntries {
		t.Error(s.found.Limit)
	}
}

// File times that JSON can't express must not break a list or a search.
func TestTimesFitIntoJSON(t *testing.T) {
	f, err := New("/", "", false)
	try(t, err)
	defer unix.Close(f.root)
	for seconds, want := range map[int64]int{300_000_000_000: 9999, -300_000_000_000: 0, math.MaxInt64: 9999, math.MinInt64: 0, 253402300799: 9999, -62167219200: 0, 0: 1970} {
		info := f.info(-1, "", "x", &unix.Stat_t{Mtim: unix.Timespec{Sec: seconds, Nsec: 999_999_999}})
		if _, err := json.Marshal(info); err != nil || info.ModifiedAt.Year() != want {
			t.Errorf("%d: %v, %v", seconds, info.ModifiedAt, err)
		}
	}
}

// An entry that became a link after it was listed isn't followed.
func TestSearchFollowsNoExchangedLink(t *testing.T) {
	f, dir := workspace(t, map[string]string{"file": "needle", "directory/file": "needle"})
	for _, name := range []string{"file", "directory"} {
		if err := os.Symlink(name, filepath.Join(dir, "to-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	for _, name := range []string{"to-file", "to-directory", "fifo"} {
		s := &search{Search: agent.Search{Text: []byte("needle"), Most: 9}, ctx: t.Context(), files: f, longest: 99, until: time.Now().Add(time.Hour), reader: bufio.NewReaderSize(nil, searchBuffer)}
		s.file(at, name, agent.FileInfo{Path: []byte(name)})
		s.below(at, name, name, 1)
		if len(s.found.Matches) > 0 || s.found.Skipped != 2 {
			t.Errorf("%s: %+v", name, s.found)
		}
	}
}

// A text is found anywhere in a long line, and shown with its surroundings.
func TestSearchOfLongLines(t *testing.T) {
	for _, before := range []int{0, 100, shownOfLine, searchBuffer - 3, searchBuffer, 3*searchBuffer - 1, 3 * searchBuffer} {
		for _, filling := range []string{"x", "é"} {
			content := "first\n" + strings.Repeat(filling, before/len(filling)) + "needle" + strings.Repeat(filling, searchBuffer*2) + "\nneedle"
			f, _ := workspace(t, map[string]string{"f": content})
			_, found := find(t, f, agent.Search{Text: []byte("needle")})
			if len(found.Matches) != 2 || found.Matches[0].Line != 2 || found.Matches[1].Line != 3 {
				t.Fatalf("after %d: %+v", before, found)
			}
			if text := found.Matches[0].Text; len(text) > shownOfLine || !bytes.Contains(text, []byte("needle")) || before%len(filling) == 0 && before < searchBuffer-3 && !utf8.Valid(text) {
				t.Errorf("after %d shown: %d bytes, %q", before, len(text), text)
			}
		}
	}
}

// FuzzSearch checks that a search finds the same lines as splitting the whole file.
func FuzzSearch(f *testing.F) {
	f.Add([]byte("a\nneedle\r\n"), []byte("needle"), uint16(0))
	f.Add([]byte("\r\r\r"), []byte("\r\r"), uint16(600))
	f.Add([]byte("éé\n"), []byte("é"), uint16(511))
	f.Fuzz(func(t *testing.T, content, text []byte, fill uint16) {
		if len(text) == 0 || len(text) > 256 || bytes.ContainsAny(text, "\n\x00") {
			return
		}
		content = slices.Concat(bytes.Repeat([]byte("y"), int(fill)), content)
		if bytes.IndexByte(content, 0) >= 0 {
			return
		}
		files, _ := workspace(t, map[string]string{"f": string(content)})
		found, err := files.Search(t.Context(), agent.Search{Text: text, Most: agent.MaxMatches})
		if err != nil || found.Limit != "" || found.Skipped > 0 {
			t.Fatalf("%+v, %v", found, err)
		}
		var want []int
		for i, line := range bytes.Split(content, []byte("\n")) {
			if bytes.Contains(line, text) {
				want = append(want, i+1)
			}
		}
		var got []int
		for _, m := range found.Matches {
			got = append(got, m.Line)
			if len(m.Text) > shownOfLine || !bytes.Contains(m.Text, bytes.TrimRight(text, "\r")) {
				t.Errorf("%q isn't in what is shown: %q", text, m.Text)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("lines %v, want %v", got, want)
		}
	})
}
