package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/need"
)

// A bed is a directory for an image, next to a place that must not change.
type bed struct {
	t       testing.TB
	dir     string // contains root and outside
	limits  Limits
	root    *os.Root
	u       *Tree
	touched string // a file outside, which must not change
}

func newBed(t testing.TB) *bed {
	t.Helper()
	need.Sandboxes(t)
	dir := t.TempDir()
	tr := &bed{t: t, dir: dir, limits: Limits{Bytes: 1 << 20, Entries: 1000}, touched: filepath.Join(dir, "outside", "file")}
	for _, d := range []string{"root", "outside"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(tr.touched, []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	tr.root = root
	tr.u = newTree(root, Spec{Limits: tr.limits})
	tr.u.room = func() error { return nil }
	return tr
}

func (tr *bed) apply(layers ...[]byte) error {
	for _, l := range layers {
		if err := tr.u.Layer(context.Background(), bytes.NewReader(l)); err != nil {
			return err
		}
	}
	return tr.u.setTimes()
}

// unharmed fails the test if anything outside of the root was changed, or if it contains a device,
// a privilege or a foreign owner.
func (tr *bed) unharmed() {
	tr.t.Helper()
	text, err := os.ReadFile(tr.touched)
	info, statErr := os.Stat(tr.touched)
	if err != nil || statErr != nil || string(text) != "outside" || info.Mode() != 0o644 || info.Sys().(*syscall.Stat_t).Nlink != 1 {
		tr.t.Errorf("a file outside was changed: %q %v %v", text, info, err)
	}
	for dir, want := range map[string]int{tr.dir: 2, filepath.Join(tr.dir, "outside"): 1} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
			tr.t.Errorf("%s has %v (%v)", dir, entries, err)
		}
	}
	err = filepath.WalkDir(filepath.Join(tr.dir, "root"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		if info.Mode()&(fs.ModeDevice|fs.ModeCharDevice|fs.ModeSetuid) != 0 || !d.IsDir() && info.Mode()&fs.ModeSetgid != 0 || stat.Uid > maxID || stat.Gid > maxID {
			tr.t.Errorf("%s is %v of %d:%d", path, info.Mode(), stat.Uid, stat.Gid)
		}
		return nil
	})
	if err != nil {
		tr.t.Error(err)
	}
}

// has fails the test unless these files have these texts; "-": the file is missing.
func (tr *bed) has(files map[string]string) {
	tr.t.Helper()
	for name, want := range files {
		text, err := os.ReadFile(filepath.Join(tr.dir, "root", name))
		if want == "-" {
			if _, err := os.Lstat(filepath.Join(tr.dir, "root", name)); !errors.Is(err, fs.ErrNotExist) {
				tr.t.Errorf("%s is there (%v)", name, err)
			}
			continue
		}
		if err != nil || string(text) != want {
			tr.t.Errorf("%s is %q (%v), not %q", name, text, err, want)
		}
	}
}

type (
	entry  = imagetest.Entry
	header = tar.Header
)

var (
	file = imagetest.File
	kind = imagetest.Kind
)

