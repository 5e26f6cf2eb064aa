// Package port reserves TCP ports of loopback for tests that must name one before something listens there.
package port

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// The ports lie below those that the kernel gives away by itself: there another test could be given one while nobody
// listens, and a client that tries again and again could be connected to itself. Package nomadtest has those from 11000 on.
const (
	first = 10_000
	many  = 500
)

// Spare returns an address that no other test gets until this one ends, and that nobody listens at now.
func Spare(t testing.TB) string {
	t.Helper()
	locks := filepath.Join(os.TempDir(), fmt.Sprint("rockpool-ports-", os.Getuid()))
	if err := os.MkdirAll(locks, 0o700); err != nil {
		t.Fatal(err)
	}
	for n := first; n < first+many; n++ {
		lock, err := os.OpenFile(filepath.Join(locks, strconv.Itoa(n)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", n)
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && free(address) {
			t.Cleanup(func() { _ = lock.Close() })
			return address
		}
		_ = lock.Close()
	}
	t.Fatalf("all %d ports for tests are taken: %s", many, locks)
	return ""
}

// free reports whether nobody listens at an address.
func free(address string) bool {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		_ = listener.Close()
	}
	return err == nil
}
