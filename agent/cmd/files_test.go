package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime/paths"
)

// TestDeepTrees: a list reaches every entry that a path can name, and a watch every directory.
func TestDeepTrees(t *testing.T) {
	b := newBed(t, 0)
	b.sh(t, `perl -e 'for (1..700) { mkdir "d"; chdir "d"; open F, ">", "f" if $_ == 650 } mkdir "last"' && perl -e 'mkdir "x"; chdir "x"; for (1..2200) { mkdir "e"; chdir "e" }'`)
	deep := strings.Repeat("d/", 699) + "d"
	got := map[string]bool{}
	for _, info := range b.list(t, agent.ListDir{Recursive: true}) {
		got[string(info.Path)] = true
	}
	last := "x" + strings.Repeat("/e", (paths.MaxBytes-len("/workspace/x"))/2)
	for _, path := range []string{deep, deep + "/last", strings.Repeat("d/", 650) + "f", last, last + "/e"} {
		if !got[path] {
			t.Errorf("a path of %d bytes isn't listed", len(path))
		}
	}
	if want := 702 + len(last)/2 + 2; len(got) != want {
		t.Errorf("%d entries, want %d", len(got), want)
	}
	if _, err := agent.StatFile(t.Context(), b.dial(t), last, false); err != nil {
		t.Errorf("a listed directory: %v", err)
	}
	found, err := agent.SearchFiles(t.Context(), b.dial(t), agent.Search{Name: "[fl]*", Most: 9})
	if err != nil || len(found.Matches) != 2 || found.Limit != agent.LimitDepth {
		t.Errorf("search: %d matches, limit %q, %v", len(found.Matches), found.Limit, err)
	}
	b.update(t, agent.Update{Delete: []string{"x"}}, "")
	w, err := agent.WatchFiles(t.Context(), b.dial(t), agent.Watch{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	b.put(t, agent.Write{Path: deep + "/last/new", Size: 1}, "x")
	changes, err := w.Next()
	if err != nil || len(changes.Changes) == 0 || string(changes.Changes[0].Path) != deep+"/last/new" {
		t.Errorf("%+v, %v", changes, err)
	}
}

// put writes one file or directory, which must succeed.
func (b *bed) put(t testing.TB, w agent.Write, content string) {
	t.Helper()
	updated, err := b.update(t, agent.Update{Write: []agent.Write{w}}, content)
	if err != nil || len(updated.Failed) > 0 || len(updated.Written) != 1 {
		t.Fatalf("update: %+v, %v", updated, err)
	}
}

// update sends the same content for every file, up to its size.
func (b *bed) update(t testing.TB, update agent.Update, content string) (agent.Updated, error) {
	t.Helper()
	return agent.UpdateFiles(t.Context(), b.dial(t), update, func(int) io.Reader { return strings.NewReader(content) })
}

// list returns entries as "path type mode owner:group size → link".
func (b *bed) list(t testing.TB, list agent.ListDir) []agent.FileInfo {
	t.Helper()
	var found []agent.FileInfo
	if err := agent.ListFiles(t.Context(), b.dial(t), list, func(info agent.FileInfo) error {
		found = append(found, info)
		return nil
	}); err != nil {
		t.Fatalf("list: %v", err)
	}
	return found
}

func (b *bed) read(t testing.TB, path string) (agent.FileInfo, []byte, error) {
	t.Helper()
	info, content, err := agent.OpenFile(t.Context(), b.dial(t), path, 0)
	if err != nil {
		return info, nil, err
	}
	defer content.Close()
	all, err := io.ReadAll(content)
	return info, all, err
}

var oddNames = []string{"it's \"q\"", "new\nline", "a -> b", "-rf", "$(id)", "emoji 🎉", " ", "*", "?", "~", `a\b`, "inv\xff", "inv\xfe", "\uFFFD", "\uFFFDff"}

func TestList(t *testing.T) {
	b := newBed(t, 0)
	var writes []agent.Write
	for _, name := range oddNames {
		writes = append(writes, agent.Write{Path: "odd/" + paths.Text(name), Size: 1})
	}
	writes = append(writes, agent.Write{Path: "odd.txt", Size: 1}, agent.Write{Path: "odd/deep/er/file", Size: 1, Mode: 0o600})
	if updated, err := b.update(t, agent.Update{Write: writes}, "x"); err != nil || len(updated.Failed) > 0 {
		t.Fatalf("%+v, %v", updated, err)
	}
	b.sh(t, `printf 12345 >mine; ln -s odd link; ln -s "/no -> where" lost; mkfifo fifo; touch "$(printf '\377\376')"; mkdir -m 3775 sticky; ln -s . odd2`)
	var found []string
	by := map[string]agent.FileInfo{}
	for _, info := range b.list(t, agent.ListDir{Recursive: true}) {
		found = append(found, string(info.Path))
		by[string(info.Path)] = info
	}
	var odd []string
	for _, name := range append(oddNames, "deep", "deep/er", "deep/er/file") {
		odd = append(odd, "odd/"+name)
	}
	want := append(append([]string{"fifo", "link", "lost", "mine", "odd"}, odd...), "odd.txt", "odd2", "sticky", "\xff\xfe")
	slices.Sort(found)
	slices.Sort(want)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("paths: %s", diff)
	}
	for _, test := range []struct {
		path, kind   string
		mode         uint32
		owner, group string
		size         int64
		link         string
	}{
		{"mine", "file", 0o644, "user", "user", 5, ""},
		{"odd.txt", "file", 0o644, "user", "user", 1, ""},
		{"odd", "directory", 0o755, "user", "user", -1, ""},
		{"odd/deep/er/file", "file", 0o600, "user", "user", 1, ""},
		{"sticky", "directory", 0o3775, "user", "user", -1, ""},
		{"fifo", "other", 0o644, "user", "user", 0, ""},
		{"link", "link", 0o777, "user", "user", 3, "odd"},
		{"lost", "link", 0o777, "user", "user", 12, "/no -> where"},
	} {
		i := by[test.path]
		if i.Type != test.kind || i.Mode != test.mode || i.Owner != test.owner || i.Group != test.group ||
			test.size >= 0 && i.Size != test.size || string(i.LinkTarget) != test.link || i.ModifiedAt.IsZero() {
			t.Errorf("%s: %+v %s", test.path, i, i.LinkTarget)
		}
	}
	var flat []string
	for _, info := range b.list(t, agent.ListDir{Path: "odd/deep"}) {
		flat = append(flat, string(info.Path))
	}
	if !slices.Equal(flat, []string{"er"}) {
		t.Errorf("flat: %q", flat)
	}
	// The whole runner, /proc and all, comes to an end.
	if n := len(b.list(t, agent.ListDir{Path: "/proc", Recursive: true})); n == 0 || n > 5000 {
		t.Errorf("/proc has %d entries", n)
	}
	for path, code := range map[string]agent.ErrorCode{"none": agent.ErrNotFound, "mine": agent.ErrWrongType, "/proc/1/cwd": agent.ErrDenied, "a\x00": agent.ErrInvalid} {
		err := agent.ListFiles(t.Context(), b.dial(t), agent.ListDir{Path: path}, func(agent.FileInfo) error { return nil })
		checkError(t, "list "+path, err, agent.Error{Code: code})
	}
}

func checkError(t testing.TB, what string, err error, want agent.Error) {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) || e.Code != want.Code || e.Field != want.Field || e.Index != want.Index {
		t.Errorf("%s: %+v, want %+v", what, err, want)
	}
}

