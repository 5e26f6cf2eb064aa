package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// discard is a stream whose peer neither reads nor writes.
type discard struct{ net.Conn }

func (*discard) Close() error                     { return nil }
func (*discard) Write(b []byte) (int, error)      { return len(b), nil }
func (*discard) SetWriteDeadline(time.Time) error { return nil }

// play is an agent that reads one request, writes the given answer, and then discards what it
// receives.
func play(t testing.TB, answer ...[]byte) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, _, err := NewFrameReader(theirs, AgentSide).Next(); err != nil {
			return
		}
		for _, frame := range answer {
			if _, err := theirs.Write(frame); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, theirs)
	}()
	return ours
}

func frame(t testing.TB, kind Kind, v any) []byte {
	t.Helper()
	f, err := AppendJSON(nil, kind, v)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ok(t testing.TB) []byte { return frame(t, KindResponse, Response{Protocol: Protocol}) }

func TestHostileAgent(t *testing.T) {
	started := frame(t, KindStarted, Started{})
	out := func(offset int64, text string) []byte { return AppendOutput(nil, 1, offset, 0, []byte(text)) }
	sized := func(offset int64, at time.Duration, columns int) []byte {
		return AppendResized(nil, offset, at, Size{Columns: columns, Rows: 24})
	}
	for name, answer := range map[string][][]byte{
		"no start":           {out(0, "a")},
		"two starts":         {started, started},
		"gap":                {started, out(0, "a"), out(2, "b")},
		"repeat":             {started, out(0, "ab"), out(1, "b")},
		"stream 3":           {started, AppendOutput(nil, 3, 0, 0, []byte("a"))},
		"short exit":         {started, out(0, "a"), frame(t, KindExited, Exit{Output: 2})},
		"exit before start":  {frame(t, KindExited, Exit{})},
		"file":               {started, frame(t, KindFile, FileInfo{})},
		"no JSON":            {started, AppendFrame(nil, KindExited, []byte("nope"))},
		"shrinking window":   {started, AppendStdinWindow(nil, 0, 10), AppendStdinWindow(nil, 0, 5)},
		"size 0":             {started, sized(0, 1000, 0)},
		"size too large":     {started, sized(0, 1000, MaxSize+1)},
		"size elsewhere":     {started, out(0, "a"), sized(2, 1000, 80)},
		"size twice":         {started, sized(0, 1000, 80), sized(0, 1000, 80)},
		"size without time":  {started, sized(0, 0, 80)},
		"window of the past": {started, AppendStdinWindow(nil, 0, 10), AppendStdinWindow(nil, 3, 20)},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := StartExecution(t.Context(), play(t, append([][]byte{ok(t)}, answer...)...), Start{ID: "a", Terminal: &Size{Columns: 80, Rows: 24}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for err == nil {
				_, err = s.Next()
			}
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("error %v, want %v", err, ErrProtocol)
			}
		})
	}
}

// A KindResized frame for an execution without a terminal violates the protocol.
func TestSizesWithoutATerminalViolateTheProtocol(t *testing.T) {
	for _, terminal := range []*Size{{Columns: 80, Rows: 24}, nil} {
		s, err := StartExecution(t.Context(), play(t, ok(t), frame(t, KindStarted, Started{}), AppendResized(nil, 0, time.Millisecond, Size{Columns: 80, Rows: 24})), Start{ID: "a", Terminal: terminal})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		event, err := s.Next()
		if terminal != nil && (err != nil || event.Kind != KindResized || event.Size.Columns != 80 || event.Time != time.Millisecond) || terminal == nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("terminal %v: got %+v, %v", terminal, event, err)
		}
		_ = s.Close()
	}
}

func TestOpening(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer [][]byte
		want   error
		code   ErrorCode
	}{
		{"closed", nil, nil, ""},
		{"error", [][]byte{frame(t, KindResponse, Response{Protocol: Protocol, Error: &Error{Code: ErrTooMany, Message: strings.Repeat("x", 1<<19)}})}, nil, ErrTooMany},
		{"other protocol", [][]byte{frame(t, KindResponse, Response{Protocol: 8})}, nil, ErrIncompatible},
		{"no response", [][]byte{AppendFrame(nil, KindEnd, nil)}, ErrProtocol, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := play(t, test.answer...)
			ctx := t.Context()
			if test.answer == nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
				defer cancel()
				test.want = context.DeadlineExceeded
			}
			_, err := PingAgent(ctx, conn)
			var e *Error
			if test.code != "" && (!errors.As(err, &e) || e.Code != test.code || len(e.Message) > 2000) || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("error %.100v", err)
			}
			if _, err := conn.Write([]byte{1}); err == nil {
				t.Error("the stream is open")
			}
		})
	}
}

