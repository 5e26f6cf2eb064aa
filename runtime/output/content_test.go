package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// TestContentIsWhatWasPrinted writes random logs with gaps, and reads random parts of either stream
// and of both, also while the log grows.
func TestContentIsWhatWasPrinted(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "log")
		_ = os.Remove(path)
		l := New(File(path))
		want := map[runtime.Stream][]byte{0: {}, runtime.Stdout: {}, runtime.Stderr: {}}
		var lost int64
		for range rapid.IntRange(0, 30).Draw(t, "records") {
			r := Record{
				Stream: rapid.SampledFrom([]runtime.Stream{runtime.Stdout, runtime.Stderr}).Draw(t, "stream"),
				Offset: l.Next(),
				Data:   rapid.SliceOfN(rapid.Byte(), 1, rapid.SampledFrom([]int{1, 100, MaxData}).Draw(t, "most")).Draw(t, "data"),
			}
			gap := rapid.SampledFrom([]int64{0, 0, 0, 7}).Draw(t, "gap")
			r.Offset += gap
			lost += gap
			if err := errors.Join(l.Add(r), l.Flush()); err != nil {
				t.Fatal(err)
			}
			want[0] = append(want[0], r.Data...)
			want[r.Stream] = append(want[r.Stream], r.Data...)
		}
		stream := rapid.SampledFrom([]runtime.Stream{0, runtime.Stdout, runtime.Stderr}).Draw(t, "read")
		c, err := l.Content(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := errors.Join(l.Add(Record{Stream: runtime.Stdout, Offset: l.Next(), Data: []byte("too late")}), l.Flush(), l.End()); err != nil {
			t.Fatal(err)
		}
		if c.Size() != int64(len(want[stream])) || c.Lost() != lost || c.End() != int64(len(want[0]))+lost {
			t.Fatalf("%d bytes, %d lost, end %d", c.Size(), c.Lost(), c.End())
		}
		for range rapid.IntRange(1, 5).Draw(t, "parts") {
			from := rapid.IntRange(0, len(want[stream])).Draw(t, "from")
			most := rapid.IntRange(0, len(want[stream])-from).Draw(t, "length")
			if _, err := c.Seek(int64(from), io.SeekStart); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(io.LimitReader(c, int64(most)))
			if err != nil || !bytes.Equal(got, want[stream][from:from+most]) {
				t.Fatalf("%d bytes from %d on: %d others, %v", most, from, len(got), err)
			}
		}
	})
}

func TestContentOfAnEndedLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	none, err := OpenContent(t.Context(), File(path), 0)
	if err != nil || none.Size() != 0 {
		t.Fatalf("no log: %v", err)
	}
	l := New(File(path))
	for _, text := range []string{"one", "two", "three"} {
		write(t, l, text)
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	c, err := OpenContent(t.Context(), File(path), runtime.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := iotest.TestReader(c, []byte("onetwothree")); err != nil {
		t.Error(err)
	}
	// A file shorter than its counted size is an error, never an early end.
	if err := os.Truncate(path, 60); err != nil {
		t.Fatal(err)
	}
	cut, err := OpenContent(t.Context(), File(path), 0)
	if err != nil || cut.Size() != 6 {
		t.Fatalf("a torn record counts: %v, %v", cut, err)
	}
	defer cut.Close()
	if err := os.Truncate(path, 30); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(cut); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errTorn) {
		t.Errorf("of a log that was cut: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenContent(ctx, File(path), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}
