package commands

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/client"
)

// tree returns the files below a directory, by name: mode and content.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			all[rel] = "directory"
			return nil
		}
		text, err := os.ReadFile(path)
		all[rel] = fmt.Sprintf("%v %x", info.Mode()&0o100 != 0, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestE2ECopyDirectory(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	here := filepath.Join(t.TempDir(), "project")
	large := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(large)
	write := func(name string, data []byte, mode os.FileMode) {
		path := filepath.Join(here, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("main.py", []byte("print(1)\n"), 0o644)
	write("bin/tool", []byte("#!/bin/sh\necho ran\n"), 0o755)
	write("bin/-large tool", large, 0o755)
	write("deep/er/ünï 🐟\n.txt", []byte("x\xff"), 0o600)
	write("empty", nil, 0o600)
	for i := range 250 {
		write(fmt.Sprintf("many/%03d", i), bytes.Repeat([]byte{byte(i)}, i), 0o644)
	}
	if err := os.MkdirAll(filepath.Join(here, "empty directory"), 0o700); err != nil {
		t.Fatal(err)
	}

	b.Works(t, "runner", "cp", "-r", here, runner+":")
	if got := b.Shell(t, runner, `cd project && bin/tool && test -x "bin/-large tool" && test -d "empty directory"`); got.Stream("STDOUT") != "ran\n" || *got.ExitCode != 0 {
		t.Errorf("%+v", got)
	}
	if got := b.Shell(t, runner, `cd project && stat -c %a:%U main.py bin/tool "bin/-large tool"`); got.Stream("STDOUT") != "644:runner\n755:runner\n755:runner\n" {
		t.Errorf("%+v", got)
	}
	back := t.TempDir()
	b.Works(t, "runner", "cp", runner+":project", back, "-r")
	if diff := cmp.Diff(tree(t, here), tree(t, filepath.Join(back, "project"))); diff != "" {
		t.Error(diff)
	}
	// To a name that doesn't exist: the copy gets that name.
	b.Works(t, "runner", "cp", "-r", runner+":/workspace/project/deep", filepath.Join(back, "renamed"))
	if diff := cmp.Diff(tree(t, filepath.Join(here, "deep")), tree(t, filepath.Join(back, "renamed"))); diff != "" {
		t.Error(diff)
	}
	b.Works(t, "runner", "cp", "-r", filepath.Join(here, "deep"), runner+":/tmp/other")
	if got := b.Shell(t, runner, "ls /tmp/other"); got.Stream("STDOUT") != "er\n" {
		t.Errorf("%+v", got)
	}
}

// TestE2ECopyKeepsNames: names that aren't UTF-8, and those that look like the API's text of them,
// arrive in both directions.
func TestE2ECopyKeepsNames(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	here := filepath.Join(t.TempDir(), "odd")
	if err := os.MkdirAll(filepath.Join(here, "dir\xff"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inv\xff", "inv\xfe", "\uFFFD", "\uFFFDff", "*", "~", `a\b`, "dir\xff/x\x80"} {
		if err := os.WriteFile(filepath.Join(here, name), []byte("in "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.Works(t, "runner", "cp", "-r", here, runner+":")
	if got := b.Shell(t, runner, `cat odd/inv"$(printf '\377')" odd/inv"$(printf '\376')" odd/'*' | od -An -tx1 | tr -d ' \n'; ls odd | wc -l`); got.Stream("STDOUT") != fmt.Sprintf("%x8\n", "in inv\xffin inv\xfein *") {
		t.Errorf("%+v", got)
	}
	back := t.TempDir()
	b.Works(t, "runner", "cp", "-r", runner+":odd", back)
	if diff := cmp.Diff(tree(t, here), tree(t, filepath.Join(back, "odd"))); diff != "" {
		t.Error(diff)
	}
	// The name's bytes, and the text of a list, are the same file.
	for _, name := range []string{"odd/inv\xfe", "odd/inv\uFFFDfe"} {
		if got := b.Works(t, "runner", "cp", runner+":"+name, "-"); got != "in inv\xfe" {
			t.Errorf("%q: %q", name, got)
		}
	}
	for _, name := range []string{"odd/dir\xff", "odd/dir\uFFFDff"} {
		for _, pattern := range []string{"x\x80", "x\uFFFD80"} {
			if got := b.Works(t, "runner", "find", runner+":"+name, "--name", pattern); got != "odd/dir\uFFFDff/x\uFFFD80\n" {
				t.Errorf("%q, %q: %q", name, pattern, got)
			}
		}
	}
	// To a name's bytes, from a file and from standard input.
	b.Works(t, "runner", "cp", filepath.Join(here, "inv\xff"), runner+":to\xff")
	if _, errs, code := b.Command(t, "streamed", "runner", "cp", "-", runner+":to\xfe"); code != 0 {
		t.Errorf("%d, %s", code, errs)
	}
	if got := b.Shell(t, runner, `cat to"$(printf '\377')" to"$(printf '\376')" | od -An -tx1 | tr -d ' \n'`); got.Stream("STDOUT") != fmt.Sprintf("%x", "in inv\xffstreamed") {
		t.Errorf("%+v", got)
	}
	if got := b.Works(t, "run", "--server", b.Address, "--env", "shell", "--file", filepath.Join(here, "inv\xfe"), "--", "sh", "-c", `cat inv"$(printf '\376')"`); got != "in inv\xfe" {
		t.Errorf("%q", got)
	}
	// Text that isn't UTF-8 is refused, not changed.
	if _, errs, code := b.Command(t, "", "runner", "exec", "--server", b.Address, runner, "--", "echo", "a\xff"); code != 125 || !strings.Contains(errs, `begins with "a" isn't valid UTF-8`) {
		t.Errorf("%d, %s", code, errs)
	}
}

func TestE2ECopyFile(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("a:b", []byte("colon"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Works(t, "runner", "cp", "./a:b", runner+":there")
	if got := b.Works(t, "runner", "cp", runner+":there", "-"); got != "colon" {
		t.Errorf("got %q, want \"colon\"", got)
	}
	if _, errs, code := b.Command(t, "streamed", "runner", "cp", "-", runner+":dir/in"); code != 0 {
		t.Errorf("%d %s", code, errs)
	}
	b.Works(t, "runner", "cp", runner+":dir/in", ".")
	if text, _ := os.ReadFile("in"); string(text) != "streamed" {
		t.Errorf("%q", text)
	}
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"a", "b"}, "RUNNER:PATH"},
		{[]string{runner + ":a", runner + ":b"}, "RUNNER:PATH"},
		{[]string{".", runner + ":"}, "-r"},
		{[]string{runner + ":", "."}, "-r"},
		{[]string{runner + ":nonesuch", "."}, "nonesuch doesn't exist in runner"},
		{[]string{runner + ":there", "nonesuch/"}, "doesn't exist"},
		{[]string{runner + ":there", "nonesuch/x"}, "nonesuch"},
		{[]string{"nonesuch", runner + ":"}, "nonesuch"},
		{[]string{"in", "nonesuch:x"}, "nonesuch"},
		{[]string{"in", runner + ":/proc/x"}, "/proc"},
		{[]string{runner + ":/dev/zero", "."}, "neither"},
		{[]string{"-", runner + ":"}, "give a file name"},
	} {
		if _, errs, code := b.Command(t, "", append([]string{"runner", "cp"}, test.arguments...)...); code == 0 || !strings.Contains(errs, test.says) {
			t.Errorf("%q: %d %q", test.arguments, code, errs)
		}
	}
	if left, _ := filepath.Glob(".rockpool-*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestE2ECopyWritesNowhereElse copies names and links that a program has prepared to escape the
// destination.
func TestE2ECopyWritesNowhereElse(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	trap := t.TempDir()
	made := b.Shell(t, runner, `mkdir -p evil/dir; ln -s `+trap+` evil/link; ln -s /etc/passwd evil/file; mkfifo evil/fifo; echo fine >evil/fine; printf x >"evil/$(printf 'bad\377name')"; chmod 4755 evil/fine`)
	if *made.ExitCode != 0 {
		t.Fatalf("%+v", made)
	}
	here := t.TempDir()
	// This side already has links where the files would be written.
	if err := os.MkdirAll(filepath.Join(here, "evil"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"evil/fine.part": filepath.Join(trap, "part"), "evil/fine": filepath.Join(trap, "fine"), "evil/dir": trap} {
		if err := os.Symlink(target, filepath.Join(here, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.Shell(t, runner, "echo x >evil/dir/inside")
	_, errs, code := b.Command(t, "", "runner", "cp", "-r", runner+":evil", here)
	if code == 0 || !strings.Contains(errs, "escapes") {
		t.Errorf("a directory that is a link here: %d %q", code, errs)
	}
	if err := os.Remove(filepath.Join(here, "evil/dir")); err != nil {
		t.Fatal(err)
	}
	_, errs, code = b.Command(t, "", "runner", "cp", "-r", runner+":evil", here)
	if code != 0 || strings.Contains(errs, "couldn't copy ") || strings.Count(errs, "rockpool: skipped ") != 3 {
		t.Errorf("%d %q", code, errs)
	}
	if there, _ := os.ReadDir(trap); len(there) > 0 {
		t.Errorf("written elsewhere: %v", there)
	}
	if info, err := os.Stat(filepath.Join(here, "evil/fine")); err != nil || info.Mode()&(os.ModeSetuid|0o111) != 0o111 {
		t.Errorf("%v %v", info, err)
	}
}

// TestE2ECopySkipsLinks: a link isn't followed, in either direction, and the rest is copied.
func TestE2ECopySkipsLinks(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	here := filepath.Join(t.TempDir(), "project")
	secret := filepath.Join(t.TempDir(), "secret")
	err := errors.Join(os.Mkdir(here, 0o755), os.WriteFile(secret, []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(here, "file"), []byte("content"), 0o644), os.Symlink(secret, filepath.Join(here, "link")))
	if err != nil {
		t.Fatal(err)
	}
	skipped := func(errs, link string, code int) {
		t.Helper()
		if want := "rockpool: skipped " + link + ": it is a symbolic link\n"; code != 0 || errs != want {
			t.Errorf("%d %q, not %q", code, errs, want)
		}
	}
	_, errs, code := b.Command(t, "", "runner", "cp", "-r", here, runner+":")
	skipped(errs, filepath.Join(here, "link"), code)
	if got := b.Shell(t, runner, "ls -A project && mkdir own && cp project/file own && ln -s /etc/passwd own/link"); got.Stream("STDOUT") != "file\n" || *got.ExitCode != 0 {
		t.Errorf("%+v", got)
	}
	back := filepath.Join(t.TempDir(), "back")
	_, errs, code = b.Command(t, "", "runner", "cp", "-r", runner+":own", back)
	skipped(errs, "link", code)
	if got := tree(t, back); len(got) != 2 || got["file"] == "" {
		t.Errorf("%v", got)
	}
}

// TestE2ECopyKeepsOtherFiles copies files with the longest possible names. Files and modes next to
// them stay.
func TestE2ECopyKeepsOtherFiles(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	here := t.TempDir()
	long := strings.Repeat("n", 255)
	if got := b.Shell(t, runner, "echo secret >key; chmod 600 key; echo shared >open; chmod 446 open; echo long >"+long); *got.ExitCode != 0 {
		t.Fatalf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(here, "key.part"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"key", "open", long} {
		b.Works(t, "runner", "cp", runner+":"+name, here)
	}
	if text, err := os.ReadFile(filepath.Join(here, "key.part")); err != nil || string(text) != "mine" {
		t.Errorf("%q %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(here, long)); err != nil || string(text) != "long\n" {
		t.Errorf("%q %v", text, err)
	}
	if info, err := os.Stat(filepath.Join(here, "key")); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(here, "open")); err != nil || info.Mode()&0o700 != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// TestE2ECopyResumesAfterCuts copies a large file both ways over connections that are cut.
func TestE2ECopyResumesAfterCuts(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	dir := t.TempDir()
	large := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(large)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, large, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Works(t, "runner", "cp", from, runner+":large")
	proxy := bed.NewCutter(t, strings.TrimPrefix(b.Address, "http://"), 3*int64(len(large)))
	cutting := bed.Bed{Client: client.New("http://" + proxy.Listener.Addr().String()), Address: "http://" + proxy.Listener.Addr().String()}
	for n := 0; n < 10 || proxy.Accepted.Load() < 15; n++ {
		if out, errs, code := cutting.Command(t, "", "runner", "cp", runner+":large", to); code != 0 {
			t.Fatalf("%d %s %s", code, out, errs)
		}
		if text, err := os.ReadFile(to); err != nil || !bytes.Equal(text, large) {
			t.Fatalf("%d bytes of %d, %v", len(text), len(large), err)
		}
	}
	cutting.CloseIdle()
}

func TestE2ECopyShowsItsProgressOnATerminal(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	seen := filepath.Join(t.TempDir(), "seen")
	s := onScreen(t, nil, "sh", "-c", `(head -c 1500000 /dev/zero; until [ -e "$3" ]; do echo; sleep 0.05; done) | exec "$0" runner cp --server "$1" - "$2:zeros"`, bed.Rockpool(t), b.Address, runner, seen)
	s.sees(t, "zeros: 1.5")
	s.sees(t, " MB/s")
	if err := os.WriteFile(seen, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.ends(t, 0)
	if !strings.HasSuffix(s.seen, "\r\x1b[K") {
		t.Errorf("the line stays: %q", s.seen)
	}
	if _, errs, _ := b.Command(t, "x", "runner", "cp", "-", runner+":quiet"); errs != "" {
		t.Errorf("without a terminal: got %q, want \"\"", errs)
	}
}
