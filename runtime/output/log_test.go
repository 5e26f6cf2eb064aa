package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, l *Log, data string) {
	t.Helper()
	r := Record{Stream: runtime.Stdout, Offset: l.Next(), Since: 1234 * time.Microsecond, Data: []byte(data)}
	if err := errors.Join(l.Add(r), l.Flush()); err != nil {
		t.Fatal(err)
	}
}

// read reads up to the end.
func read(t testing.TB, r *Reader) string {
	t.Helper()
	var all []byte
	for {
		record, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return string(all)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, record.Data...)
	}
}

func open(t testing.TB, path string, position int64) *Reader {
	t.Helper()
	r, err := OpenReader(File(path), position)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestReadersBeforeDuringAndAfter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "log")
	l := New(File(path))
	var want bytes.Buffer
	var group sync.WaitGroup
	results := make(chan string, 100)
	for i := range 300 {
		if i%10 == 0 {
			r, err := l.Reader(0)
			if err != nil {
				t.Fatal(err)
			}
			group.Go(func() {
				defer r.Close()
				results <- read(t, r)
			})
		}
		line := fmt.Sprintf("%d %s\n", i, bytes.Repeat([]byte("x"), rand.IntN(9000)))
		want.WriteString(line)
		write(t, l, line)
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	close(results)
	n := 0
	for got := range results {
		n++
		if got != want.String() {
			t.Error("a reader during the run read something else")
		}
	}
	if n != 30 || read(t, open(t, path, 0)) != want.String() {
		t.Error("the reader after the end read something else")
	}
}

// TestResume reads random logs in random pieces, each from the position at which the previous one ended.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		l := New(File(path))
		var want []byte
		for _, data := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 1, 300)).Draw(rt, "records") {
			write(t, l, string(data))
			want = append(want, data...)
		}
		if err := l.End(); err != nil {
			rt.Fatal(err)
		}
		var got []byte
		position := int64(0)
		for ended := false; !ended; {
			r, err := OpenReader(File(path), position)
			if err != nil {
				rt.Fatal(err)
			}
			for range rapid.IntRange(0, 5).Draw(rt, "piece") {
				record, err := r.TryNext()
				if ended = errors.Is(err, io.EOF); ended {
					break
				}
				if err != nil {
					rt.Fatal(err)
				}
				got = append(got, record.Data...)
			}
			position = r.Position()
			r.Close()
		}
		if !bytes.Equal(got, want) {
			rt.Fatalf("read %q, want %q", got, want)
		}
	})
}

func TestOnlyPositionsBetweenRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := New(File(path))
	for range 5 {
		write(t, l, "0123456789")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(headerSize + 10)
	for position := int64(-1); position <= info.Size()+1; position++ {
		between := position >= 0 && position <= info.Size() && position%size == 0
		for name, open := range map[string]func() (*Reader, error){
			"live": func() (*Reader, error) { return l.Reader(position) },
			"file": func() (*Reader, error) { return OpenReader(File(path), position) },
		} {
			r, err := open()
			if (err == nil) != between {
				t.Errorf("%s reader at %d: %v", name, position, err)
			}
			if err == nil {
				r.Close()
			} else if !errors.Is(err, ErrPosition) {
				t.Errorf("%s reader at %d: %v, want ErrPosition", name, position, err)
			}
		}
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
}

// TestRecover truncates a log at every byte: whole records stay, and the log continues after them.
func TestRecover(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := New(File(path))
	write(t, l, "first ")
	write(t, l, "second ")
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		want := ""
		switch {
		case cut == len(whole):
			want = "first second "
		case cut >= headerSize+len("first "):
			want = "first "
		}
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if got := read(t, open(t, path, 0)); got != want {
			t.Errorf("cut at %d: a reader reads %q, want %q", cut, got, want)
		}
		l, err := Recover(File(path))
		if err != nil {
			t.Fatal(err)
		}
		if l.Next() != int64(len(want)) {
			t.Errorf("cut at %d: next is %d, want %d", cut, l.Next(), len(want))
		}
		write(t, l, "third")
		if err := l.End(); err != nil {
			t.Fatal(err)
		}
		if got := read(t, open(t, path, 0)); got != want+"third" {
			t.Errorf("cut at %d: after recovery %q", cut, got)
		}
	}
}

