package bridge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A line is the stream between both sides. A test can cut it.
type line struct {
	client, bridge net.Conn
	ended          chan error // what Serve returned
}

// newBridge starts a bridge to an agent that handles each stream with the given function.
func newBridge(t *testing.T, dial func() (net.Conn, error)) (*Client, line) {
	t.Helper()
	return newPatientBridge(t, dial, usual)
}

func newPatientBridge(t *testing.T, dial func() (net.Conn, error), p patience) (*Client, line) {
	t.Helper()
	l := line{ended: make(chan error, 1)}
	l.client, l.bridge = net.Pipe()
	go func() { l.ended <- serve(context.Background(), l.bridge, dial, p) }()
	c, err := newClient(l.client, p)
	if err != nil {
		t.Fatal(err)
	}
	return c, l
}

// end closes the client and checks that the other side ends without an error.
func end(t *testing.T, c *Client, l line) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-l.ended; err != nil {
		t.Errorf("the bridge ended with %v", err)
	}
}

// serving returns a dial function of an agent that handles each stream with f.
func serving(f func(net.Conn)) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			f(there)
		}()
		return here, nil
	}
}

func dial(t *testing.T, c *Client) net.Conn {
	t.Helper()
	conn, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

func TestConcurrentStreamsCarryAllBytes(t *testing.T) {
	c, l := newBridge(t, serving(echo))
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			conn := dial(t, c)
			defer conn.Close()
			sent := make([]byte, rand.IntN(1<<20))
			for i := range sent {
				sent[i] = byte(i*n + i>>8)
			}
			go func() { _, _ = conn.Write(sent) }()
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
				t.Errorf("stream %d: %v, %t", n, err, bytes.Equal(got, sent))
			}
		})
	}
	all.Wait()
	end(t, c, l)
}

func TestAgentsCloseIsEOFAfterItsLastByte(t *testing.T) {
	said := strings.Repeat("all that it said ", 10_000)
	c, l := newBridge(t, serving(func(c net.Conn) { _, _ = io.WriteString(c, said) }))
	for range 20 {
		conn := dial(t, c)
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != said {
			t.Fatalf("%d of %d bytes, %v", len(got), len(said), err)
		}
		conn.Close()
	}
	end(t, c, l)
}

func TestUnreadStreamDoesNotStallOthers(t *testing.T) {
	c, l := newBridge(t, serving(func(c net.Conn) {
		first := make([]byte, 1)
		if _, err := c.Read(first); err == nil && first[0] == 'f' {
			for {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
		_, _ = c.Write(first)
	}))
	flood := dial(t, c)
	if _, err := flood.Write([]byte("f")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		conn := dial(t, c)
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != "x" {
			t.Fatalf("%q, %v", got, err)
		}
		conn.Close()
	}
	flood.Close()
	end(t, c, l)
}

func TestMissingAgentIsNotABrokenBridge(t *testing.T) {
	refusal := errors.New("connection refused")
	there := true
	c, l := newBridge(t, func() (net.Conn, error) {
		if there {
			return serving(echo)()
		}
		return nil, refusal
	})
	conn := dial(t, c)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	there = false
	other := dial(t, c)
	for range 2 {
		if _, err := other.Read(make([]byte, 10)); !errors.Is(err, ErrNoAgent) {
			t.Errorf("without an agent: got %v, want %v", err, ErrNoAgent)
		}
	}
	other.Close()

	// In the middle of a stream.
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 10))
		read <- err
	}()
	l.bridge.Close()
	if err := <-read; !errors.Is(err, ErrBroken) {
		t.Errorf("a bridge that broke: got %v, want %v", err, ErrBroken)
	}
	<-c.Done()
	if _, err := conn.Write([]byte("x")); !errors.Is(err, ErrBroken) {
		t.Errorf("write: got %v, want %v", err, ErrBroken)
	}
	if _, err := c.Dial(t.Context()); !errors.Is(err, ErrBroken) {
		t.Errorf("dial: got %v, want %v", err, ErrBroken)
	}
	if err := c.Err(); !errors.Is(err, ErrBroken) {
		t.Errorf("why: got %v, want %v", err, ErrBroken)
	}
	conn.Close()
	c.Close()
	<-l.ended
}

func TestFirstStreamWaitsForTheAgent(t *testing.T) {
	tries := 0
	patient := usual
	patient.first = wait.Limit
	c, l := newPatientBridge(t, func() (net.Conn, error) {
		if tries++; tries < 20 {
			return nil, errors.New("no such file")
		}
		return serving(func(c net.Conn) { _, _ = c.Write([]byte("hi")) })()
	}, patient)
	conn := dial(t, c)
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hi" {
		t.Errorf("%q, %v", got, err)
	}
	conn.Close()
	end(t, c, l)
}

func TestCloseAndDeadlineEndABlockedRead(t *testing.T) {
	c, l := newBridge(t, serving(echo))
	conn := dial(t, c)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline: got %v, want %v", err, os.ErrDeadlineExceeded)
	}
	_ = conn.SetReadDeadline(time.Time{})
	read := make(chan error, 2)
	go func() {
		for range 2 {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}
	}()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := wait.Receive(t, read, "the deadline is none any more"); err != nil {
		t.Errorf("a read after a deadline: %v", err)
	}
	if len(read) > 0 {
		t.Errorf("read returned %v before the close", <-read)
	}
	conn.Close()
	if err := wait.Receive(t, read, "the read ends"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a close: got %v, want %v", err, net.ErrClosed)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if conn, err := c.Dial(ctx); err != cause && conn == nil {
		t.Errorf("a dial without time: %v", err)
	}
	end(t, c, l)
}

