// Package descriptors lets a test exhaust the file descriptors of its process.
package descriptors

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Limit returns two functions. After none the process can open no more files; after all it can
// again. The test's end calls all.
func Limit(t testing.TB) (none, all func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	set := func(cur uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: cur, Max: limit.Max}); err != nil {
			t.Error(err)
		}
	}
	all = func() { set(limit.Cur) }
	t.Cleanup(all)
	return func() { set(0) }, all
}
