package events

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// TestLendingReturnsTheSameData reads pieces of all sizes twice: with copies, and lent.
func TestLendingReturnsTheSameData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := output.New(output.File(path))
	var offset int64
	for i, size := range []int{1, 20_000, 20_000, 100, output.MaxData, output.MaxData, 5, 16 << 10, 16<<10 + 1, 16<<10 - 1, 30_000, 3} {
		data := bytes.Repeat([]byte{byte('a' + i)}, size)
		if err := errors.Join(log.Add(output.Record{Stream: runtime.Stdout, Offset: offset, Data: data}), log.Flush()); err != nil {
			t.Fatal(err)
		}
		offset += int64(size)
	}
	if err := log.End(); err != nil {
		t.Fatal(err)
	}
	x := runtime.Execution{ID: "x", State: runtime.ExecutionFinished, Marks: runtime.Marks{StartedAt: time.Now()}}
	x.Usage.OutputBytes = offset
	read := func(lent bool) (all []byte) {
		r, err := Open(Cursor{id: x.ID}, Source{Execution: x, Log: output.File(path)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if lent {
			r.Lending()
		}
		for {
			event, err := r.TryNext()
			switch {
			case errors.Is(err, io.EOF):
				return all
			case err != nil || event.Kind == Lost:
				t.Fatalf("lent %v: %+v, %v", lent, event, err)
			case len(event.Data) > MaxBytes:
				t.Errorf("lent %v: an event of %d bytes", lent, len(event.Data))
			}
			all = append(all, event.Data...)
			// A reader that resumes here gets the rest only.
			at, err := Parse(x.ID, event.Cursor)
			if err != nil || event.Kind == Output && at.offset != int64(len(all)) {
				t.Fatalf("lent %v: the cursor after %d bytes is %+v, %v", lent, len(all), at, err)
			}
		}
	}
	copied, lent := read(false), read(true)
	if int64(len(copied)) != offset || !bytes.Equal(copied, lent) {
		t.Errorf("%d bytes copied, %d lent, %d printed", len(copied), len(lent), offset)
	}
}

// BenchmarkRead reads a log of large pieces, as a subscription does.
func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "log")
	log := output.New(output.File(path))
	const pieces, size = 256, 28 << 10
	for i := range pieces {
		if err := errors.Join(log.Add(output.Record{Stream: runtime.Stdout, Offset: int64(i * size), Data: make([]byte, size)}), log.Flush()); err != nil {
			b.Fatal(err)
		}
	}
	if err := log.End(); err != nil {
		b.Fatal(err)
	}
	x := runtime.Execution{ID: "x", State: runtime.ExecutionFinished}
	x.Usage.OutputBytes = pieces * size
	b.SetBytes(pieces * size)
	b.ReportAllocs()
	for b.Loop() {
		r, err := Open(Cursor{id: x.ID}, Source{Execution: x, Log: output.File(path)})
		if err != nil {
			b.Fatal(err)
		}
		r.Lending()
		for err == nil {
			_, err = r.TryNext()
		}
		if !errors.Is(err, io.EOF) || r.Close() != nil {
			b.Fatal(err)
		}
	}
}
