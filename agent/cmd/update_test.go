package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime/paths"
	"github.com/rockpool/rockpool/test/wait"
)

func TestUpdate(t *testing.T) {
	b := newBed(t, 0)
	file := func(path string) agent.Write { return agent.Write{Path: path, Size: 3} }
	for _, test := range []struct {
		name    string
		before  string // a script
		update  agent.Update
		deleted []string
		after   string // a script
		want    string
	}{
		{"file", "", agent.Update{Write: []agent.Write{file("a")}}, nil,
			"stat -c '%a %U %s' a; cat a; ls -A", "644 user 3\nabca\n"},
		{"parents", "", agent.Update{Write: []agent.Write{file("x/y/z")}}, nil,
			"stat -c '%a %U' x x/y; cat x/y/z", "755 user\n755 user\nabc"},
		{"replaced", "echo old >a; exec 3<a; ln a b", agent.Update{Write: []agent.Write{file("a")}}, nil,
			"cat a b; stat -c %U a b", "abcold\nuser\nuser\n"},
		{"mode", "", agent.Update{Write: []agent.Write{{Path: "a", Size: 3, Mode: 0o640}, {Path: "d", Directory: true, Mode: 0o1777}, {Path: "e/", Directory: true}}}, nil,
			"stat -c %a a d e", "640\n1777\n755\n"},
		{"empty file", "", agent.Update{Write: []agent.Write{{Path: "a"}, file("b")}}, nil, "wc -c <a; cat b", "0\nabc"},
		{"delete", "mkdir -p d/e; touch d/e/f g", agent.Update{Delete: []string{"d", "none", "g", "none/x"}}, []string{"d", "g"}, "ls -A", ""},
		{"empty the workspace", "mkdir d; touch .hidden d/x y; chmod 0 d", agent.Update{Empty: []string{"."}}, []string{"."}, "ls -A; stat -c '%a %U' .", "755 user\n"},
		{"a file named *", "mkdir d; touch .hidden d/x '*' d/'*'", agent.Update{Delete: []string{"*", "./d/*"}}, []string{"*", "./d/*"}, "ls -A . d", ".:\n.hidden\nd\n\nd:\nx\n"},
		{"no file named *", "mkdir d; touch y", agent.Update{Delete: []string{"*", "./*", "/workspace/*", "[y]", "?"}}, nil, "ls -A", "d\ny\n"},
		{"empty a directory", "mkdir -p d/e; touch d/.x d/e/y z; ln -s d l", agent.Update{Empty: []string{"l/", "none", "z/none"}, Delete: []string{"z/none"}}, []string{"l/"}, "ls -A . d", ".:\nd\nl\nz\n\nd:\n"},
		{"delete with a slash", "mkdir d; touch d/x", agent.Update{Delete: []string{"d//", "none/"}}, []string{"d//"}, "ls -A", ""},
		{"dots", "touch b", agent.Update{Delete: []string{"a/../b"}, Write: []agent.Write{file("x/./../c")}}, []string{"a/../b"}, "ls -A; cat c", "c\nabc"},
		{"delete a link", "mkdir d; touch d/x; ln -s d l; ln -s /tmp m", agent.Update{Delete: []string{"l", "m"}}, []string{"l", "m"}, "ls -A . d; ls -d /tmp", ".:\nd\n\nd:\nx\n/tmp\n"},
		{"delete then write", "mkdir a; touch a/x b", agent.Update{Delete: []string{"a", "b"}, Write: []agent.Write{file("a"), file("b/c")}}, []string{"a", "b"}, "cat a b/c", "abcabc"},
		{"delete all then write", "mkdir a; touch a/x", agent.Update{Empty: []string{"./"}, Write: []agent.Write{file("a"), file("n")}}, []string{"./"}, "cat a n; ls", "abcabca\nn\n"},
		{"over a link", "echo old >t; ln -s t l", agent.Update{Write: []agent.Write{file("l")}}, nil, "cat t l", "old\nabc"},
		{"through a link", "mkdir d; ln -s d l; ln -s /tmp m", agent.Update{Write: []agent.Write{file("l/x"), file("m/from-workspace")}}, nil, "cat d/x /tmp/from-workspace", "abcabc"},
		{"absolute", "", agent.Update{Write: []agent.Write{file("/tmp/q/r"), file("/workspace/s")}}, nil, "cat /tmp/q/r s", "abcabc"},
		{"dir twice", "mkdir -m 700 d", agent.Update{Write: []agent.Write{{Path: "d", Directory: true}, file("d/x"), file("d/x")}}, nil, "stat -c %a d; ls d", "700\nx\n"},
		{"deep", "perl -e 'for (1..700) { mkdir q{d}; chdir q{d} }'", agent.Update{Delete: []string{"d"}}, []string{"d"}, "ls -A", ""},
		{"of mode 2755", "mkdir -m 2755 d", agent.Update{Write: []agent.Write{{Path: "d/a", Size: 3, Mode: 0o2755}}}, nil, "stat -c '%a %U:%G' d/a", "2755 user:user\n"},
		{"many", "for i in $(seq 3000); do : >f$i; done", agent.Update{Empty: []string{"."}}, []string{"."}, "ls -A", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.update(t, agent.Update{Empty: []string{".", "/tmp"}}, "")
			if r := b.sh(t, test.before); r.exit.Code != 0 {
				t.Fatalf("before: %+v", r)
			}
			updated, err := b.update(t, test.update, "abc")
			if err != nil || len(updated.Failed) > 0 || len(updated.Written) != len(test.update.Write) || !slices.Equal(updated.Deleted, append([]string{}, test.deleted...)) {
				t.Fatalf("%+v, %v", updated, err)
			}
			if r := b.sh(t, test.after); r.stdout != test.want {
				t.Errorf("got %q %s, want %q", r.stdout, r.stderr, test.want)
			}
		})
	}
	b.update(t, agent.Update{Empty: []string{"."}}, "")
	for _, raw := range oddNames {
		name := paths.Text(raw)
		b.put(t, agent.Write{Path: name, Size: 3}, "abc")
		if _, all, err := b.read(t, name); err != nil || string(all) != "abc" {
			t.Errorf("%q: %q, %v", name, all, err)
		}
		updated, err := b.update(t, agent.Update{Delete: []string{"./" + name}}, "")
		if left := b.list(t, agent.ListDir{}); err != nil || len(updated.Deleted) != 1 || len(left) != 0 {
			t.Errorf("delete %q: %+v, %v, %d left", name, updated, err, len(left))
		}
	}
}

