package connections

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// A connection between servers begins with one of these lines:
//
//	rockpool-pass SECRET CLIENT   the connection of a client at this address and port follows
//	rockpool-watch SECRET         the sender wants to lead when this server ends: it gets a line, and the connection stays open
const (
	greeting = "rockpool-pass"
	watching = "rockpool-watch"
)

// Limits of greetings.
const (
	maxGreeting  = 256
	greetWithin  = 2 * time.Second
	maxGreetings = 64 // read concurrently
)

// A Receiver is a listener for connections that other servers forward. The remote address of a
// connection is the client's.
type Receiver struct {
	handoff
	secret string
	report func() string
	slots  chan struct{}
}

// Receive returns a listener for forwarded connections that begin with the secret. Servers that
// watch this one get the text that report returns; if it is "", they retry. Close leaves the
// listener of open. The caller must close it last: as long as it accepts connections, other servers
// know that this process runs.
func Receive(of net.Listener, secret string, report func() string) *Receiver {
	t := &Receiver{handoff: newHandoff(of), secret: secret, report: report, slots: make(chan struct{}, maxGreetings)}
	go t.accept(func(conn net.Conn) { // ends with the listener
		select {
		case t.slots <- struct{}{}:
			go func() {
				defer func() { <-t.slots }()
				t.receive(conn)
			}()
		case <-time.After(greetWithin): // too many connections without a greeting
			_ = conn.Close()
		}
	})
	return t
}

// Close ends Accept.
func (t *Receiver) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// receive reads a greeting and acts on it.
func (t *Receiver) receive(conn net.Conn) {
	client, rest, err := t.greeted(conn)
	switch {
	case err != nil:
		_ = conn.Close()
	case client == nil:
		t.watched(conn)
	default:
		t.hand(&forwardedConn{Conn: conn, client: client, rest: rest})
	}
}

// watched sends the report to a server that watches this one. It keeps the connection until the
// other side or this process ends it.
func (t *Receiver) watched(conn net.Conn) {
	text := t.report()
	_ = conn.SetDeadline(time.Now().Add(greetWithin))
	if text == "" || writeLine(conn, text) != nil || conn.SetDeadline(time.Time{}) != nil {
		_ = conn.Close()
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
}

func writeLine(to io.Writer, text string) error {
	_, err := io.WriteString(to, text+"\n")
	return err
}

// errGreeting is the error of a connection with an invalid greeting or a wrong secret.
var errGreeting = errors.New("not a server of this cluster")

// greeted reads a greeting. It returns the client's address (nil for a watching server) and the
// bytes after the greeting.
func (t *Receiver) greeted(conn net.Conn) (client net.Addr, rest []byte, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(greetWithin))
	var buf [maxGreeting]byte
	read, end := 0, -1
	for end < 0 {
		if read == len(buf) {
			return nil, nil, errGreeting
		}
		n, err := conn.Read(buf[read:])
		if err != nil {
			return nil, nil, err
		}
		read += n
		end = bytes.IndexByte(buf[:read], '\n')
	}
	_ = conn.SetReadDeadline(time.Time{})
	// The comparison takes the same time for every wrong secret of the same length.
	fields := strings.Split(string(buf[:end]), " ")
	if len(fields) < 2 || subtle.ConstantTimeCompare([]byte(fields[1]), []byte(t.secret)) != 1 {
		return nil, nil, errGreeting
	}
	if len(fields) == 2 && fields[0] == watching {
		return nil, nil, nil
	}
	if len(fields) != 3 || fields[0] != greeting {
		return nil, nil, errGreeting
	}
	address, err := netip.ParseAddrPort(fields[2])
	if err != nil {
		return nil, nil, errGreeting
	}
	return net.TCPAddrFromAddrPort(address), bytes.Clone(buf[end+1 : read]), nil
}

// A forwardedConn is a connection that another server forwards.
type forwardedConn struct {
	net.Conn
	client net.Addr
	rest   []byte // already read with the greeting
}

// RemoteAddr returns the client's address.
func (p *forwardedConn) RemoteAddr() net.Addr { return p.client }

// Unwrap returns the underlying connection; see [clients.Within].
func (p *forwardedConn) Unwrap() net.Conn { return p.Conn }

func (p *forwardedConn) Read(b []byte) (int, error) {
	if len(p.rest) > 0 {
		n := copy(b, p.rest)
		p.rest = p.rest[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// AwaitEnd waits until the leader's process has ended, and returns the text that the leader had
// reported. A refused connection proves the end, because the kernel refuses connections only when
// no process listens. A broken connection or a timeout proves nothing: AwaitEnd reconnects. If ctx
// ends first, it returns ctx's cause.
func AwaitEnd(ctx context.Context, leader Leader) (report string, err error) {
	for {
		conn, err := connect(ctx, leader.Address)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err == nil:
			if text, err := watch(ctx, conn, leader.Secret); err == nil {
				report = text
			}
		case report != "" && errors.Is(err, syscall.ECONNREFUSED):
			return report, nil
		}
		select {
		case <-time.After(checkEvery):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// watch returns the leader's report when the connection has ended.
func watch(ctx context.Context, conn net.Conn, secret string) (report string, err error) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(greetWithin))
	if _, err := fmt.Fprintf(conn, "%s %s\n", watching, secret); err != nil {
		return "", err
	}
	lines := bufio.NewReader(io.LimitReader(conn, maxGreeting))
	line, err := lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	_ = conn.SetDeadline(time.Time{})
	_, _ = lines.ReadByte() // nothing more arrives: wait for the end
	return strings.TrimSpace(line), nil
}

// connect connects to a leader. Keep-alives detect a leader whose machine is gone.
func connect(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialWithin, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}}
	return dialer.DialContext(ctx, "tcp", address)
}
