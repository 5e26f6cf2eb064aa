package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seeds are one frame of each shape, and some malformed ones.
func seeds(t testing.TB) (frames [][]byte) {
	t.Helper()
	for kind, v := range map[Kind]any{
		KindRequest:  Request{Protocol: 1, Start: &Start{ID: "a", Argv: []string{"echo", "é\n"}, TimeLimit: time.Second}},
		KindResponse: Response{Protocol: 1, Error: &Error{Code: ErrNotFound, Message: "no"}},
		KindExited:   Exit{Code: 3, Output: 5},
		KindFile:     FileInfo{Path: []byte("a\xff"), Type: "file"},
		KindUpdated:  Updated{Written: []string{"a"}},
		KindKill:     Kill{Grace: time.Second},
	} {
		frame, err := AppendJSON(nil, kind, v)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame)
	}
	return append(frames,
		AppendOutput(nil, 2, 7, time.Millisecond, []byte("text")),
		AppendStdin(nil, 7, []byte("text")),
		AppendStdinWindow(nil, 1, 2), AppendAck(nil, 9),
		AppendResized(nil, 7, time.Millisecond, Size{Columns: 80, Rows: 24}), AppendResizedAck(nil, time.Millisecond),
		AppendFrame(nil, KindStdinEnd, nil), AppendFrame(nil, KindSettled, nil), AppendFrame(nil, KindEnd, nil),
		AppendFrame(nil, KindData, make([]byte, MaxData)),
		AppendFrame(nil, KindData, make([]byte, MaxData+1)),
		AppendFrame(nil, KindData, nil),
		[]byte{0xff, 0xff, 0xff, 0xff, byte(KindRequest)},
		[]byte{0, 0, 0, 0, 0}, []byte{0, 0},
	)
}

func FuzzFrame(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
		f.Add(append(append([]byte{}, seed...), seed...))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		for _, side := range []Side{ClientSide, AgentSide} {
			whole := readAll(t, NewFrameReader(bytes.NewReader(stream), side))
			slow := readAll(t, NewFrameReader(iotest.OneByteReader(bytes.NewReader(stream)), side))
			if !bytes.Equal(whole, slow) {
				t.Errorf("the frames depend on how they arrive")
			}
			if !bytes.HasPrefix(stream, whole) {
				t.Errorf("frames were changed: % x of % x", whole, stream)
			}
		}
	})
}

// readAll reads all frames and encodes them again.
func readAll(t *testing.T, frames *FrameReader) (all []byte) {
	t.Helper()
	for {
		kind, body, err := frames.Next()
		if most := max(2*(len(all)+frames.w-frames.r), firstBuffer); len(frames.buf) > max(most, keptBuffer) {
			t.Errorf("%d bytes are held of %d", len(frames.buf), len(all)+frames.w-frames.r)
		}
		if err != nil {
			return all
		}
		all = AppendFrame(all, kind, body)
		switch kind {
		case KindOutput:
			_, _, _, _, _ = ParseOutput(body)
		case KindStdin:
			_, _, _ = ParseStdin(body)
		case KindStdinWindow:
			_, _, _ = ParseStdinWindow(body)
		case KindAck:
			_, _ = ParseAck(body)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"start":{"id":"a","argv":["x"],"timeLimit":-1}}`))
	f.Add([]byte(`{"protocol":1,"update":{"delete":["a"],"write":[{"path":"b","size":9223372036854775807}]}}`))
	f.Add([]byte(`{"ping":{},"list":null}`))
	f.Add([]byte(`{"protocol":1,"search":{"path":"d","name":"*","text":"/w==","most":1}}`))
	f.Add([]byte(`{"protocol":1,"watch":{"path":"d","recursive":true}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var request Request
		if err := ParseJSON(body, &request); err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("error %v, want %v", err, ErrProtocol)
			}
			return
		}
		frame, err := AppendJSON(nil, KindRequest, request)
		if err != nil {
			return // too long
		}
		var again Request
		if err := ParseJSON(frame[headerSize:], &again); err != nil {
			t.Fatal(err)
		}
		if twice, err := AppendJSON(nil, KindRequest, again); err != nil || !bytes.Equal(frame, twice) {
			t.Errorf("%q became %q, %v", frame, twice, err)
		}
	})
}

// FuzzResponse feeds every kind of client an arbitrary answer, as a hostile agent may send.
func FuzzResponse(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		s := &Session{conn: &discard{}, frames: NewFrameReader(bytes.NewReader(stream), ClientSide), terminal: true}
		s.stdin.init()
		offset, ended := int64(0), false
		for {
			event, err := s.Next()
			if err != nil {
				if (err == io.EOF) != ended {
					t.Errorf("%v after exit %t", err, ended)
				}
				return
			}
			if ended {
				t.Error("an event after the exit")
			}
			switch event.Kind {
			case KindOutput:
				if event.Offset != offset || len(event.Data) == 0 {
					t.Errorf("%d bytes at %d, due was %d", len(event.Data), event.Offset, offset)
				}
				offset += int64(len(event.Data))
			case KindResized:
				if event.Offset != offset || event.Size.Check() != nil {
					t.Errorf("%+v at %d, due was %d", event.Size, event.Offset, offset)
				}
			case KindExited:
				ended = true
			}
		}
	})
}