func TestRecoverWithoutAFile(t *testing.T) {
	l, err := Recover(File(filepath.Join(t.TempDir(), "none")))
	if err != nil || l.Next() != 0 {
		t.Fatal(l, err)
	}
	if err := l.End(); err != nil {
		t.Error(err)
	}
}

func TestAppendRefuses(t *testing.T) {
	l := New(File(filepath.Join(t.TempDir(), "log")))
	write(t, l, "12345")
	for name, r := range map[string]Record{
		"an offset before the end": {Offset: 4, Data: []byte("x")},
		"no data":                  {Offset: 5},
		"too much data":            {Offset: 5, Data: make([]byte, MaxData+1)},
	} {
		if err := l.Add(r); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := l.Add(Record{Stream: runtime.Stderr, Offset: 100, Data: []byte("after a gap")}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(l.Flush(), l.End()); err != nil {
		t.Error(err)
	}
}

func TestNoFileWithoutOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := New(File(path))
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat: got %v, want %v", err, os.ErrNotExist)
	}
	if got := read(t, open(t, path, 0)); got != "" {
		t.Errorf("read %q, want \"\"", got)
	}
}

func TestReaderEndsWithItsContext(t *testing.T) {
	l := New(File(filepath.Join(t.TempDir(), "log")))
	r, err := l.Reader(0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := r.TryNext(); !errors.Is(err, ErrWait) {
		t.Errorf("got %v, want %v", err, ErrWait)
	}
}

// TestFullDisk fills a tiny file system: records are lost but never written in part, and the log
// continues once there is room.
func TestFullDisk(t *testing.T) {
	dir := tinyDisk(t, 64<<10)
	filler := filepath.Join(dir, "filler")
	path := filepath.Join(dir, "log")
	l := New(File(path))
	write(t, l, "before")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, zeros{}, 1<<20); err == nil {
		t.Fatal("the disk isn't tiny")
	}
	f.Close()
	large := bytes.Repeat([]byte("x"), 20<<10)
	if err := l.Add(Record{Stream: runtime.Stdout, Offset: l.Next(), Data: large}); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(); err == nil {
		t.Fatal("a full disk accepted it")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	write(t, l, "after")
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	r := open(t, path, 0)
	first, err := r.TryNext()
	if err != nil || string(first.Data) != "before" {
		t.Fatal(first, err)
	}
	second, err := r.TryNext()
	if err != nil || string(second.Data) != "after" || second.Offset != int64(len("before")+len(large)) {
		t.Error(second, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func FuzzDecode(f *testing.F) {
	f.Add(encode(nil, Record{Stream: runtime.Stdout, Offset: 7, Since: time.Second, Data: []byte("hello")}))
	f.Add(encode(nil, Record{Offset: 7, Since: time.Second, Size: runtime.TerminalSize{Columns: 80, Rows: 24}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, size, err := decode(raw)
		if err != nil {
			return
		}
		if size > len(raw) || r.Resized() == (len(r.Data) > 0) || len(r.Data) > MaxData {
			t.Errorf("decoded %d bytes of %d: %+v", size, len(raw), r)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	l := New(File(filepath.Join(b.TempDir(), "log")))
	data := make([]byte, MaxData)
	b.SetBytes(MaxData)
	for b.Loop() {
		if err := errors.Join(l.Add(Record{Stream: runtime.Stdout, Offset: l.Next(), Data: data}), l.Flush()); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.End(); err != nil {
		b.Fatal(err)
	}
}

// Next waits for the next record and returns it; its Data is valid until the next call. It returns io.EOF
// when the execution has ended and there is no more record, even if a power cut damaged the log's end.
// It returns ctx's cause when ctx ends.
func (r *Reader) Next(ctx context.Context) (Record, error) {
	if err := r.Wait(ctx); err != nil {
		return Record{}, err
	}
	return r.TryNext()
}