func TestLayersAreApplied(t *testing.T) {
	tr := newBed(t)
	at := time.Unix(1234567890, 0)
	lower := imagetest.Layer(t,
		entry{Header: header{Name: "./", Mode: 0o700, Typeflag: tar.TypeDir}},
		entry{Header: header{Name: "d/", Mode: 0o1777, Uid: 5, Gid: 70000, ModTime: at}},
		entry{Header: header{Name: "d/own", Mode: 0o4640, Uid: 7, Gid: 8, ModTime: at, PAXRecords: map[string]string{
			"SCHILY.xattr.user.note": "hello", "SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "SCHILY.xattr.trusted.x": "y"}}, Content: []byte("own")},
		file("d/gone", "x"), file("d/stays", "stays"), file("o/below/1", "1"), file("o/2", "2"),
		kind(tar.TypeLink, "d/same", "d/own"), kind(tar.TypeLink, "/d/again", "/d/own"),
		kind(tar.TypeSymlink, "abs", "/d"), kind(tar.TypeSymlink, "o/abs", "/d"), file("o/abs/deep", "deep"), kind(tar.TypeSymlink, "up", "../../../d"),
		kind(tar.TypeFifo, "pipe", ""), kind(tar.TypeChar, "null", ""), kind(tar.TypeBlock, "disk", ""),
		file("through", "file"), file("deep/er/file", "deep"), file("link-target", "old"), kind(tar.TypeLink, "hard", "link-target"),
	)
	upper := imagetest.Layer(t,
		file("d/.wh.gone", ""), file("o/new", "new"), file("o/.wh..wh..opq", ""), file("o/late", "late"),
		file("abs/into", "into"), file("up/too", "too"), // links lead as in a runner
		kind(tar.TypeDir, "through/", ""), file("through/inside", "inside"), // a directory in a file's place
		file("deep", "flat"), // and the other way round
		file("link-target", "new"), file("nowhere/.wh.nothing", ""), file(".wh..wh.plnk", ""),
		file("kept", "kept"), file(".wh.kept", ""), // this layer's own
	)
	if err := tr.apply(lower, upper); err != nil {
		t.Fatal(err)
	}
	tr.has(map[string]string{
		"d/own": "own", "d/same": "own", "d/again": "own", "d/stays": "stays", "d/gone": "-", "o/below": "-", "o/2": "-", "o/new": "new", "o/late": "late",
		"d/into": "into", "d/too": "too", "d/deep": "deep", "through/inside": "inside", "deep": "flat", "link-target": "new", "hard": "old", "nowhere": "-",
		"null": "-", "disk": "-", ".wh..wh.plnk": "-", "d/.wh.gone": "-", "kept": "kept",
	})
	tr.unharmed()
	var stat, other unix.Stat_t
	for name, want := range map[string]struct{ mode, uid, gid uint32 }{
		".": {0o755, 0, 0}, "d": {0o1777, 5, nobody}, "d/own": {0o640, 7, 8}, "pipe": {0o644, 0, 0}, "o": {0o755, 0, 0},
	} {
		if err := unix.Lstat(filepath.Join(tr.dir, "root", name), &stat); err != nil || stat.Mode&0o7777 != want.mode || stat.Uid != want.uid || stat.Gid != want.gid {
			t.Errorf("%s is %o of %d:%d (%v), not %+v", name, stat.Mode, stat.Uid, stat.Gid, err, want)
		}
	}
	own := filepath.Join(tr.dir, "root", "d", "own")
	if unix.Lstat(own, &stat) != nil || unix.Lstat(filepath.Join(tr.dir, "root", "d", "same"), &other) != nil || stat.Ino != other.Ino {
		t.Error("a hard link is another file")
	}
	for _, name := range []string{"d", "d/own"} {
		if info, err := os.Lstat(filepath.Join(tr.dir, "root", name)); err != nil || !info.ModTime().Equal(at) {
			t.Errorf("%s is of %v", name, info.ModTime())
		}
	}
	value := make([]byte, 64)
	if n, err := unix.Getxattr(own, "user.note", value); err != nil || string(value[:n]) != "hello" {
		t.Errorf("user.note is %q (%v)", value[:max(n, 0)], err)
	}
	for _, name := range []string{"security.capability", "trusted.x"} {
		if _, err := unix.Getxattr(own, name, value); err != unix.ENODATA {
			t.Errorf("%s: got %v, want %v", name, err, unix.ENODATA)
		}
	}
}

// Each of these layers attempts something forbidden. Those without an error are applied without the
// forbidden part.
func TestHostileLayers(t *testing.T) {
	t.Parallel()
	outside := "../outside/file"
	long := strings.Repeat("a/", 300)
	for name, c := range map[string]struct {
		layers  [][]entry
		refused string
	}{
		"a file above":                     {[][]entry{{file("../outside/new", "x")}}, "leads out"},
		"a file above, behind directories": {[][]entry{{file("a/b/../../../outside/file", "x")}}, "leads out"},
		"an absolute file":                 {[][]entry{{file("/outside/file", "x")}}, ""},
		"through an absolute link":         {[][]entry{{kind(tar.TypeSymlink, "l", "/proc/self/cwd/"), file("l/x", "x")}}, ""},
		"through a link above":             {[][]entry{{kind(tar.TypeSymlink, "l", "../outside"), file("l/file", "x"), file("l/new", "x")}}, ""},
		"through links in links":           {[][]entry{{kind(tar.TypeSymlink, "a", "b/.."), kind(tar.TypeSymlink, "b", "../outside"), file("a/outside/file", "x")}}, ""},
		"a link swapped in":                {[][]entry{{file("d/x", "x")}, {kind(tar.TypeSymlink, "d", "../outside"), file("d/file", "x")}}, ""},
		"a link in the same layer":         {[][]entry{{file("d/x", "x"), file("d/y", "x"), kind(tar.TypeSymlink, "d", "../outside"), file("d/file", "x")}}, ""},
		"a file over a link":               {[][]entry{{kind(tar.TypeSymlink, "l", outside), file("l", "x")}}, ""},
		"a directory over a link":          {[][]entry{{kind(tar.TypeSymlink, "l", "../outside"), {Header: header{Name: "l/", Mode: 0o777}}}}, ""},
		"a hard link above":                {[][]entry{{kind(tar.TypeLink, "h", outside)}}, "leads out"},
		"an absolute hard link":            {[][]entry{{kind(tar.TypeLink, "h", "/etc/passwd")}}, "no such file"},
		"a hard link through a link":       {[][]entry{{kind(tar.TypeSymlink, "l", "../outside"), kind(tar.TypeLink, "h", "l/file"), file("h", "x")}}, "no such file"},
		"a hard link to a link":            {[][]entry{{kind(tar.TypeSymlink, "l", outside), kind(tar.TypeLink, "h", "l"), file("h", "x")}}, ""},
		"a hard link to a directory":       {[][]entry{{kind(tar.TypeDir, "d/", ""), kind(tar.TypeLink, "h", "d")}}, "directory"},
		"a whiteout above":                 {[][]entry{{file("a/.wh...", "")}}, ""},
		"a whiteout of nothing":            {[][]entry{{file("d/x", "x")}, {file("d/.wh.", "")}}, "delete"},
		"a whiteout through a link":        {[][]entry{{kind(tar.TypeSymlink, "l", "../outside")}, {file("l/.wh.file", "")}}, ""},
		"an opaque link":                   {[][]entry{{kind(tar.TypeSymlink, "l", "../outside")}, {file("l/.wh..wh..opq", "")}}, ""},
		"a device":                         {[][]entry{{{Header: header{Typeflag: tar.TypeChar, Name: "d", Devmajor: 1, Devminor: 3, Mode: 0o666}}, {Header: header{Typeflag: tar.TypeBlock, Name: "b", Devmajor: 8, Mode: 0o666}}}}, ""},
		"setuid and a capability":          {[][]entry{{{Header: header{Name: "s", Mode: 0o6755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}}}}}, ""},
		"a path too deep":                  {[][]entry{{file(long+"x", "x")}}, "deep"},
		"a path too deep, through links":   {[][]entry{{file(long[:400]+"x", "x"), kind(tar.TypeSymlink, "l", long[:400]), file("l/"+long[:400]+"x", "x")}}, "deep"},
		"links in a circle":                {[][]entry{{kind(tar.TypeSymlink, "a", "b"), kind(tar.TypeSymlink, "b", "a"), file("a/x", "x")}}, "links"},
		"a file as a directory":            {[][]entry{{file("f", "x"), file("f/x", "x")}}, "isn't a directory"},
		"a root that is a file":            {[][]entry{{{Header: header{Typeflag: tar.TypeSymlink, Name: "./", Linkname: "/"}}}}, "root"},
		"an unknown kind":                  {[][]entry{{{Header: header{Typeflag: 'Z', Name: "z"}}}}, "type"},
		"a name with NUL":                  {[][]entry{{{Header: header{Name: "n", Typeflag: tar.TypeSymlink, Linkname: "x", PAXRecords: map[string]string{"SCHILY.xattr.user.": "x"}}}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newBed(t)
			var layers [][]byte
			for _, l := range c.layers {
				layers = append(layers, imagetest.Layer(t, l...))
			}
			err := tr.apply(layers...)
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
			if err != nil && (runtime.CodeOf(err) != runtime.CodeInvalidInput || strings.Contains(runtime.MessageOf(err), tr.dir)) {
				t.Errorf("the message for clients is %q", runtime.MessageOf(err))
			}
			tr.unharmed()
		})
	}
}

// Disk space is checked while a large file is written, and for entries without bytes.
func TestRoomIsCheckedWhileUnpacking(t *testing.T) {
	t.Parallel()
	var many []entry
	for i := range 2 * RoomEveryEntries {
		many = append(many, entry{Header: header{Name: fmt.Sprintf("%d/", i), Typeflag: tar.TypeDir}})
	}
	for name, layer := range map[string][]byte{
		"one file": imagetest.Layer(t, file("large", strings.Repeat("x", 4*roomEvery))),
		"many":     imagetest.Layer(t, many...),
	} {
		t.Run(name, func(t *testing.T) {
			tr := newBed(t)
			asked := 0
			tr.u = newTree(tr.root, Spec{Limits: Limits{Bytes: 1 << 30, Entries: 1 << 20}})
			tr.u.room = func() error {
				if asked++; asked > 1 {
					return unix.ENOSPC
				}
				return nil
			}
			if err := tr.apply(layer); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("%v after %d checks", err, asked)
			}
			if info, err := os.Stat(filepath.Join(tr.dir, "root", "large")); err == nil && info.Size() > 2*roomEvery {
				t.Errorf("%d bytes were written", info.Size())
			}
		})
	}
}

// An attribute that is too large for the file system is the image's error: the disk isn't full.
func TestTooLargeAttributeIsTheImagesError(t *testing.T) {
	tr := newBed(t)
	large := map[string]string{"SCHILY.xattr.user.large": strings.Repeat("x", 60000)}
	err := tr.apply(imagetest.Layer(t, entry{Header: header{Name: "f", PAXRecords: large}}))
	if err != nil && (IsFull(err) || runtime.CodeOf(err) != runtime.CodeInvalidInput) {
		t.Error(err)
	}
}

func TestBombsAreRefused(t *testing.T) {
	sparse := sparseBomb(t)
	for name, c := range map[string]struct {
		limits  Limits
		layer   []byte
		refused string
	}{
		"one byte too many: refused":             {Limits{Bytes: 64 << 10, Entries: 10}, imagetest.Layer(t, file("a", strings.Repeat("x", 65<<10))), "64 KiB"},
		"one file too many: refused":             {Limits{Bytes: 1 << 20, Entries: 3}, imagetest.Layer(t, file("a", ""), file("b", ""), file("c", ""), file("d", "")), "3 files"},
		"implied directories count: refused":     {Limits{Bytes: 1 << 20, Entries: 3}, imagetest.Layer(t, file("a/b/c/d/e", "")), "3 files"},
		"bytes after the archive count: refused": {Limits{Bytes: 64 << 10, Entries: 10}, append(imagetest.Layer(t, file("a", "")), make([]byte, 128<<10)...), "64 KiB"},
		"a sparse file's size counts: refused":   {Limits{Bytes: 1 << 20, Entries: 10}, sparse, "1024 KiB"},
		"no tar archive: refused":                {Limits{Bytes: 1 << 20, Entries: 10}, bytes.Repeat([]byte("x"), 2048), "layer"},
		"an archive that is cut: refused":        {Limits{Bytes: 1 << 20, Entries: 10}, imagetest.Layer(t, file("a", strings.Repeat("x", 4096)))[:2048], "can't be"},
		"within the limits: unpacked":            {Limits{Bytes: 64 << 10, Entries: 4}, imagetest.Layer(t, file("a/b/c/d", strings.Repeat("x", 32<<10))), ""},
		"a name too long: refused":               {Limits{Bytes: 1 << 20, Entries: 10}, imagetest.Layer(t, file(strings.Repeat("x", 5000), "")), "5000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newBed(t)
			tr.u.spec.Limits = c.limits
			err := tr.apply(c.layer)
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(runtime.MessageOf(err), c.refused)) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
			tr.unharmed()
		})
	}
}