func TestCloseEndsAReadWithoutTheBridge(t *testing.T) {
	there, here := net.Pipe()
	defer there.Close()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	c, err := NewClient(here)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn := dial(t, c)
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	conn.Close()
	if err := wait.Receive(t, read, "the read ends"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
}

func TestEachSideEndsWhenTheOtherIsSilent(t *testing.T) {
	short := patience{keepAlive: 20 * time.Millisecond, silence: 200 * time.Millisecond}

	// A server that is gone, whose exec Nomad keeps.
	there, here := net.Pipe()
	defer there.Close()
	if err := serve(t.Context(), here, nil, short); err == nil || !strings.Contains(err.Error(), "silent") {
		t.Errorf("the bridge ended with %v", err)
	}

	// A bridge that doesn't answer.
	there, here = net.Pipe()
	defer there.Close()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	c, err := newClient(here, short)
	if err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if err := c.Err(); !errors.Is(err, ErrBroken) {
		t.Errorf("the client ended with %v, want %v", err, ErrBroken)
	}
	c.Close()
}

// pings counts the client's pings.
type pings struct {
	net.Conn
	sent atomic.Int32
}

func (p *pings) Write(b []byte) (int, error) {
	p.sent.Add(1)
	return p.Conn.Write(b)
}

// Both sides are connected and idle: the client keeps sending pings, and each ping restarts the
// bridge's timeout.
func TestKeepAlivesKeepAnIdleBridgeOpen(t *testing.T) {
	there, here := net.Pipe()
	ended := make(chan error, 1)
	often := patience{keepAlive: time.Millisecond, silence: wait.Limit}
	go func() { ended <- serve(context.Background(), there, serving(echo), often) }()
	counted := &pings{Conn: here}
	c, err := newClient(counted, often)
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the client keeps asking", func() bool { return counted.sent.Load() >= 10 })
	if c.session.IsClosed() || len(ended) > 0 {
		t.Errorf("it ended: %v", c.Err())
	}
	c.Close()
	if err := wait.Receive(t, ended, "the bridge ends"); err != nil {
		t.Error(err)
	}

	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		w := newWatched(here, time.Minute)
		defer w.timer.Stop()
		go func() {
			for range 10 {
				time.Sleep(time.Minute - 1)
				_, _ = there.Write([]byte("x"))
			}
		}()
		began := time.Now()
		var err error
		for err == nil {
			_, err = w.Read(make([]byte, 1))
		}
		if took := time.Since(began); !w.late.Load() || took != 10*(time.Minute-1)+time.Minute {
			t.Errorf("%v after %s, silent: %t", err, took, w.late.Load())
		}
	})
}

func frame(version, kind byte, flags uint16, stream, length uint32, body ...byte) []byte {
	b := []byte{version, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	b = binary.BigEndian.AppendUint32(b, length)
	return append(b, body...)
}

func TestHostileFramesEndTheBridge(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"a stream begun by the bridge": frame(0, frameWindow, flagSYN, 2, 0),
		"a ping":                       frame(0, framePing, flagSYN, 0, 7),
		"another version":              frame(1, frameData, 0, 1, 0),
		"another type":                 frame(0, 9, 0, 1, 0),
		"more than a window":           frame(0, frameData, 0, 1, maxWindow+1),
		"a stream of its own":          frame(0, frameData, 0, 2, 1, 'x'),
	} {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		c, err := NewClient(here)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = there.Write(bytes)
		<-c.Done()
		if err := c.Err(); !errors.Is(err, ErrBroken) || !errors.Is(err, errHostile) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
		there.Close()
	}
}

// cancelledStream is a stream whose own context was cancelled.
type cancelledStream struct{ net.Conn }

func (cancelledStream) Read([]byte) (int, error) { return 0, fmt.Errorf("read: %w", context.Canceled) }

// A caller must not take the cancelled context of the stream below the bridge for its own.
func TestBrokenBridgeDoesNotLookLikeACancelledCaller(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	c, err := NewClient(cancelledStream{here})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-c.Done()
	if err := c.Err(); !errors.Is(err, ErrBroken) || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("%v", err)
	}
}

func FuzzGuardSeesFramesHoweverTheyArrive(f *testing.F) {
	f.Add(append(frame(0, frameData, 0, 1, 3, 'a', 'b', 'c'), frame(0, framePing, flagSYN, 0, 1)...), uint8(5))
	f.Add(frame(0, frameGoAway, 0, 0, 0), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		whole, pieces := guard{}, guard{}
		want := whole.inspect(stream)
		var got error
		for rest := stream; len(rest) > 0 && got == nil; {
			n := min(len(rest), int(size%13)+1)
			got = pieces.inspect(rest[:n])
			rest = rest[n:]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v in pieces, %v at once", got, want)
		}
	})
}