func TestRead(t *testing.T) {
	b := newBed(t, 0)
	big := bytes.Repeat([]byte("\x00\xff\r\n rockpool"), 300_000)
	b.put(t, agent.Write{Path: "big", Size: int64(len(big))}, string(big))
	b.sh(t, `: >empty; mkfifo fifo; ln -s big link; ln -s fifo lfifo; ln -s /proc/self/status pseudo; ln -s loop loop; mkdir d; ln -s /dev/zero zero; ln -s /proc/1/root/etc/passwd out
		perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "socket", Listen => 1)'`)
	for _, path := range []string{"big", "link", "/workspace/big", "d/../big", "none/../big", ".//big"} {
		info, all, err := b.read(t, path)
		if err != nil || !bytes.Equal(all, big) || info.Size != int64(len(big)) || string(info.Path) != path || info.Type != "file" {
			t.Errorf("%s: %d bytes, %+v, %v", path, len(all), info, err)
		}
	}
	if _, all, err := b.read(t, "empty"); err != nil || len(all) != 0 {
		t.Errorf("empty: %d bytes, %v", len(all), err)
	}
	b.sh(t, `printf odd >"$(printf '\377\376')"; truncate -s 1T sparse`)
	if _, all, err := b.read(t, "\uFFFDff\uFFFDfe"); err != nil || string(all) != "odd" {
		t.Errorf("a name that isn't UTF-8: %q, %v", all, err)
	}
	for _, offset := range []int64{1, agent.MaxData, int64(len(big)) - 1, int64(len(big))} {
		_, content, err := agent.OpenFile(t.Context(), b.dial(t), "link", offset)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := io.ReadAll(content); err != nil || !bytes.Equal(all, big[offset:]) {
			t.Errorf("from %d on: %d bytes, %v", offset, len(all), err)
		}
		_ = content.Close()
	}
	_, _, err := agent.OpenFile(t.Context(), b.dial(t), "big", int64(len(big))+1)
	checkError(t, "read beyond the end", err, agent.Error{Code: agent.ErrInvalid})
	for path, code := range map[string]agent.ErrorCode{
		"sparse": agent.ErrWrongType, "none": agent.ErrNotFound, "fifo": agent.ErrWrongType, "lfifo": agent.ErrWrongType, "d": agent.ErrWrongType, "big/": agent.ErrWrongType, "": agent.ErrInvalid, "a\uFFFDb": agent.ErrInvalid,
		"socket": agent.ErrWrongType, "zero": agent.ErrWrongType, "/dev/null": agent.ErrWrongType,
		"pseudo": agent.ErrDenied, "/proc/1/environ": agent.ErrDenied, "loop": agent.ErrDenied, "out": agent.ErrDenied,
		"big/x": agent.ErrWrongType, "../../../../workspace/none": agent.ErrNotFound,
	} {
		_, _, err := b.read(t, path)
		checkError(t, "read "+path, err, agent.Error{Code: code})
	}
	_, err = agent.StatFile(t.Context(), b.dial(t), "none", false)
	checkError(t, "stat", err, agent.Error{Code: agent.ErrNotFound})
	// Every listed entry has the same description by its path.
	b.sh(t, `ln -s nowhere lost; ln -s d/ "$(printf 'l\377')"; ln -s "$(printf '\376')" to; ln -s .. up; touch '*' '~' -- -x`)
	for _, listed := range b.list(t, agent.ListDir{}) {
		info, err := agent.StatFile(t.Context(), b.dial(t), paths.Text(string(listed.Path)), false)
		if diff := cmp.Diff(listed, info); err != nil || diff != "" {
			t.Errorf("%q: %v, %s", listed.Path, err, diff)
		}
	}
	for path, want := range map[string]string{"link": "file", "l\uFFFDff": "directory", "up": "directory"} {
		if info, err := agent.StatFile(t.Context(), b.dial(t), path, true); err != nil || info.Type != want {
			t.Errorf("%q: %+v, %v", path, info, err)
		}
	}
	if info, err := agent.StatFile(t.Context(), b.dial(t), "up/", false); err != nil || info.Type != "directory" {
		t.Errorf("a slash after a link: %+v, %v", info, err)
	}
	_, err = agent.StatFile(t.Context(), b.dial(t), "lost", true)
	checkError(t, "stat of a missing target", err, agent.Error{Code: agent.ErrNotFound})
}