// FuzzFinderAnswers feeds a search and a watch arbitrary answers: all values that the caller sees
// are within bounds.
func FuzzFinderAnswers(f *testing.F) {
	found, err := AppendJSON(nil, KindResponse, Response{Protocol: Protocol, Found: &Found{Matches: []Match{{File: FileInfo{Path: []byte("a")}, Line: 1}}, Limit: LimitTime}})
	if err != nil {
		f.Fatal(err)
	}
	changes, err := AppendJSON(AppendFrame(nil, KindResponse, []byte(`{"protocol":1}`)), KindChanges, Changes{Changes: []Change{{Path: []byte("a"), Kind: ChangeRemoved}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(found)
	f.Add(changes)
	f.Fuzz(func(t *testing.T, stream []byte) {
		answer := func() net.Conn { return &answeredConn{Reader: bytes.NewReader(stream)} }
		if found, err := SearchFiles(t.Context(), answer(), Search{Name: "*", Most: 2}); err == nil && (len(found.Matches) > 2 || found.Skipped < 0) {
			t.Errorf("%+v", found)
		}
		w, err := WatchFiles(t.Context(), answer(), Watch{})
		for err == nil {
			var changes Changes
			if changes, err = w.Next(); len(changes.Changes) > MaxChanges {
				t.Errorf("%d changes", len(changes.Changes))
			}
		}
	})
}

// answeredConn is a connection that already holds its answer.
type answeredConn struct {
	discard
	*bytes.Reader
}

func (a *answeredConn) Read(p []byte) (int, error) { return a.Reader.Read(p) }

func (a *answeredConn) Write(p []byte) (int, error) { return len(p), nil }

func TestFrameBounds(t *testing.T) {
	for _, test := range []struct {
		name  string
		side  Side
		frame []byte
		want  error
	}{
		{"the other side's", ClientSide, AppendAck(nil, 1), ErrProtocol},
		{"the other side's size", AgentSide, AppendResized(nil, 0, 0, Size{Columns: 1, Rows: 1}), ErrProtocol},
		{"a size that is short", ClientSide, AppendFrame(nil, KindResized, make([]byte, resizedBody-1)), ErrProtocol},
		{"unknown kind", AgentSide, AppendFrame(nil, 99, nil), ErrProtocol},
		{"too long", AgentSide, AppendFrame(nil, KindData, make([]byte, MaxData+1)), ErrProtocol},
		{"too short", ClientSide, AppendFrame(nil, KindOutput, make([]byte, outputHeader)), ErrProtocol},
		{"empty", AgentSide, []byte{0, 0, 0, 0, byte(KindStdinEnd)}, ErrProtocol},
		{"cut header", AgentSide, []byte{0, 0}, io.ErrUnexpectedEOF},
		{"cut body", AgentSide, AppendAck(nil, 1)[:9], io.ErrUnexpectedEOF},
		{"cut at the header", AgentSide, AppendAck(nil, 1)[:5], io.ErrUnexpectedEOF},
		{"end", AgentSide, nil, io.EOF},
		{"longest", AgentSide, AppendFrame(nil, KindRequest, make([]byte, MaxFrame-1)), nil},
	} {
		_, body, err := NewFrameReader(bytes.NewReader(test.frame), test.side).Next()
		if !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
		if err == nil && len(body) != len(test.frame)-headerSize {
			t.Errorf("%s: %d bytes", test.name, len(body))
		}
	}
	// A frame whose body never arrives takes no memory, whatever its length says.
	huge := binary.BigEndian.AppendUint32(nil, MaxFrame)
	r := NewFrameReader(bytes.NewReader(append(huge, byte(KindRequest), 1, 2)), AgentSide)
	if _, _, err := r.Next(); err != io.ErrUnexpectedEOF || len(r.buf) > firstBuffer {
		t.Errorf("%d bytes for %v", len(r.buf), err)
	}
	if _, err := ParseAck(bytes.Repeat([]byte{0xff}, 8)); !errors.Is(err, ErrProtocol) {
		t.Errorf("an offset that is negative: got %v, want %v", err, ErrProtocol)
	}
}

func BenchmarkFrameReader(b *testing.B) {
	var stream []byte
	for i := range 32 {
		stream = AppendOutput(stream, 1, int64(i)*MaxData, 0, make([]byte, MaxData))
	}
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewFrameReader(bytes.NewReader(stream), ClientSide)
		for range 32 {
			if _, _, err := r.Next(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// A stdin window after the last output isn't an event. So Buffered must not make the caller wait
// for another one.
func TestBuffered(t *testing.T) {
	output, window := AppendOutput(nil, 1, 0, 0, []byte("x")), AppendStdinWindow(nil, 1, 2)
	for name, c := range map[string]struct {
		after []byte
		want  bool
	}{
		"nothing":            {nil, false},
		"output":             {output, true},
		"some of an output":  {output[:headerSize+1], true},
		"a window":           {window, false},
		"some of a window":   {window[:headerSize+1], false},
		"two windows":        {append(window[:len(window):len(window)], window...), false},
		"a window and more":  {append(window[:len(window):len(window)], output...), true},
		"a byte of a header": {output[:1], true},
	} {
		f := NewFrameReader(bytes.NewReader(append(output[:len(output):len(output)], c.after...)), ClientSide)
		if _, _, err := f.Next(); err != nil {
			t.Fatal(err)
		}
		if got := f.Buffered(KindStdinWindow); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
