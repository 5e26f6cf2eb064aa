package peering

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

// answering has a listener's connections answered with a word, the client's address, and what comes.
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

// ask connects, sends text and its end, and returns who answered, for whom, and what came back.
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

// TestConnectionsReachTheLeader: each byte of both ways comes through, and the leader sees the client's
// address. Where there is no leader, or it can't be reached, the server answers itself.
func TestConnectionsReachTheLeader(t *testing.T) {
	const secret = "between-servers"
	at := listen(t)
	answering(t, Take(at, secret, nil), "leader")
	var leader atomic.Pointer[Leader]
	leader.Store(&Leader{})
	front := listen(t)
	answering(t, Pass(front, 100, func() Leader { return *leader.Load() }), "follower")
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
		t.Errorf("with a wrong secret %q answers", word)
	}
}

// TestConnectionsWithoutALeaderEndWhenThereIsOne: a WebSocket to a server that can't serve would stay there
// for good.
func TestConnectionsWithoutALeaderEndWhenThereIsOne(t *testing.T) {
	var leader atomic.Pointer[Leader]
	leader.Store(&Leader{})
	front := listen(t)
	answering(t, Pass(front, 100, func() Leader { return *leader.Load() }), "follower")
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

// TestOnlyServersPassConnectionsOn: who doesn't say a greeting, or none in time, is cut off, and holds up nobody.
func TestOnlyServersPassConnectionsOn(t *testing.T) {
	at := listen(t)
	answering(t, Take(at, "between-servers", func() string { return "" }), "leader")
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

// TestTheEndOfALeaderIsSeen: only a process that is gone refuses connections. One that cuts the vigil's connection
// runs on.
func TestTheEndOfALeaderIsSeen(t *testing.T) {
	at := listen(t)
	leader := Leader{at.Addr().String(), "between-servers"}
	taking := Take(at, leader.Secret, func() string { return "the lock" })
	go func() {
		for {
			if _, err := taking.Accept(); err != nil {
				return
			}
		}
	}()
	told := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		said, err := Vigil(t.Context(), leader)
		if err == nil {
			told <- said
		}
	}()
	watchers := func() (all []net.Conn) {
		taking.mu.Lock()
		defer taking.mu.Unlock()
		for conn := range taking.watchers {
			all = append(all, conn)
		}
		return all
	}
	wait.For(t, "it is watched", func() bool { return len(watchers()) == 1 })
	first := watchers()[0]
	_ = first.Close()
	wait.For(t, "it is watched again", func() bool { all := watchers(); return len(all) == 1 && all[0] != first })
	if len(told) > 0 {
		t.Error("a broken connection counts as its end")
	}
	if err := taking.Close(); err != nil {
		t.Fatal(err)
	}
	if said := wait.Receive(t, told, "its end is seen"); said != "the lock" {
		t.Errorf("it had told %q", said)
	}
	<-ended
}
