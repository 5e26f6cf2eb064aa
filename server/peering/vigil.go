package peering

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

// Vigil waits until the process of the leader has ended, and returns what it had told. The kernel of its machine refuses
// connections then, which counts as the proof. A connection that breaks, or times out, proves nothing, and is
// made again. It returns ctx's cause where that ends first.
func Vigil(ctx context.Context, leader Leader) (told string, err error) {
	for {
		conn, err := connect(ctx, leader.Address)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err == nil:
			if said, err := watch(ctx, conn, leader.Secret); err == nil {
				told = said
			}
		case told != "" && errors.Is(err, syscall.ECONNREFUSED):
			return told, nil
		}
		select {
		case <-time.After(checkEvery):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// watch returns what a leader tells, once its connection has ended.
func watch(ctx context.Context, conn net.Conn, secret string) (told string, err error) {
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
	_, _ = lines.ReadByte() // nothing comes any more
	return strings.TrimSpace(line), nil
}

// connect connects to a leader. One whose machine is gone says nothing: the kernel finds out.
func connect(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialWithin, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}}
	return dialer.DialContext(ctx, "tcp", address)
}
