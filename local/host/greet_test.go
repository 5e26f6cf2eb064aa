package host

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
)

// unreadableGroups returns a version 2 tree whose cgroup /rockpool only its owner may search, as
// made by a root server with a strict umask.
func unreadableGroups(t *testing.T) cgroup.Hierarchies {
	t.Helper()
	mount := sandboxtest.OpenDir(t)
	parent := filepath.Join(mount, "rockpool")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(parent, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(parent, 0o755) })
	return cgroup.Hierarchies{{Mount: mount, Root: "/", V2: true}}
}

// Otherwise the server would take each runner of the last server for dead, and remove it.
func TestServerDoesNotStartWithUnreadableCgroups(t *testing.T) {
	need.Sandboxes(t) // a server accepts only a helper that runs as root
	trees := unreadableGroups(t)
	socket := filepath.Join(sandboxtest.OpenDir(t), "s")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { // a helper that only answers Hello
		defer close(served)
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, helper.MaxMessage))
			text, _ := json.Marshal(helper.Answer{Parent: "/rockpool"})
			_, _ = conn.Write(text)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-served
	})
	h := &Host{config: Config{HelperSocket: socket, CgroupParent: "rockpool"}, Trees: trees}
	sandboxtest.AsNobody(t, func() {
		err := h.greet(t.Context())
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), trees[0].Mount) {
			t.Errorf("greet: %v", err)
		}
	})
	if err := os.Chmod(filepath.Join(trees[0].Mount, "rockpool"), 0o755); err != nil {
		t.Fatal(err)
	}
	sandboxtest.AsNobody(t, func() {
		if err := h.greet(t.Context()); err != nil {
			t.Errorf("greet, with groups that can be read: %v", err)
		}
	})
}
