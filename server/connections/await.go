package connections

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

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
