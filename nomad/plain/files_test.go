package plain_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

func (b *bed) update(update agent.Update, contents ...string) (agent.Updated, error) {
	b.t.Helper()
	conn, err := b.runner.Dial(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return agent.UpdateFiles(b.t.Context(), conn, update, func(i int) io.Reader { return strings.NewReader(contents[i]) })
}

func (b *bed) list(p string, recursive bool) ([]agent.FileInfo, error) {
	b.t.Helper()
	conn, err := b.runner.Dial(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	var all []agent.FileInfo
	err = agent.ListFiles(b.t.Context(), conn, agent.ListDir{Path: p, Recursive: recursive}, func(info agent.FileInfo) error {
		all = append(all, info)
		return nil
	})
	return all, err
}

func (b *bed) read(p string, offset int64) (string, agent.FileInfo, error) {
	b.t.Helper()
	conn, err := b.runner.Dial(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	info, content, err := agent.OpenFile(b.t.Context(), conn, p, offset)
	if err != nil {
		return "", info, err
	}
	defer content.Close()
	all, err := io.ReadAll(content)
	return string(all), info, err
}

// odd are names that a line, a shell or a list would take for something else.
var odd = []string{"a b", "new\nline", "-rf", "*", "$(touch x)", "'\"`", "tab\t", "\x01\x1e", " ", "ü", "a", "a.b", "back\\slash", "%s"}

func testFiles(t *testing.T, b *bed) {
	began := time.Now().Truncate(time.Second) // what stat may tell
	random := make([]byte, 1_000_000)
	rand.Read(random)
	update := agent.Update{}
	var contents []string
	for _, name := range odd {
		update.Write = append(update.Write, agent.Write{Path: "dir/" + name, Size: int64(len(name))})
		contents = append(contents, name)
	}
	update.Write = append(update.Write,
		agent.Write{Path: "deep/er/random", Size: int64(len(random)), Mode: 0o600},
		agent.Write{Path: "unknown", Size: -1},
		agent.Write{Path: "sticky", Directory: true, Mode: 0o1777},
		agent.Write{Path: "empty", Size: 0},
	)
	contents = append(contents, string(random), string(random)+"x", "", "")
	updated, err := b.update(update, contents...)
	if err != nil || len(updated.Written) != len(update.Write) || len(updated.Failed) > 0 {
		t.Fatalf("%+v, %v", updated, err)
	}
	for i, w := range update.Write {
		if w.Directory {
			continue
		}
		content, info, err := b.read(w.Path, 0)
		mode := w.Mode
		if mode == 0 {
			mode = 0o744
		}
		if err != nil || content != contents[i] || info.Size != int64(len(contents[i])) || info.Mode != mode || info.Type != "file" || info.ModifiedAt.Before(began) || info.ModifiedAt.After(time.Now()) {
			t.Errorf("%q: %d bytes, %+v, %v", w.Path, len(content), info, err)
		}
	}
	if content, _, err := b.read("deep/er/random", 999_990); err != nil || content != string(random[999_990:]) {
		t.Errorf("%q, %v", content, err)
	}
	all, err := b.list("dir", false)
	var names []string
	for _, info := range all {
		names = append(names, string(info.Path))
	}
	want := slices.Clone(odd)
	slices.Sort(want)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v, want %q", names, err, want)
	}
	if o := b.sh("ln -s 'no\nwhere' dir/link; ln -s unknown alias"); o.exit.Code != 0 {
		t.Fatalf("%+v", o)
	}
	all, err = b.list("", true)
	var links, kinds string
	for _, info := range all {
		kinds += info.Type[:1]
		if info.Type == "link" {
			links += fmt.Sprintf("%s>%s ", info.Path, info.LinkTarget)
		}
		if string(info.Path) == "sticky" && (info.Mode != 0o1777 || info.Type != "directory" || info.Owner == "") {
			t.Errorf("%+v", info)
		}
	}
	if err != nil || links != "alias>unknown dir/link>no\nwhere " || len(all) != len(odd)+9 {
		t.Errorf("%q %s %d, %v", links, kinds, len(all), err)
	}
	// A single file is described at once; one that is there is replaced, and a
	// link with it.
	updated, err = b.update(agent.Update{Write: []agent.Write{{Path: "alias", Size: 3}}}, "new")
	if err != nil || updated.File == nil || updated.File.Size != 3 || updated.File.Type != "file" || string(updated.File.Path) != "alias" {
		t.Errorf("%+v, %v", updated, err)
	}
	if content, _, err := b.read("unknown", 0); err != nil || len(content) != len(random)+1 {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	updated, err = b.update(agent.Update{Delete: []string{"dir/*", "deep", "not there", "-rf"}, Write: []agent.Write{{Path: "deep", Size: 1}}}, "x")
	if err != nil || fmt.Sprint(updated.Deleted) != "[dir/* deep]" || len(updated.Failed) > 0 || len(updated.Written) != 1 {
		t.Errorf("%+v, %v", updated, err)
	}
	if all, err := b.list("dir", true); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, test := range []struct {
		update agent.Update
		code   agent.ErrorCode
	}{
		{agent.Update{Write: []agent.Write{{Path: "unknown", Size: 1}, {Path: "sticky", Size: 1}}}, agent.ErrWrongType},
		{agent.Update{Write: []agent.Write{{Path: "unknown/below", Size: 1}}}, agent.ErrWrongType},
		{agent.Update{Write: []agent.Write{{Path: "unknown", Directory: true}}}, agent.ErrWrongType},
		{agent.Update{Delete: []string{"../.."}}, agent.ErrInvalid},
		{agent.Update{Delete: []string{"."}}, agent.ErrInvalid},
	} {
		_, err := b.update(test.update, "x", "x")
		if e := refused(t, err); e.Code != test.code {
			t.Errorf("%+v: %+v", test.update, e)
		}
	}
	for p, code := range map[string]agent.ErrorCode{"nothing": agent.ErrNotFound, "dir": agent.ErrWrongType, "unknown/x": agent.ErrWrongType} {
		_, _, err := b.read(p, 0)
		if e := refused(t, err); e.Code != code {
			t.Errorf("%s: %+v", p, e)
		}
	}
	if _, err := b.list("nothing", false); refused(t, err).Code != agent.ErrNotFound {
		t.Errorf("%v", err)
	}
}

func TestFiles(t *testing.T) { onEach(t, testFiles) }

func TestNomadFiles(t *testing.T) { onNomad(t, testFiles) }

// TestCutUpload cuts a stream in the middle of a file.
func TestCutUpload(t *testing.T) { onEach(t, testCutUpload) }

func TestNomadCutUpload(t *testing.T) { onNomad(t, testCutUpload) }

func testCutUpload(t *testing.T, b *bed) {
	if _, err := b.update(agent.Update{Write: []agent.Write{{Path: "f", Size: 3}}}, "old"); err != nil {
		t.Fatal(err)
	}
	conn, err := b.runner.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cut := errors.New("cut")
	_, err = agent.UpdateFiles(t.Context(), conn, agent.Update{Write: []agent.Write{{Path: "f", Size: 1 << 20}}}, func(int) io.Reader {
		return io.MultiReader(bytes.NewReader(make([]byte, 700_000)), iotestError{cut})
	})
	if !errors.Is(err, cut) {
		t.Errorf("%v", err)
	}
	wait.For(t, "the temporary file goes", func() bool {
		all, err := b.list("", false)
		return err == nil && len(all) == 1
	})
	if content, _, err := b.read("f", 0); content != "old" || err != nil {
		t.Errorf("%q, %v", content, err)
	}
}

type iotestError struct{ err error }

func (r iotestError) Read([]byte) (int, error) { return 0, r.err }

// TestCutDownload leaves a file in the middle: what reads it is ended.
func TestCutDownload(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		big := filepath.Join(b.runner.Workspace(), "big") // minutes to read to its end
		if err := errors.Join(os.WriteFile(big, nil, 0o600), os.Truncate(big, 1<<40)); err != nil {
			t.Fatal(err)
		}
		conn, err := b.runner.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, content, err := agent.OpenFile(t.Context(), conn, "big", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, content, 1000); err != nil {
			t.Fatal(err)
		}
		content.Close()
		wait.For(t, "nothing reads it", func() bool { return b.machine.none("les") })
	})
}

// TestSlowShellsAreWaitedFor: a client's limit for one write isn't one for the shell
// behind it.
func TestSlowShellsAreWaitedFor(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		conn, err := b.runner.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetWriteDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Errorf("a write after the limit: %v", err)
		}
	})
}
