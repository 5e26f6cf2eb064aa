package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// withGVisor returns a helper with gVisor.
func withGVisor(t *testing.T) *box {
	t.Helper()
	b := newBox(t)
	b.end(syscall.SIGTERM)
	b.config.Runtimes = oci.Runtimes{oci.GVisor: {Path: sandboxtest.GVisor(t)}}
	b.start()
	return b
}

// apart returns a request for a sandbox with its own kernel.
func apart(id string) string {
	return strings.Replace(good(id), `"resources"`, `"runtime":"gvisor","resources"`, 1)
}

// outside makes a directory for an agent's socket that belongs to a user, and opens it.
func (b *box) outside(name string, uid int) *os.File {
	b.t.Helper()
	dir := filepath.Join(filepath.Dir(b.config.Dir), name)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid)); err != nil {
		b.t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = f.Close() })
	return f
}

// ownerOf returns a file's owner.
func ownerOf(t *testing.T, path string) int {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return int(stat.Uid)
}

// A server gets sandboxes of its helper's runtimes by name. The directory of the agent's socket is
// returned when nobody inside can write to it.
func TestGVisorThroughAHelper(t *testing.T) {
	b := newBox(t)
	dir := b.outside("a", server)
	if answer, err := b.as(server, apart("a"), dir); err != nil || !answer.Final || !strings.Contains(answer.Error, "gvisor") {
		t.Errorf("no runtime: got %+v, %v, want a final error that names gvisor", answer, err)
	}
	if answer, err := b.as(server, sandboxtest.Probe); err != nil || !strings.Contains(answer.Error, "gvisor") {
		t.Errorf("a probe without a runtime: got %+v, %v, want an error that names gvisor", answer, err)
	}
	b.end(syscall.SIGTERM)
	b.config.Runtimes = oci.Runtimes{oci.GVisor: {Path: sandboxtest.GVisor(t)}}
	b.start()
	if answer, err := b.as(server, sandboxtest.Hello); err != nil || strings.Join(answer.Runtimes, " ") != oci.GVisor {
		t.Errorf("it has %+v, %v", answer, err)
	}
	if answer, err := b.as(server, sandboxtest.Probe); err != nil || !strings.HasPrefix(answer.Version, "runsc") {
		t.Errorf("it says %+v, %v", answer, err)
	}
	answer, err := b.as(server, apart("a"), dir)
	if err != nil || answer.Error != "" || answer.PID == 0 {
		t.Fatalf("%+v, %v", answer, err)
	}
	socket := filepath.Join(dir.Name(), spec.SocketName)
	if ownerOf(t, dir.Name()) != server || ownerOf(t, socket) != server {
		t.Errorf("the directory is user %d's, the socket user %d's", ownerOf(t, dir.Name()), ownerOf(t, socket))
	}
	asUser(server, func() {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Connect(fd, &unix.SockaddrUnix{Name: socket}), unix.Close(fd))
		}
		if err != nil {
			t.Errorf("the server can't connect: %v", err)
		}
	})
	b.end(syscall.SIGKILL)
	b.start()
	if err := unix.Kill(answer.PID, 0); err != nil {
		t.Errorf("it ended with its helper: %v", err)
	}
	if answer, err := b.as(server, sandboxtest.Remove); err != nil || answer.Error != "" {
		t.Errorf("%+v, %v", answer, err)
	}
	asUser(server, func() {
		for _, name := range []string{"agent", spec.SocketName} { // the directory above belongs to the test
			if err := os.Remove(filepath.Join(dir.Name(), name)); err != nil {
				t.Error(err)
			}
		}
	})
}

// Only an empty directory of the server's user is given to a sandbox.
func TestGVisorRefusesOtherDirectories(t *testing.T) {
	b := withGVisor(t)
	full := b.outside("full", server)
	if err := os.Symlink("/etc/passwd", filepath.Join(full.Name(), "agent")); err != nil {
		t.Fatal(err)
	}
	moved := b.outside("moved", server)
	if err := errors.Join(os.Rename(moved.Name(), moved.Name()+"-away"), os.Symlink("/mnt", moved.Name())); err != nil {
		t.Fatal(err)
	}
	// Its path, as the kernel reports it, belongs to another user by the time it is resolved.
	swapped, victim := b.outside("swapped", server), b.outside("victim", 0)
	if err := errors.Join(os.Remove(swapped.Name()), os.Symlink(victim.Name(), swapped.Name()+" (deleted)")); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]*os.File{
		"one with a link in its place": swapped, "root's": b.outside("roots", 0), "a stranger's": b.outside("strangers", stranger), "a sandbox's": b.outside("sandboxs", spec.FirstUID),
		"one with a link in it": full, "a socket": agentSocket(t, "unix"),
	} {
		var before unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &before); err != nil {
			t.Fatal(err)
		}
		if answer, err := b.as(server, apart("a"), file); err != nil || answer.Error == "" {
			t.Errorf("%s is taken: %+v, %v", name, answer, err)
		}
		var after unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &after); err != nil || after.Uid != before.Uid {
			t.Errorf("%s is user %d's now, and was %d's (%v)", name, after.Uid, before.Uid, err)
		}
		b.nothing()
	}
	if answer, err := b.as(server, good("a"), b.outside("own", server)); err != nil || answer.Error == "" {
		t.Errorf("a directory in the place of a socket is taken: %+v, %v", answer, err)
	}
	if answer, err := b.as(server, apart("a"), moved); err != nil || answer.Error != "" {
		t.Errorf("one that was moved is another's now: %+v, %v", answer, err) // the kernel reports where it is
	}
	if uid := ownerOf(t, "/mnt"); uid != 0 {
		t.Errorf("/mnt is user %d's, want 0", uid)
	}
	if info, err := victim.Stat(); err != nil || info.Mode().Perm() != 0o700 || ownerOf(t, victim.Name()) != 0 {
		t.Errorf("the directory that a link led to is %v and user %d's (%v)", info.Mode(), ownerOf(t, victim.Name()), err)
	}
	if entries, err := os.ReadDir(victim.Name()); err != nil || len(entries) > 0 {
		t.Errorf("in it are %v, %v", entries, err)
	}
	if answer, err := b.as(server, sandboxtest.Remove); err != nil || answer.Error != "" {
		t.Errorf("%+v, %v", answer, err)
	}
}

// Whenever the client disconnects or the helper is killed, the directory belongs to the server
// again in the end.
func TestGVisorReturnsDirectories(t *testing.T) {
	b := withGVisor(t)
	remote := launch.Remote{Socket: b.config.Socket, Parent: b.config.Parent}
	for i, stage := range slices.Concat(b.stages(), b.stages()) {
		killed := i >= len(b.stages()) // in the second round the helper is killed
		dir := b.outside(fmt.Sprint("directory", i), server)
		conn, err := b.dial(server)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(conn, apart(stage.id), dir); err != nil {
			t.Fatal(err)
		}
		wait.For(t, stage.name, stage.reached)
		if killed {
			b.end(syscall.SIGKILL)
		}
		_ = conn.Close()
		if killed {
			b.start()
		}
		asUser(server, func() {
			if err := remote.Remove(context.Background(), stage.id, b.config.Parent+"/"+stage.id); err != nil {
				t.Errorf("once %s: %v", stage.name, err)
			}
		})
		if uid := ownerOf(t, dir.Name()); uid != server {
			t.Errorf("once %s the directory is user %d's, want %d", stage.name, uid, server)
		}
	}
	b.nothing()
}
