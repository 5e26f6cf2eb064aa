package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLinesGoToTheFileAtThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	f, err := OpenLines(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	write := func(text string) {
		t.Helper()
		if n, err := f.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	write("1\n")
	write("2\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("3\n")
	if err := os.Rename(path, path+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("of a server that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	write("4\n")
	f.Close()
	write("5\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("lost\n")); err == nil {
		t.Error("a line was written to a directory")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write("6\n")
	for file, want := range map[string]string{path + ".1": "1\n2\n", path + ".2": "3\n", path: "6\n"} {
		if got := read(t, file); got != want {
			t.Errorf("%s has %q instead of %q", file, got, want)
		}
	}
	if _, err := OpenLines(filepath.Join(path, "below"), 0o600); err == nil {
		t.Error("a file below a file was opened")
	}
}

func TestTruncatedLinesAreEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte("of a server that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenLines(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte("1\n2\n")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "of a server that was killed\n1\n2\n" {
		t.Errorf("%q", got)
	}

	var s stream
	f = StreamLines(&s)
	for _, room := range []int{3, 0, 1, 100} {
		s.room = room
		_, _ = f.Write([]byte("abcd\n"))
	}
	f.Close()
	if got := s.String(); got != "abc\nabcd\n" {
		t.Errorf("%q", got)
	}
}

// A stream accepts a limited number of bytes.
type stream struct {
	bytes.Buffer
	room int
}

func (s *stream) Write(p []byte) (int, error) {
	n := min(len(p), s.room)
	s.room -= n
	_, _ = s.Buffer.Write(p[:n]) // it takes all
	if n < len(p) {
		return n, errors.New("it is full")
	}
	return n, nil
}
