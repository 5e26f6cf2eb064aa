package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/test/networktest"
)

// Owners of the directory of an agent's socket: the client, meanwhile the sandbox's root user, and
// another user.
const asker, sandboxRoot, other = 61_236, spec.FirstUID, 61_237

// TestOutsideDirectoryIsTakenAndReturned has its own /run. Each row is what a hostile client could
// have made of the directory before it is checked.
func TestOutsideDirectoryIsTakenAndReturned(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	if err := unix.Mount("run", "/run", "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Run("closed", testCloseOutside)
	t.Run("given back", testReturnOutside)
}

// socketAt makes a socket of a user.
func socketAt(path string, uid int) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return errors.Join(l.Close(), os.Lchown(path, uid, uid))
}

// dirAt makes a directory of a user.
func dirAt(path string, uid int) error {
	return errors.Join(os.MkdirAll(path, 0o710), os.Lchown(path, uid, uid))
}

// owners returns the owners of a directory and of everything below.
func owners(t *testing.T, dir string) map[string]uint32 {
	t.Helper()
	all := map[string]uint32{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			all[path] = info.Sys().(*syscall.Stat_t).Uid
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unchanged fails the test unless all owners are as before, except some that belong to the client
// now.
func unchanged(t *testing.T, dir string, before map[string]uint32, given ...string) {
	t.Helper()
	for _, path := range given {
		before[path] = asker
	}
	after := owners(t, dir)
	for path, uid := range before {
		if after[path] != uid {
			t.Errorf("%s is user %d's, not %d's", path, after[path], uid)
		}
	}
}

func testCloseOutside(t *testing.T) {
	socket, victim := filepath.Join(outsideMount, spec.SocketName), "/run/rockpool/victim"
	for name, row := range map[string]struct {
		change func() error
		fine   bool
	}{
		"unchanged":        {func() error { return nil }, true},
		"already returned": {func() error { return os.Chown(outsideMount, asker, -1) }, false},
		"a link to another socket": {func() error {
			return errors.Join(os.Remove(socket), os.Symlink(victim, socket), os.Lchown(socket, sandboxRoot, -1))
		}, false},
		"another socket's name": {func() error { return errors.Join(os.Remove(socket), os.Link(victim, socket)) }, false},
		"another user's socket": {func() error { return os.Lchown(socket, other, -1) }, false},
		"a file in its place":   {func() error { return errors.Join(os.Remove(socket), dirAt(socket, sandboxRoot)) }, false},
		"no socket":             {func() error { return os.Remove(socket) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := errors.Join(os.RemoveAll("/run/rockpool"), dirAt(outsideMount, sandboxRoot), socketAt(socket, sandboxRoot), socketAt(victim, sandboxRoot), row.change())
			if err != nil {
				t.Fatal(err)
			}
			before := owners(t, "/run/rockpool")
			if err := closeOutside(asker, sandboxRoot); (err == nil) != row.fine {
				t.Errorf("%v, want success: %t", err, row.fine)
			}
			if !row.fine {
				unchanged(t, "/run/rockpool", before)
				return
			}
			unchanged(t, "/run/rockpool", before, outsideMount, socket)
			if info, err := os.Stat(outsideMount); err != nil || info.Mode().Perm() != 0o711 {
				t.Errorf("the directory is %v, %v", info, err)
			}
		})
	}
}

func testReturnOutside(t *testing.T) {
	const way, at = "/run/way", "/run/way/outside"
	c := helper.Config{State: "/run/state"}
	note := filepath.Join(c.State, "a", takenFile)
	for name, row := range map[string]struct {
		change func() error
		given  []string
	}{
		"unchanged": {func() error { return nil }, []string{at}},
		"moved, and a link in its place": {func() error {
			return errors.Join(os.Rename(at, at+"-away"), os.Symlink(at+"-away", at))
		}, nil},
		"a link on the way": {func() error { return errors.Join(os.Rename(way, way+"-away"), os.Symlink(way+"-away", way)) }, nil},
		"another directory": {func() error { return errors.Join(os.Rename(at, at+"-away"), dirAt(at, sandboxRoot)) }, nil},
		"another user's":    {func() error { return os.Chown(at, other, -1) }, nil},
		"gone":              {func() error { return os.Remove(at) }, nil},
		"half a note":       {func() error { return os.Truncate(note, 20) }, nil},
		"no note":           {func() error { return os.Remove(note) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := errors.Join(os.RemoveAll(way), os.RemoveAll(way+"-away"), os.MkdirAll(filepath.Dir(note), 0o700), dirAt(way, asker), dirAt(at, sandboxRoot))
			var stat unix.Stat_t
			if err := errors.Join(err, unix.Stat(at, &stat)); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(taken{Path: at, Device: stat.Dev, Inode: stat.Ino, Asker: asker, Root: sandboxRoot})
			if err := errors.Join(err, os.WriteFile(note, text, 0o600), row.change()); err != nil {
				t.Fatal(err)
			}
			before := owners(t, "/run")
			if err := returnOutside(c, "a"); err != nil {
				t.Error(err)
			}
			unchanged(t, "/run", before, row.given...)
		})
	}
}
