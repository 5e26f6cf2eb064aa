package tree

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
)

// As many layers as builders make; each deletes files of the one before.
func TestManyLayers(t *testing.T) {
	var layers [][]byte
	for i := range 127 {
		entries := []entry{file(fmt.Sprintf("d/%d", i), fmt.Sprint(i)), file("same", fmt.Sprint(i))}
		if i > 0 {
			entries = append(entries, file(fmt.Sprintf("d/.wh.%d", i-1), ""))
		}
		layers = append(layers, imagetest.Layer(t, entries...))
	}
	tr := newBed(t)
	if err := tr.apply(layers...); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(tr.dir, "root", "d"))
	if err != nil || len(left) != 1 {
		t.Errorf("%v (%v)", left, err)
	}
	tr.has(map[string]string{"d/126": "126", "same": "126"})
}

// Names may contain any bytes that the kernel accepts.
func TestOddNames(t *testing.T) {
	long := strings.Repeat("n", 200)
	names := []string{"a b", "new\nline", "back\\slash", "quote\"'", "\t", "日本/語", "-rf", "*", long, "d" + long + "/" + long, "dots...", "...", strings.Repeat("n", 255)}
	raw := []string{"\xff\xfe", "half\xc3"} // no UTF-8
	for _, format := range []tar.Format{tar.FormatPAX, tar.FormatGNU} {
		all := names
		if format == tar.FormatGNU {
			all = append(all, raw...)
		}
		var entries []entry
		want := map[string]string{}
		for i, name := range all {
			entries = append(entries, entry{Header: header{Name: name, Format: format}, Content: []byte(fmt.Sprint(i))}, entry{Header: header{Name: fmt.Sprintf("link%d", i), Typeflag: tar.TypeSymlink, Linkname: name, Format: format}})
			want[name], want[fmt.Sprintf("link%d", i)] = fmt.Sprint(i), fmt.Sprint(i)
		}
		tr := newBed(t)
		if err := tr.apply(imagetest.Layer(t, entries...)); err != nil {
			t.Fatal(err)
		}
		tr.has(want)
		tr.unharmed()
	}
	tr := newBed(t)
	if err := tr.apply(imagetest.Layer(t, file(strings.Repeat("n", 256), ""))); runtime.CodeOf(err) != runtime.CodeInvalidInput {
		t.Errorf("a name that no file can have: got %v, want INVALID_INPUT", err)
	}
}

// Of two entries with the same name in a layer, the last one counts.
func TestDuplicateEntries(t *testing.T) {
	tr := newBed(t)
	err := tr.apply(
		imagetest.Layer(t, file("lower", "lower"), file("below/x", "x"), file("kept", "kept"), file("d1/x", "1")),
		imagetest.Layer(t,
			file("f", "first"), file("f", "last"), file("./f2", "first"), file("/f2", "last"),
			file("d", "a file"), kind(tar.TypeDir, "d/", ""), file("d/in", "in"),
			kind(tar.TypeDir, "e/", ""), file("e/in", "in"), file("e", "a file"),
			kind(tar.TypeSymlink, "s", "f"), file("s", "its own"),
			kind(tar.TypeLink, "hard", "lower"), kind(tar.TypeLink, "hard2", "kept"), file(".wh.kept", ""), // across layers
			file("f3", "x"), kind(tar.TypeLink, "h3", "f3"), file("f3", "y"),
			file("below", "flat"), kind(tar.TypeSymlink, "d1", "d"), file("d1/through", "t"),
			file("gone", "x"), file(".wh.gone", ""), // files of this layer stay
		))
	if err != nil {
		t.Fatal(err)
	}
	tr.has(map[string]string{
		"f": "last", "f2": "last", "d/in": "in", "e": "a file", "s": "its own", "hard": "lower", "hard2": "kept", "kept": "-",
		"f3": "y", "h3": "x", "below": "flat", "d/through": "t", "gone": "x",
	})
	var lower, hard unix.Stat_t
	if err := unix.Lstat(filepath.Join(tr.dir, "root", "lower"), &lower); err != nil || unix.Lstat(filepath.Join(tr.dir, "root", "hard"), &hard) != nil || lower.Ino != hard.Ino {
		t.Errorf("a hard link to a lower layer's file is another file (%v)", err)
	}
	tr.unharmed()
}

// Sparse files have all their bytes, in each format of tar.
func TestSparseFiles(t *testing.T) {
	dir := t.TempDir()
	content := append(append(bytes.Repeat([]byte("a"), 4096), make([]byte, 256<<10)...), bytes.Repeat([]byte("z"), 4096)...)
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, len(content) - 4096} {
		if _, err := f.WriteAt(content[at:at+4096], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, format := range [][]string{{"--format=gnu"}, {"--format=posix", "--sparse-version=1.0"}, {"--format=posix", "--sparse-version=0.1"}, {"--format=posix", "--sparse-version=0.0"}} {
		layer, err := exec.CommandContext(t.Context(), "tar", append(format, "--sparse", "-C", dir, "-cf", "-", "sparse")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if len(layer) > 100<<10 {
			t.Errorf("%q: the archive isn't sparse: %d bytes", format, len(layer))
		}
		tr := newBed(t)
		if err := tr.apply(layer); err != nil {
			t.Errorf("%q: %v", format, err)
		}
		tr.has(map[string]string{"sparse": string(content)})
	}
}