// The description of a written file is the same as a Stat's immediately afterwards.
func TestUpdateDescribesOneFile(t *testing.T) {
	b := newBed(t, 0)
	updated, err := b.update(t, agent.Update{Write: []agent.Write{{Path: "d/f", Size: 3, Mode: 0o640}}}, "abc")
	if err != nil || updated.File == nil {
		t.Fatalf("%+v, %v", updated, err)
	}
	info, err := agent.StatFile(t.Context(), b.dial(t), "d/f", false)
	if diff := cmp.Diff(info, *updated.File); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	for _, update := range []agent.Update{
		{Write: []agent.Write{{Path: "d", Directory: true}}}, {Delete: []string{"d"}}, {Delete: []string{"d"}, Write: []agent.Write{{Path: "f", Size: 3}}}, {Empty: []string{"d"}, Write: []agent.Write{{Path: "f", Size: 3}}},
	} {
		if updated, err := b.update(t, update, "abc"); err != nil || updated.File != nil {
			t.Errorf("%+v: %+v, %v", update, updated, err)
		}
	}
}

func TestUpdateRefused(t *testing.T) {
	b := newBed(t, 0)
	b.sh(t, "mkdir dir; touch dir/x file; ln -s /proc proc; ln -s /nowhere lost; ln -s /workspace self; ln -s /dev dev; ln -s /usr usr")
	before := b.sh(t, "ls -lAR --full-time").stdout
	write := func(paths ...string) (u agent.Update) {
		for _, path := range paths {
			u.Write = append(u.Write, agent.Write{Path: path, Size: 1})
		}
		return u
	}
	remove := func(paths ...string) agent.Update { return agent.Update{Delete: paths, Write: write("new").Write} }
	many := make([]string, 10_001)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, test := range []struct {
		update agent.Update
		code   agent.ErrorCode
		field  string
		index  int
	}{
		{write("new", ""), agent.ErrInvalid, "write", 1},
		{write("new", "a\x00b"), agent.ErrInvalid, "write", 1},
		{write("new", strings.Repeat("x", 256)), agent.ErrInvalid, "write", 1},
		{write("new", strings.Repeat("x/", 3000)), agent.ErrInvalid, "write", 1},
		{write("new", "x/"), agent.ErrInvalid, "write", 1},
		{write("new", "x/."), agent.ErrInvalid, "write", 1},
		{write("new", "x/y/.."), agent.ErrInvalid, "write", 1},
		{write("new", "a\uFFFDb"), agent.ErrInvalid, "write", 1},
		{write("new", "."), agent.ErrInvalid, "write", 1},
		{write("new", "/workspace/"), agent.ErrInvalid, "write", 1},
		{write("new", ".."), agent.ErrInvalid, "write", 1},
		{write("new", "dir"), agent.ErrWrongType, "write", 1},
		{write("new", "file/x"), agent.ErrWrongType, "write", 1},
		{write("new", "file/x/y"), agent.ErrWrongType, "write", 1},
		{write("new", "new/x"), agent.ErrWrongType, "write", 1},
		{write("new/x", "new"), agent.ErrWrongType, "write", 1},
		{write("new", "lost/x"), agent.ErrWrongType, "write", 1},
		{write("new", "/etc/x"), agent.ErrDenied, "write", 1},
		{write("new", "/usr/bin/sh"), agent.ErrDenied, "write", 1},
		{write("new", "usr/x"), agent.ErrDenied, "write", 1},
		{write("new", "../x"), agent.ErrDenied, "write", 1},
		{write("new", "/new/x"), agent.ErrDenied, "write", 1},
		{write("new", "proc/x"), agent.ErrDenied, "write", 1},
		{write("new", "/proc/1/x"), agent.ErrDenied, "write", 1},
		{write("new", "dev/x"), agent.ErrDenied, "write", 1},
		{write("new", "/proc/1/cwd/x"), agent.ErrDenied, "write", 1},
		{agent.Update{Write: []agent.Write{{Path: "new", Size: 1}, {Path: "file", Directory: true}}}, agent.ErrWrongType, "write", 1},
		{agent.Update{Write: []agent.Write{{Path: "new", Size: 1}, {Path: "x", Size: -2}}}, agent.ErrInvalid, "write", 1},
		{agent.Update{Write: []agent.Write{{Path: "new", Size: 1}, {Path: "x", Mode: 0o17777}}}, agent.ErrInvalid, "write", 1},
		{write(many...), agent.ErrTooMany, "write", 0},
		{remove("dir", ""), agent.ErrInvalid, "delete", 1},
		{remove("dir", "."), agent.ErrInvalid, "delete", 1},
		{remove("dir", "/workspace"), agent.ErrInvalid, "delete", 1},
		{remove("dir", "/"), agent.ErrInvalid, "delete", 1},
		{remove("dir", "dir/.."), agent.ErrInvalid, "delete", 1},
		{remove("dir", "file/"), agent.ErrWrongType, "delete", 1},
		{remove("dir", "self/"), agent.ErrWrongType, "delete", 1},
		{agent.Update{Empty: []string{"dir", "/"}}, agent.ErrInvalid, "empty", 1},
		{agent.Update{Empty: []string{"dir", ".."}}, agent.ErrInvalid, "empty", 1},
		{agent.Update{Empty: []string{"dir", "file"}}, agent.ErrWrongType, "empty", 1},
		{agent.Update{Empty: []string{"dir", "usr"}}, agent.ErrDenied, "empty", 1},
		{agent.Update{Empty: []string{"dir", "proc"}}, agent.ErrDenied, "empty", 1},
		{remove("dir", "/etc/passwd"), agent.ErrDenied, "delete", 1},
		{remove("dir", "/tmp"), agent.ErrDenied, "delete", 1},
		{remove("dir", "/dev/null"), agent.ErrDenied, "delete", 1},
	} {
		_, err := b.update(t, test.update, "x")
		checkError(t, fmt.Sprintf("%.200v", test.update), err, agent.Error{Code: test.code, Field: test.field, Index: test.index})
	}
	if after := b.sh(t, "ls -lAR --full-time").stdout; after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestUpdateFull(t *testing.T) {
	b := newBed(t, 0) // 16 MiB
	b.put(t, agent.Write{Path: "big", Size: 3}, "old")
	content := strings.Repeat("0123456789abcdef", 1<<20)
	content += content
	updated, err := b.update(t, agent.Update{Write: []agent.Write{
		{Path: "first", Size: 5}, {Path: "big", Size: int64(len(content))}, {Path: "last", Size: 7},
	}}, content)
	if err != nil || !slices.Equal(updated.Written, []string{"first", "last"}) || len(updated.Failed) != 1 ||
		updated.Failed[0].Path != "big" || updated.Failed[0].Code != agent.ErrFull {
		t.Fatalf("%+v, %v", updated, err)
	}
	if got := b.sh(t, "cat first big last; ls -A").stdout; got != "01234old0123456big\nfirst\nlast\n" {
		t.Errorf("got %q", got)
	}
}

func TestMove(t *testing.T) {
	b := newBed(t, 0)
	b.sh(t, "echo text >a; chmod 640 a; mkdir -p d/e; echo deep >d/e/f; ln -s a l; ln -s / root; ln -s d linked; echo other >b; ln -s / up")
	move := func(from, to string) (agent.FileInfo, error) {
		return agent.MoveFile(t.Context(), b.dial(t), agent.Move{From: from, To: to})
	}
	for _, test := range []struct{ from, to, kind, target string }{
		{"a", "d/a", "file", ""}, {"d/a", "/workspace/moved", "file", ""}, {"d/e", "e", "directory", ""}, {"l", "m", "link", "a"},
		{"moved", "linked/a", "file", ""}, {"d", "d2/", "directory", ""},
	} {
		info, err := move(test.from, test.to)
		if err != nil || info.Type != test.kind || string(info.LinkTarget) != test.target || string(info.Path) != test.to {
			t.Fatalf("%s to %s: %+v, %v", test.from, test.to, info, err)
		}
	}
	if got := b.sh(t, "cat e/f d2/a; stat -c '%a %U' d2/a; readlink m; ls").stdout; got != "deep\ntext\n640 user\na\nb\nd2\ne\nlinked\nm\nroot\nup\n" {
		t.Errorf("after the moves: %q", got)
	}
	b.sh(t, "ln -s d2 d3")
	before := b.sh(t, "ls -lAR --full-time; ls -lA --full-time /tmp").stdout
	for _, test := range []struct {
		from, to, field string
		code            agent.ErrorCode
	}{
		{"none", "x", "", agent.ErrNotFound}, {"b", "none/x", "", agent.ErrNotFound},
		{"b", "e", "to", agent.ErrDenied}, {"b", "d2/a", "to", agent.ErrDenied}, {"b", "b", "to", agent.ErrDenied}, {"b", "m", "to", agent.ErrDenied},
		{"e", "e/in", "to", agent.ErrInvalid}, {"e", "../workspace/d2/../e/in", "to", agent.ErrInvalid}, {"d2", "linked/in", "", agent.ErrNotFound}, {"d2", "d3/in", "to", agent.ErrDenied}, {"e", "d2/a/x", "", agent.ErrWrongType},
		{"b", "/tmp/x", "to", agent.ErrDenied}, {"b", "/etc/x", "to", agent.ErrDenied}, {"b", "/proc/x", "to", agent.ErrDenied}, {"b", "/dev/x", "to", agent.ErrDenied},
		{"/etc/passwd", "x", "from", agent.ErrDenied}, {"/proc/1/cwd/b", "x", "", agent.ErrDenied},
		{"b/", "x", "from", agent.ErrWrongType}, {"b", "x/", "to", agent.ErrWrongType},
		{"", "x", "from", agent.ErrInvalid}, {"b", "", "to", agent.ErrInvalid}, {"b", "a\x00b", "to", agent.ErrInvalid},
		{".", "x", "from", agent.ErrInvalid}, {"/", "x", "from", agent.ErrInvalid}, {"root/workspace", "x", "from", agent.ErrDenied}, {"b", "/workspace", "to", agent.ErrInvalid},
	} {
		_, err := move(test.from, test.to)
		var e *agent.Error
		if !errors.As(err, &e) || e.Code != test.code || test.field != "" && e.Field != test.field {
			t.Errorf("%q to %q: %+v, want %s for %q", test.from, test.to, err, test.code, test.field)
		}
	}
	if after := b.sh(t, "ls -lAR --full-time; ls -lA --full-time /tmp").stdout; after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// The stream breaks in the middle of a file.
func TestUpdateBroken(t *testing.T) {
	b := newBed(t, 0)
	b.put(t, agent.Write{Path: "a", Size: 3}, "old")
	if _, err := b.update(t, agent.Update{Write: []agent.Write{{Path: "a", Size: 100_000}}}, strings.Repeat("x", 50_000)); err == nil {
		t.Fatal("no error")
	}
	wait.For(t, "the old file is all there is", func() bool { return b.sh(t, "cat a; ls -A").stdout == "olda\n" })
}

// Files belong to the user of commands, who can do with them what an owner can. Protected ones belong
// to root, with all directories between the workspace and them, and the user can't change them. But the
// user can create files next to them.
func TestProtected(t *testing.T) {
	b := newBed(t, 0)
	change := `for f in top own/file made/file; do
		(echo x >>$f) 2>/dev/null && echo "$f is changed"
		mv $f moved 2>/dev/null && echo "$f is moved" && mv moved $f
		rm -f $f 2>/dev/null && echo "$f is removed"
	done; mv own own2 2>/dev/null && echo "own is moved"; mv made other 2>/dev/null && echo "made is moved"
	stat -c '%a %U:%G' . ; for d in . own made made/deep empty; do echo y >$d/mine && rm $d/mine && echo "done in $d"; done`
	for _, test := range []struct {
		protected bool
		want      string
	}{
		{false, "top is changed\ntop is moved\ntop is removed\nown/file is changed\nown/file is moved\nown/file is removed\n" +
			"made/file is changed\nmade/file is moved\nmade/file is removed\nown is moved\nmade is moved\n755 user:user\ndone in .\ndone in empty\n"},
		{true, "1777 root:root\ndone in .\ndone in own\ndone in made\ndone in made/deep\ndone in empty\n"},
	} {
		b.sh(t, "rm -rf *; mkdir -m 700 own")
		update := agent.Update{Protected: test.protected, Write: []agent.Write{{Path: "empty", Directory: true}}}
		for _, path := range []string{"top", "own/file", "made/file", "made/deep/file"} {
			update.Write = append(update.Write, agent.Write{Path: path, Size: 3})
		}
		if updated, err := b.update(t, update, "abc"); err != nil || len(updated.Failed) > 0 {
			t.Fatalf("%+v, %v", updated, err)
		}
		if got := b.sh(t, change).stdout; got != test.want {
			t.Errorf("protected %t:\n got %q\nwant %q", test.protected, got, test.want)
		}
	}
	// Only a protected change reaches protected files.
	updated, err := b.update(t, agent.Update{Delete: []string{"top"}, Write: []agent.Write{{Path: "top", Size: 1}}}, "x")
	if err != nil || len(updated.Failed) != 2 || updated.Failed[0].Code != agent.ErrDenied || !strings.Contains(updated.Failed[0].Message, "protected") {
		t.Errorf("a change of a protected file: %+v, %v", updated, err)
	}
	// A link of the user's could be replaced, so no protected file is written through it.
	b.sh(t, "mkdir target; ln -s target link")
	updated, err = b.update(t, agent.Update{Write: []agent.Write{{Path: "link/f", Size: 1}, {Path: "link/d", Directory: true}}, Protected: true}, "x")
	if err != nil || len(updated.Failed) != 2 || updated.Failed[0].Code != agent.ErrDenied || updated.Failed[1].Code != agent.ErrDenied {
		t.Errorf("through a link: %+v, %v", updated, err)
	}
	// The sticky bit stays with every mode, and other directories of root are unchanged.
	if _, err := b.update(t, agent.Update{Write: []agent.Write{{Path: "target", Directory: true, Mode: 0o777}, {Path: "target/f", Size: 1}, {Path: "closed", Directory: true, Mode: 0o755}, {Path: "closed/f", Size: 1}}, Protected: true}, "xx"); err != nil {
		t.Error(err)
	}
	if got := b.sh(t, "ls -A target; stat -c '%a %U' target closed").stdout; got != "f\n1777 root\n1755 root\n" {
		t.Errorf("got %q", got)
	}
	_, err = b.update(t, agent.Update{Write: []agent.Write{{Path: "closed/new", Size: 1}}}, "x")
	checkError(t, "a file in a closed directory", err, agent.Error{Code: agent.ErrDenied, Field: "write"})
	for _, protected := range []bool{false, true} {
		moved, err := agent.MoveFile(t.Context(), b.dial(t), agent.Move{From: "top", To: "top2", Protected: protected})
		if (err == nil) != protected || protected && moved.Owner != "root" {
			t.Errorf("a move with protected %t: %+v, %v", protected, moved, err)
		}
	}
	if updated, err := b.update(t, agent.Update{Delete: []string{"top2", "made"}, Protected: true}, ""); err != nil || len(updated.Deleted) != 2 {
		t.Errorf("a protected delete: %+v, %v", updated, err)
	}
	// A protected file elsewhere leaves the workspace alone.
	b = newBed(t, 0)
	if updated, err := b.update(t, agent.Update{Write: []agent.Write{{Path: "/tmp/f", Size: 1}}, Protected: true}, "x"); err != nil || len(updated.Failed) > 0 {
		t.Fatalf("%+v, %v", updated, err)
	}
	if got := b.sh(t, "stat -c '%a %U' . /tmp/f").stdout; got != "755 user\n644 root\n" {
		t.Errorf("got %q", got)
	}
}

// User code swaps a directory and a link to a directory of protected files, while files are written,
// deleted and moved there. It can't make the agent change what the user code can't.
func TestSwappedLinksDontReachProtectedFiles(t *testing.T) {
	b := newBed(t, 0)
	protected := agent.Update{Write: []agent.Write{{Path: "/tmp/kept", Directory: true, Mode: 0o755}, {Path: "/tmp/kept/x", Size: 4}, {Path: "/tmp/kept/y", Size: 4}}, Protected: true}
	if updated, err := b.update(t, protected, "keep"); err != nil || len(updated.Failed) > 0 {
		t.Fatalf("%+v, %v", updated, err)
	}
	b.sh(t, "mkdir d; ln -s /tmp/kept link; cp -r link/. d")
	s, err := b.session(t, agent.Start{Env: testEnv, Argv: []string{"perl", "-e", fmt.Sprintf(`$d = "d"; $link = "link"; $| = 1; print "up\n"; while (1) { syscall(%d, %d, $d, %d, $link, %d) }`,
		unix.SYS_RENAMEAT2, unix.AT_FDCWD, unix.AT_FDCWD, unix.RENAME_EXCHANGE)}})
	if err != nil {
		t.Fatal(err)
	}
	up(t, s)
	for range 300 {
		updated, err := b.update(t, agent.Update{Delete: []string{"d/x"}, Write: []agent.Write{{Path: "d/y", Size: 1}, {Path: "d/new/z", Size: 1}}}, "z")
		var e *agent.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("%+v, %v", updated, err)
		}
		_, _ = agent.MoveFile(t.Context(), b.dial(t), agent.Move{From: "d/y", To: "d/moved"})
	}
	_ = s.Kill(0)
	b.finish(t, s)
	if got := b.sh(t, "cd /tmp/kept && cat * && ls -A").stdout; got != "keepkeepx\ny\n" {
		t.Errorf("got %q", got)
	}
}

// User code swaps its directories with others and with links, while protected files are written there. A
// file that was written stays in its place, and no link leads it elsewhere.
func TestSwappedDirectoriesAreProtected(t *testing.T) {
	b := newBed(t, 0)
	const pairs = 200
	b.sh(t, fmt.Sprintf("mkdir /tmp/kept; for i in $(seq 0 2 %d); do mkdir d$i e$i; done; for i in $(seq 1 2 %d); do mkdir d$i; ln -s /tmp/kept e$i; done", pairs-1, pairs-1))
	// It swaps one pair until it is refused, then the next one.
	s, err := b.session(t, agent.Start{Env: testEnv, Argv: []string{"perl", "-e", fmt.Sprintf(`$| = 1; print "up\n";
		while (1) { $i += 0; $d = "d$i"; $e = "e$i"; $i++ if syscall(%d, %d, $d, %d, $e, %d) < 0 && $i < %d }`,
		unix.SYS_RENAMEAT2, unix.AT_FDCWD, unix.AT_FDCWD, unix.RENAME_EXCHANGE, pairs)}})
	if err != nil {
		t.Fatal(err)
	}
	up(t, s)
	written := 0
	for i := range pairs {
		for range 100 { // until no link is in the way, which can also stay
			updated, err := b.update(t, agent.Update{Write: []agent.Write{{Path: fmt.Sprintf("d%d/f", i), Size: 1}}, Protected: true}, "x")
			var e *agent.Error
			if err != nil && !errors.As(err, &e) {
				t.Fatalf("%+v, %v", updated, err)
			}
			if len(updated.Written) == 1 {
				written++
				break
			}
		}
	}
	_ = s.Kill(0)
	b.finish(t, s)
	b.sh(t, "rm -rf *")
	if got := b.sh(t, "ls d*/f | wc -l; ls -A /tmp/kept").stdout; got != fmt.Sprintln(written) || written < pairs/2 {
		t.Errorf("%d of %d are written, and left are %q", written, pairs, got)
	}
}

// User code swaps a directory and a link to a place outside of the workspace, while files are
// written and deleted there.
func TestUpdateRace(t *testing.T) {
	b := newBed(t, 0)
	b.sh(t, "mkdir -p /tmp/victim d; chmod 755 d; echo keep >/tmp/victim/keep")
	s, err := b.session(t, agent.Start{Env: testEnv, Argv: []string{"perl", "-e", `
		while (1) { rename "d", "e"; symlink "/proc/self", "d"; unlink "d"; symlink "/etc", "d"; unlink "d"; mkdir "d"; rmdir "d"; rename "e", "d" }`}})
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		_, err := b.update(t, agent.Update{
			Empty:  []string{"d/x"},
			Delete: []string{"d/y"},
			Write:  []agent.Write{{Path: "d/x/f", Size: 1}, {Path: "d/y", Size: 1}},
		}, "x")
		var e *agent.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
	}
	_ = s.Kill(0)
	b.finish(t, s)
	if got := b.sh(t, "cat /tmp/victim/keep; ls /etc; find /workspace -name '.rockpool*'").stdout; got != "keep\ngroup\npasswd\n" {
		t.Errorf("got %q", got)
	}
}

// Commands start while programs are written. A child has the agent's descriptors until its exec,
// and the kernel refuses to execute a file that is open for writing.
func TestWrittenProgramsCanBeExecutedImmediately(t *testing.T) {
	b := newBed(t, 0)
	done := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	defer close(done)
	for other := range 4 {
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if what := b.attempt(t, fmt.Sprintf("other-%d-%d", other, i)); what != "exit 0" {
					t.Error(what)
					return
				}
			}
		})
	}
	for i := range 300 {
		name := fmt.Sprintf("program-%d", i)
		b.put(t, agent.Write{Path: name, Size: 10, Mode: 0o755}, "#!/bin/sh\n")
		if r, err := b.start(t, agent.Start{Argv: []string{"./" + name}, Env: testEnv}); err != nil || r.exit.Code != 0 {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
	}
}