// An agent of another version answers every request with an error.
func TestOtherProtocolNamesBothVersions(t *testing.T) {
	_, err := PingAgent(t.Context(), play(t, frame(t, KindResponse, Response{Protocol: 8, Error: &Error{Code: ErrIncompatible, Message: "another version"}})))
	var e *Error
	if !errors.As(err, &e) || e.Code != ErrIncompatible || !strings.Contains(e.Message, "8") || !strings.HasSuffix(e.Message, strconv.Itoa(Protocol)) {
		t.Errorf("got %v, want %s that names 8 and %d", err, ErrIncompatible, Protocol)
	}
}

func TestSessionWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// This agent answers and then stops reading.
		ours, theirs := net.Pipe()
		go func() {
			_, _, _ = NewFrameReader(theirs, AgentSide).Next()
			_, _ = theirs.Write(ok(t))
		}()
		s, err := AttachExecution(t.Context(), ours, Attach{ID: "a", Offset: 5})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := s.Ack(5 + ackBytes); err == nil {
			t.Error("an ack that nobody read")
		}
		if took := time.Since(begin); took != writeTimeout {
			t.Errorf("took %v, want %v", took, writeTimeout)
		}
		if err := s.Settled(); err == nil {
			t.Error("the session goes on after a frame that was cut")
		}
		_ = s.Close()
		_ = theirs.Close()
	})
}

func TestAcknowledgementsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		type frame struct {
			kind   Kind
			offset int64
			after  time.Duration
		}
		var got []frame
		begin := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			frames := NewFrameReader(theirs, AgentSide)
			_, _, _ = frames.Next()
			_, _ = theirs.Write(ok(t))
			for {
				kind, body, err := frames.Next()
				if err != nil {
					return
				}
				offset, _ := ParseAck(body)
				got = append(got, frame{kind, offset, time.Since(begin)})
			}
		}()
		s, err := AttachExecution(t.Context(), ours, Attach{ID: "a", Offset: 1 << 40})
		if err != nil {
			t.Fatal(err)
		}
		const from = 1 << 40
		for _, step := range []struct {
			wait time.Duration
			ack  int64
		}{{0, 1}, {ackDelay / 2, 2}, {ackDelay, 3}, {0, 2 + ackBytes}, {2 * ackDelay, 3 + ackBytes}} {
			time.Sleep(step.wait)
			if err := s.Ack(from + step.ack); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Settled(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ackDelay)
		_ = s.Close()
		<-done
		want := []frame{
			{KindAck, from + 2, ackDelay}, // the first two together
			{KindAck, from + 2 + ackBytes, ackDelay * 3 / 2},
			{KindSettled, 0, ackDelay * 7 / 2}, // instead of the last
		}
		if !slices.Equal(got, want) {
			t.Errorf("the agent got %v, want %v", got, want)
		}
	})
}

func TestStdinEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() {
			_, _, _ = NewFrameReader(theirs, AgentSide).Next()
			_, _ = theirs.Write(append(ok(t), frame(t, KindStarted, Started{})...))
			_, _ = theirs.Write(AppendStdinWindow(nil, 10, 12))
			_, _ = io.Copy(io.Discard, theirs)
		}()
		s, err := AttachExecution(t.Context(), ours, Attach{ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		type outcome struct {
			at  int64
			err error
		}
		outcomes := make(chan outcome, 3)
		write := func(ctx context.Context) {
			at, err := s.WriteStdin(ctx, 8, []byte("89abc"))
			outcomes <- outcome{at, err}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go write(ctx)
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		next := make(chan error)
		go func() {
			_, err := s.Next()
			next <- err
		}()
		synctest.Wait() // two bytes were sent; the third waits for the window
		if at := s.StdinOffset(); at != 12 {
			t.Errorf("sent %d, want 12", at)
		}
		cancel()
		if o := <-outcomes; o.at != 12 || o.err != context.Canceled {
			t.Errorf("%+v", o)
		}
		go write(t.Context())
		synctest.Wait()
		_ = s.Close()
		if o := <-outcomes; o.at != 12 || o.err != net.ErrClosed {
			t.Errorf("%+v", o)
		}
		<-next
	})
}

func TestHostileFiles(t *testing.T) {
	info := frame(t, KindFile, FileInfo{Size: 5})
	data := func(text string) []byte { return AppendFrame(nil, KindData, []byte(text)) }
	end := AppendFrame(nil, KindEnd, nil)
	for name, answer := range map[string][][]byte{
		"too short": {info, data("abc"), end},
		"too long":  {info, data("abcdef"), end},
		"more":      {info, data("abcde"), data("f"), end},
		"an error":  {info, data("ab"), frame(t, KindEnd, Response{Protocol: 1, Error: &Error{Code: ErrInvalid}})},
		"two files": {info, info},
		"no end":    {info, data("abcde"), ok(t)},
		"negative":  {frame(t, KindFile, FileInfo{Size: -1})},
		"no file":   {end},
	} {
		t.Run(name, func(t *testing.T) {
			_, r, err := OpenFile(t.Context(), play(t, append([][]byte{ok(t)}, answer...)...), "a", 0)
			if err == nil {
				_, err = io.ReadAll(r)
				_ = r.Close()
			}
			if err == nil {
				t.Error("no error")
			}
		})
	}
}
