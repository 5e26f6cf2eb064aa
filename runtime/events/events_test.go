package events

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	x := runtime.Execution{ID: "x", State: runtime.ExecutionFinished, Timestamps: runtime.Timestamps{StartedAt: time.Now()}}
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

// TestTextIsWholeCharacters: the texts of a stream's events are the text of all its bytes, however both
// streams' bytes are divided into pieces, where output is missing, and wherever readers resume. The data
// stay exact.
func TestTextIsWholeCharacters(t *testing.T) {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"é", "€", "😀", "a", "\xc3", "\xa9", "\xe2\x82", "\xac", "\xf0", "\x9f", "\x98\x80", "\xff"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 5), func(b []byte) string { return string(b) }),
	)
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, rand.Text())
		log := output.New(output.File(path))
		x := runtime.Execution{ID: "x", State: runtime.ExecutionFinished, Timestamps: runtime.Timestamps{StartedAt: time.Now()}}
		var data, want [3]string
		var part [3]string // since output was lost
		cut := func() {
			for s := range part {
				want[s] += runtime.Text([]byte(part[s]))
				part[s] = ""
			}
		}
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			stream := runtime.Stream(rapid.SampledFrom([]int{1, 1, 2, 0}).Draw(t, "stream"))
			if stream == 0 {
				x.Usage.OutputBytes += 7
				cut()
				continue
			}
			text := piece.Draw(t, "piece")
			if err := errors.Join(log.Add(output.Record{Stream: stream, Offset: x.Usage.OutputBytes, Data: []byte(text)}), log.Flush()); err != nil {
				t.Fatal(err)
			}
			x.Usage.OutputBytes += int64(len(text))
			data[stream] += text
			part[stream] += text
		}
		cut()
		if err := log.End(); err != nil {
			t.Fatal(err)
		}
		var gotData, gotText [3]string
		cursor := ""
		for ended := false; !ended; {
			at, err := Parse(x.ID, cursor)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Open(at, Source{Execution: x, Log: output.File(path), Known: func(context.Context, runtime.ExecutionID) (bool, error) { return true, nil }})
			if err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(1, 4).Draw(t, "events") {
				event, err := r.TryNext()
				if err != nil {
					t.Fatal(err)
				}
				gotData[event.Stream] += string(event.Data)
				gotText[event.Stream] += event.Text()
				cursor = event.Cursor
				if ended = event.Kind == Finished; ended {
					break
				}
				r.Until(cursor) // has no effect
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if gotData != data || gotText != want {
			t.Fatalf("bytes %q, want %q; text %q, want %q", gotData, data, gotText, want)
		}
	})
}

func TestCursorsWithUnfinishedCharactersAreChecked(t *testing.T) {
	at := At("x", 7, 9, runtime.Characters{"\xe2\x82", "\xf0"})
	if got, err := Parse("x", at.String()); err != nil || got != at {
		t.Errorf("%+v, %v", got, err)
	}
	for _, begun := range []runtime.Characters{{"a", ""}, {"\xe2\x82\xac", ""}, {"", "\x82"}, {"\xc3\xc3", ""}} {
		if _, err := Parse("x", At("x", 7, 9, begun).String()); runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("%q: got %v, want INVALID_INPUT", begun, err)
		}
	}
}
