package connections

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/wait"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// answering responds to a listener's connections with a word, the client's address, and the received bytes.
func answering(t *testing.T, l net.Listener, word string) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				fmt.Fprintf(conn, "%s %s\n", word, conn.RemoteAddr())
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		<-done
	})
}

// ask connects, sends text and its end, and returns which server responded, whether it saw the client's
// address, and the response.
func ask(t *testing.T, address, text string) (word string, mine bool, back string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", false, ""
	}
	rest, _ := io.ReadAll(r)
	word, whose, _ := strings.Cut(strings.TrimSpace(line), " ")
	return word, whose == conn.LocalAddr().String(), string(rest)
}

// TestConnectionsReachTheLeader: every byte arrives in both directions, and the leader sees the
// client's address. Without a reachable leader, the server responds itself.
func TestConnectionsReachTheLeader(t *testing.T) {
	const secret = "between-servers"
	at := listen(t)
	answering(t, Receive(at, secret, nil), "leader")
	var leader atomic.Pointer[Leader]
	leader.Store(&Leader{})
	front := listen(t)
	answering(t, Forward(front, 100, func() Leader { return *leader.Load() }), "follower")
	address := front.Addr().String()

	long := strings.Repeat("0123456789abcdef", 1<<16)
	for _, test := range []struct {
		leader Leader
		word   string
	}{
		{Leader{}, "follower"},
		{Leader{at.Addr().String(), secret}, "leader"},
		{Leader{"127.0.0.1:1", secret}, "follower"},
	} {
		leader.Store(&test.leader)
		if word, mine, back := ask(t, address, long); word != test.word || !mine || back != long {
			t.Errorf("%+v: %q answers, mine: %t, %d bytes", test.leader, word, mine, len(back))
		}
	}
	leader.Store(&Leader{at.Addr().String(), "another"})
	if word, _, _ := ask(t, address, "x"); word != "" {
		t.Errorf("with a wrong secret %q answers, want \"\"", word)
	}
}

// TestKeptConnectionsEndWhenThereIsALeader: otherwise a WebSocket would stay on a server that can't serve it.
func TestKeptConnectionsEndWhenThereIsALeader(t *testing.T) {
	var leader atomic.Pointer[Leader]
	leader.Store(&Leader{})
	front := listen(t)
	answering(t, Forward(front, 100, func() Leader { return *leader.Load() }), "follower")
	conn, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	leader.Store(&Leader{Address: "127.0.0.1:1"})
	ended := make(chan error, 1)
	go func() {
		_, err := r.ReadByte()
		ended <- err
	}()
	if err := wait.Receive(t, ended, "it ends"); err == nil {
		t.Error("something came")
	}
}

// TestOnlyServersForwardConnections: a connection without the right greeting is closed.
func TestOnlyServersForwardConnections(t *testing.T) {
	at := listen(t)
	answering(t, Receive(at, "between-servers", func() string { return "" }), "leader")
	for _, says := range []string{
		"GET / HTTP/1.1\r\n\r\n", "\n", greeting + "\n", greeting + " between-servers nowhere\n",
		greeting + " x 127.0.0.1:1\n", strings.Repeat("x", 2*maxGreeting),
	} {
		conn, err := net.Dial("tcp", at.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, says)
		_ = conn.SetReadDeadline(time.Now().Add(wait.Limit))
		if n, err := conn.Read(make([]byte, 10)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %d bytes, %v", says, n, err)
		}
		_ = conn.Close()
	}
}

// A recordingListener is a listener that keeps its accepted connections.
type recordingListener struct {
	net.Listener
	accepted chan net.Conn
}

func (r recordingListener) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if err == nil {
		r.accepted <- conn
	}
	return conn, err
}

// TestAwaitEndDetectsTheEnd: connections to an ended process are refused. A process that closes the
// watching connection, or no longer accepts clients, is still running.
func TestAwaitEndDetectsTheEnd(t *testing.T) {
	at := recordingListener{listen(t), make(chan net.Conn, 100)}
	leader := Leader{at.Addr().String(), "between-servers"}
	tells := make(chan string, 2)
	tells <- "" // not yet
	tells <- "the lock"
	taking := Receive(at, leader.Secret, func() string {
		select {
		case told := <-tells:
			return told
		default:
			return "the lock"
		}
	})
	seen := make(chan string, 1)
	go func() {
		said, err := AwaitEnd(t.Context(), leader)
		if err == nil {
			seen <- said
		}
	}()
	wait.Receive(t, at.accepted, "it asks")
	wait.For(t, "the vigil takes what it was sent", func() bool { return len(tells) == 0 })
	watched := wait.Receive(t, at.accepted, "it asks again")
	_ = watched.Close()
	_ = taking.Close()
	last := wait.Receive(t, at.accepted, "it asks once more")
	if len(seen) > 0 {
		t.Error("a broken connection counts as its end")
	}
	_ = at.Close()
	_ = last.Close() // as the kernel does with all of a process that is gone
	if said := wait.Receive(t, seen, "its end is seen"); said != "the lock" {
		t.Errorf("it had told %q, want \"the lock\"", said)
	}
}

// TestEndsReachTheOtherSide: when the leader ends a connection, the client's is closed, too. When a
// client ends its direction, it still gets the rest.
func TestEndsReachTheOtherSide(t *testing.T) {
	const secret = "between-servers"
	at := listen(t)
	taking := Receive(at, secret, nil)
	defer at.Close()
	front := listen(t)
	passing := Forward(front, 1, func() Leader { return Leader{at.Addr().String(), secret} })
	defer passing.Close()
	open := func() (client, leader net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		leader, err = taking.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return client, leader
	}
	client, leader := open()
	_ = leader.Close() // and the client never closes its own
	wait.For(t, "the slot is free", func() bool { return len(passing.slots) == 0 })
	_ = client.Close()

	client, leader = open()
	_ = client.(*net.TCPConn).CloseWrite()
	if _, err := io.ReadAll(leader); err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(leader, "the rest")
	_ = leader.Close()
	if rest, err := io.ReadAll(client); string(rest) != "the rest" {
		t.Errorf("%q, %v", rest, err)
	}
	_ = client.Close()
}

// TestCloseDoesNotBlock on silent servers or on connections that aren't accepted.
func TestCloseDoesNotBlock(t *testing.T) {
	const secret = "between-servers"
	at := listen(t)
	taking := Receive(at, secret, func() string { return "the lock" })
	front := listen(t)
	passing := Forward(front, 500, func() Leader { return Leader{at.Addr().String(), secret} })
	for i := range 200 {
		address := front.Addr().String()
		if i%2 == 0 {
			address = at.Addr().String()
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if err := errors.Join(taking.Close(), passing.Close()); err != nil {
		t.Error(err)
	}
	for _, l := range []net.Listener{taking, passing} {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%T: got %v, want %v", l, err, net.ErrClosed)
		}
	}
	_ = at.Close()
}
