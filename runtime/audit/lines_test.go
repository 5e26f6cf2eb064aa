package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/runtime/store"
)

// copier is a copy of lines, with the errors that it reported.
type copier struct {
	*lines
	mu   sync.Mutex
	said []string
}

func newCopier(t *testing.T, path string, stream io.Writer) *copier {
	t.Helper()
	c := &copier{}
	var err error
	c.lines, err = newLines(path, stream, func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.said = append(c.said, fmt.Sprint(err))
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// put writes lines, and returns the reported error.
func (c *copier) put(values ...string) string {
	var text string
	for _, v := range values {
		text += v + "\n"
	}
	c.copies <- []byte(text)
	close(c.copies)
	c.run()
	c.copies, c.done = make(chan []byte, mostCopies), make(chan struct{})
	return c.said[len(c.said)-1]
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

// TestLostLinesAreCounted also loses the count itself, and checks that incomplete lines are ended.
func TestLostLinesAreCounted(t *testing.T) {
	s := &stream{room: 6}
	c := newCopier(t, "-", s)
	if said := c.put("a", "b", "cdef", "ghi"); !strings.Contains(said, "it is full") {
		t.Error(said)
	}
	for _, room := range []int{0, 1, 5} {
		s.room = room
		c.put("xyz")
	}
	s.room = 1000
	if said := c.put("j"); said != "<nil>" {
		t.Error(said)
	}
	want := "a\nb\ncd\n{\"los\n{\"lost\": 5}\nj\n"
	if got := s.String(); got != want {
		t.Errorf("%q instead of %q", got, want)
	}
	if n := c.lost.Load(); n != 0 {
		t.Error(n, "are lost yet")
	}
}

func TestFullDeviceIsReported(t *testing.T) {
	c := newCopier(t, "/dev/full", nil)
	if said := c.put("a"); !strings.Contains(said, "no space left") || !strings.Contains(said, "the database has all") || c.lost.Load() != 1 {
		t.Error(said, c.lost.Load())
	}
}

// TestSlowLinesDoNotBlockAppend checks that a slow copy blocks neither Append nor the log's end.
func TestSlowLinesDoNotBlockAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		c := newCopier(t, "-", writer)
		go c.run()
		row := []store.AuditRow{{Value: []byte("a")}, {Value: []byte("b")}}
		c.add(row)
		synctest.Wait() // that is being written
		for range mostCopies + 3 {
			c.add(row)
		}
		if n := c.lost.Load(); n != 6 || c.said[0] != errSlow.Error() {
			t.Error(n, c.said)
		}
		c.end()
		text := make(chan string)
		go func() {
			all, _ := io.ReadAll(reader)
			text <- string(all)
		}()
		<-c.done
		_ = writer.Close()
		if got, want := <-text, "a\nb\n{\"lost\": 6}\n"+strings.Repeat("a\nb\n", mostCopies); got != want {
			t.Errorf("%d bytes instead of %d", len(got), len(want))
		}
	})
}

// TestWritesDoNotHideLostLines checks that a copy that lost lines during a write is still reported
// as behind, although the write succeeded.
func TestWritesDoNotHideLostLines(t *testing.T) {
	s := &behind{}
	c := newCopier(t, "-", s)
	s.lines = c.lines
	c.failing(errSlow)
	if said := c.put("a"); said != fmt.Sprint(errSlow) {
		t.Error(said)
	}
	s.lines = nil
	if said := c.put("b"); said != "<nil>" {
		t.Error(said)
	}
}

// behind is a stream that loses lines during each write.
type behind struct{ lines *lines }

func (s *behind) Write(p []byte) (int, error) {
	if s.lines != nil {
		s.lines.lost.Add(1)
	}
	return len(p), nil
}
