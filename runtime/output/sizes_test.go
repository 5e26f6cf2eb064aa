package output

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

func TestLogsWithoutSizesAreRead(t *testing.T) {
	// "one" and, after a gap, "two", as servers before the sizes wrote them.
	old, err := hex.DecodeString("3d5a0de903000000010000000000000000dc050000000000006f6e65" + "0f66e8ff03000000020a0000000000000080841e000000000074776f")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	r := open(t, path, 0)
	for _, want := range []string{`{STDOUT 0 1.5ms "one"}`, `{STDERR 10 2s "two"}`} {
		record, err := r.TryNext()
		if got := fmt.Sprintf("{%v %d %v %q}", record.Stream, record.Offset, record.Since, record.Data); err != nil || got != want || record.Resized() {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if _, err := r.TryNext(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want %v", err, io.EOF)
	}
	l, err := Recover(File(path))
	if since, printed := l.First(); err != nil || l.Next() != 13 || !printed || since != 1500*time.Microsecond || l.Resized() != 0 {
		t.Error(l, err)
	}
	if err := l.End(); err != nil {
		t.Error(err)
	}
}

// TestSizesAmongOutput writes output and sizes at random, truncates the log anywhere, continues it,
// and reads it from every position. Sizes must stay in their place, and not change offsets.
func TestSizesAmongOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	rapid.Check(t, func(t *rapid.T) {
		_ = os.Remove(path)
		l := New(File(path))
		var want []string
		var ends []int64 // of the records, in the file
		since := time.Duration(0)
		add := func() {
			since += time.Millisecond
			r := Record{Stream: runtime.Stdout, Offset: l.Next(), Since: since}
			if rapid.Bool().Draw(t, "size") {
				r.Stream, r.Size = 0, runtime.TerminalSize{Columns: rapid.IntRange(1, runtime.MaxTerminalSize).Draw(t, "columns"), Rows: 3}
			} else {
				r.Data = rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "data")
			}
			if err := errors.Join(l.Add(r), l.Flush()); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprint(r))
			ends = append(ends, l.size)
		}
		for range rapid.IntRange(0, 20).Draw(t, "before") {
			add()
		}
		if err := l.End(); err != nil {
			t.Fatal(err)
		}
		if len(ends) > 0 {
			cut := rapid.Int64Range(0, l.size).Draw(t, "cut")
			if err := os.Truncate(path, cut); err != nil {
				t.Fatal(err)
			}
			whole := 0
			for whole < len(ends) && ends[whole] <= cut {
				whole++
			}
			want, ends = want[:whole], ends[:whole]
			var err error
			if l, err = Recover(File(path)); err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 5).Draw(t, "after") {
				add()
			}
			if err := l.End(); err != nil {
				t.Fatal(err)
			}
		}
		for from := range ends {
			var got []string
			r, err := OpenReader(File(path), slices.Concat([]int64{0}, ends)[from])
			if err != nil {
				t.Fatal(err)
			}
			for record, err := r.TryNext(); !errors.Is(err, io.EOF); record, err = r.TryNext() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprint(record))
			}
			_ = r.Close()
			if !slices.Equal(got, want[from:]) {
				t.Fatalf("from %d on: %v, want %v", from, got, want[from:])
			}
		}
	})
}

// TestLostSizeIsAddedAgain checks this because later output would otherwise be displayed at the
// wrong size.
func TestLostSizeIsAddedAgain(t *testing.T) {
	small, large := runtime.TerminalSize{Columns: 80, Rows: 24}, runtime.TerminalSize{Columns: 200, Rows: 50}
	quota := NewQuota(1 << 20)
	l := New(File(filepath.Join(t.TempDir(), "log"))).Within(quota)
	add := func(r Record) {
		r.Offset = l.Next()
		if err := l.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	add(Record{Since: 1, Size: small})
	add(Record{Stream: runtime.Stdout, Since: 2, Data: []byte("before")})
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	quota.Add(1 << 20)
	add(Record{Since: 3, Size: large})
	add(Record{Stream: runtime.Stdout, Since: 4, Data: make([]byte, MaxData)})
	if err := l.Flush(); !errors.Is(err, ErrQuota) {
		t.Fatalf("got %v, want %v", err, ErrQuota)
	}
	add(Record{Stream: runtime.Stdout, Since: 5, Data: make([]byte, MaxData)}) // and again
	if err := l.Flush(); !errors.Is(err, ErrQuota) {
		t.Fatalf("got %v, want %v", err, ErrQuota)
	}
	quota.Add(-1 << 20)
	for _, text := range []string{"after", "wards"} {
		add(Record{Stream: runtime.Stdout, Since: 6, Data: []byte(text)})
	}
	if err := errors.Join(l.Flush(), l.End()); err != nil {
		t.Fatal(err)
	}
	c, err := OpenContent(t.Context(), l.location, runtime.Stderr) // what is lost and resized is so for any stream
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var sizes []runtime.TerminalSize
	var missing int64
	for {
		record, lost, err := c.Next()
		missing += lost
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || !record.Resized() {
			t.Fatal(record, err)
		}
		sizes = append(sizes, record.Size)
	}
	if !slices.Equal(sizes, []runtime.TerminalSize{small, large}) || missing != 2*MaxData || c.Lost() != missing {
		t.Errorf("sizes %v, %d bytes are missing, of %d", sizes, missing, c.Lost())
	}
}

func TestSizesAreBounded(t *testing.T) {
	l := New(File(filepath.Join(t.TempDir(), "log")))
	for n := range MaxSizes + 10 {
		if err := l.Add(Record{Since: time.Duration(n + 1), Size: runtime.TerminalSize{Columns: n%2 + 1, Rows: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.Pending(); got != MaxSizes*(headerSize+sizeBytes) || l.Resized() != MaxSizes+10 {
		t.Errorf("%d bytes, the last is of %d", got, l.Resized())
	}
	for _, size := range []runtime.TerminalSize{{Columns: -1, Rows: 1}, {Columns: 1}, {Columns: 1, Rows: runtime.MaxTerminalSize + 1}} {
		if err := l.Add(Record{Size: size}); err == nil {
			t.Errorf("%v was taken", size)
		}
	}
	if err := l.Add(Record{Size: runtime.TerminalSize{Columns: 1, Rows: 1}, Data: []byte("x")}); err == nil {
		t.Error("both was taken")
	}
}