// sparseBomb returns an archive of a file of 1 TiB that is nearly all a hole.
func sparseBomb(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	content := "1\n1099511627776\n0\n"
	err := w.WriteHeader(&tar.Header{Name: "GNUSparseFile.0/bomb", Mode: 0o644, Size: 512, Format: tar.FormatPAX, PAXRecords: map[string]string{"ROCKPOOL.placeholder": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(append([]byte(content), make([]byte, 512-len(content))...))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// Go's writer makes no sparse files: their records replace other ones.
	return rewritePAX(t, b.Bytes())
}

func rewritePAX(t testing.TB, archive []byte) []byte {
	t.Helper()
	var records string
	for _, r := range []string{"GNU.sparse.major=1\n", "GNU.sparse.minor=0\n", "GNU.sparse.name=bomb\n", "GNU.sparse.realsize=1099511627776\n"} {
		n := len(r) + 3
		records += string(rune('0'+n/10)) + string(rune('0'+n%10)) + " " + r
	}
	copy(archive[512:1024], make([]byte, 512))
	copy(archive[512:], records)
	size := []byte("00000000000\x00")
	for i, n := 10, len(records); n > 0; i, n = i-1, n/8 {
		size[i] = byte('0' + n%8)
	}
	copy(archive[124:136], size)
	copy(archive[148:156], "        ")
	sum := 0
	for _, c := range archive[:512] {
		sum += int(c)
	}
	check := []byte("000000\x00 ")
	for i, n := 5, sum; n > 0; i, n = i-1, n/8 {
		check[i] = byte('0' + n%8)
	}
	copy(archive[148:156], check)
	return archive
}

func FuzzLayer(f *testing.F) {
	f.Add(imagetest.Layer(f, file("a/b", "x"), kind(tar.TypeSymlink, "l", "../outside"), file("l/file", "x")))
	f.Add(imagetest.Layer(f, kind(tar.TypeSymlink, "l", "/"), kind(tar.TypeLink, "h", "l/../outside/file"), file("h", "x")))
	f.Add(imagetest.Layer(f, file("o/x", ""), file("o/.wh..wh..opq", ""), file("o/.wh.x", ""), kind(tar.TypeFifo, "p", ""), kind(tar.TypeChar, "c", "")))
	f.Add(sparseBomb(f))
	f.Fuzz(func(t *testing.T, layer []byte) {
		tr := newBed(t)
		tr.u.spec = Spec{
			Limits: Limits{Bytes: 64 << 10, Entries: 100}, User: "user:l", WorkingDirectory: "/o/l",
			Skeleton: Skeleton{Directories: []string{"/proc", "/a/b"}, Files: map[string]string{"/etc/hosts": "x"}, Home: "/w"},
		}
		_ = tr.apply(layer)
		_ = tr.u.prepare(context.Background())
		tr.unharmed()
	})
}
