// Package port reserves TCP ports on loopback for tests that must know a port before something
// listens there.
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

// The ports lie below those that the kernel assigns. Otherwise it could assign a reserved port to
// another test while nothing listens, or connect a retrying client to itself. Package nomadtest
// uses ports from 11000 up.
const (
	first = 10_000
	many  = 500
)

// Spare returns an address at which nothing listens. No other test gets it until this one ends.
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

// free reports whether nothing listens at an address.
func free(address string) bool {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		_ = listener.Close()
	}
	return err == nil
}
