package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// layer writes a tar archive with one file.
func layer(content string) func(io.Writer) error {
	return func(w io.Writer) error {
		t := tar.NewWriter(w)
		err := t.WriteHeader(&tar.Header{Name: "etc/version", Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(1, 0)})
		if err == nil {
			_, err = io.WriteString(t, content)
		}
		return errors.Join(err, t.Close())
	}
}

func TestTheSameContentIsTheSameFile(t *testing.T) {
	dir := t.TempDir()
	var files [][]byte
	var digests []string
	for _, image := range []struct {
		name, content string
	}{{"a.tar", "1"}, {"b.tar", "1"}, {"c.tar", "2"}} {
		var written archive
		if err := write(filepath.Join(dir, image.name), time.Unix(1000, 0), layer(image.content), &written); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, image.name))
		if err != nil {
			t.Fatal(err)
		}
		files, digests = append(files, text), append(digests, written.digest.String())
	}
	if !bytes.Equal(files[0], files[1]) || digests[0] != digests[1] {
		t.Errorf("the same content gave %q", digests)
	}
	if digests[0] == digests[2] {
		t.Errorf("different contents have the digest %s", digests[0])
	}
}

func TestAFailedBuildKeepsTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := write(file, time.Unix(1000, 0), func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return broken }, new(archive))
	text, _ := os.ReadFile(file)
	entries, _ := os.ReadDir(filepath.Dir(file))
	if !errors.Is(err, broken) || string(text) != "before" || len(entries) != 1 {
		t.Errorf("%v, %q, %d files", err, text, len(entries))
	}
}
