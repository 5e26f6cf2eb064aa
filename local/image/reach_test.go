package image

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// A registry that accepts connections and doesn't answer is reported once, by name.
func TestSilentRegistryIsReportedOnce(t *testing.T) {
	b := newBox(t, t.TempDir(), nil) // it may skip the test
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections := make(chan int)
	go func() {
		var all []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			all = append(all, conn)
		}
		for _, conn := range all {
			_ = conn.Close()
		}
		connections <- len(all)
	}()
	next := b.registries.next
	if next.TLSHandshakeTimeout > 3*time.Second {
		t.Errorf("a client waits %v for a handshake", next.TLSHandshakeTimeout)
	}
	next.TLSHandshakeTimeout, next.ResponseHeaderTimeout = 50*time.Millisecond, 50*time.Millisecond
	at := listener.Addr().String()
	_, err = b.Resolve(t.Context(), at+"/x:1")
	if runtime.CodeOf(err) != runtime.CodeClusterUnavailable || !strings.Contains(runtime.MessageOf(err), at) {
		t.Errorf("got %v, want CLUSTER_UNAVAILABLE that names %s", err, at)
	}
	_ = listener.Close()
	if n := wait.Receive(t, connections, "no more connections arrive"); n < 1 || n > 2 { // with TLS, and on loopback without
		t.Errorf("%d connections: the caller retries, not the server", n)
	}
}

// Connection errors get plain messages.
func TestConnectionErrorsAreExplained(t *testing.T) {
	at := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://r", Err: &net.OpError{Op: "dial", Err: err}}
	}
	for says, err := range map[string]error{
		": the host name doesn't exist (DNS)":         at(&net.DNSError{Err: "no such host", Name: "r", IsNotFound: true}),
		": the host name can't be resolved now (DNS)": at(&net.DNSError{Err: "i/o timeout", Name: "r", IsTimeout: true}),
		": connection refused":                        at(os.NewSyscallError("connect", unix.ECONNREFUSED)),
		": there is no route to it":                   at(os.NewSyscallError("connect", unix.EHOSTUNREACH)),
		": it doesn't answer":                         at(os.ErrDeadlineExceeded),
		"":                                            at(errors.New("<b>words of the registry")),
	} {
		if got := reachReason(err); got != says {
			t.Errorf("%v: %q, not %q", err, got, says)
		}
	}
}

func TestTimedOutRequestsAreNotRepeated(t *testing.T) {
	for err, again := range map[error]bool{
		io.EOF: true, &url.Error{Op: "Get", URL: "https://r", Err: unix.ECONNRESET}: true, &net.OpError{Op: "write", Err: os.NewSyscallError("write", unix.EPIPE)}: true,
		os.ErrDeadlineExceeded: false, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}: false, &net.DNSError{Err: "no such host", IsNotFound: true}: false, unix.ECONNREFUSED: false,
	} {
		if retryImmediately(err) != again {
			t.Errorf("%v: %v", err, !again)
		}
	}
}
