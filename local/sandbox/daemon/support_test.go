package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/daemon"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/test/executable"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// Unused user ids.
const (
	server   = 61_236
	stranger = 61_237
)

// TestMain is also the worker that a helper starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == helper.WorkerArgument {
		conn, err := net.FileConn(os.Stdin)
		if err == nil {
			err = image.Work(context.Background(), conn.(*net.UnixConn), os.NewFile(3, "directory"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A box is a listening helper, in its own directory and below its own cgroup.
type box struct {
	t      *testing.T
	config daemon.Config
	cmd    *exec.Cmd
	trees  cgroup.Hierarchies
	said   bytes.Buffer
}

func newBox(t *testing.T) *box {
	t.Helper()
	need.Sandboxes(t)
	dir, err := os.MkdirTemp("", "rp-daemon-") // t.TempDir can't be entered by others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &box{t: t, config: daemon.Config{
		Socket: filepath.Join(dir, "s.sock"), UID: server, Dir: filepath.Join(dir, "helper"), Images: filepath.Join(dir, "images"),
		Worker: filepath.Join(dir, "worker"),
		Parent: fmt.Sprintf("/rockpool/test-daemon-%d-%d", os.Getpid(), time.Now().UnixNano()),
	}}
	if b.trees, err = cgroup.Mounted(); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(b.config.Dir, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(b.config.Dir, daemon.Program), sandboxtest.Helper(t))
	executable.Write(t, filepath.Join(b.config.Dir, daemon.Agent), sandboxtest.Agent(t))
	executable.Copy(t, "/proc/self/exe", b.config.Worker)
	t.Cleanup(func() {
		b.end(syscall.SIGTERM)
		if b.nothing(); t.Failed() {
			t.Log(b.said.String())
		}
		for _, tree := range b.trees {
			if _, err := os.Stat(filepath.Join(tree.Mount, b.config.Parent)); err == nil {
				t.Errorf("the group %s is left in %s", b.config.Parent, tree.Mount)
			}
		}
	})
	b.start()
	return b
}

// start starts the helper with its unit's restrictions, and returns when it answers.
func (b *box) start() {
	b.t.Helper()
	config, err := json.Marshal(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	line := sandboxtest.AsUnit(b.t, "rockpool-helper.service", filepath.Join(b.config.Dir, daemon.Program), helper.Listen, string(config))
	b.cmd = exec.Command(line[0], line[1:]...)
	b.cmd.Env, b.cmd.Stderr = []string{}, &b.said
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	wait.For(b.t, "the helper answers", func() bool {
		_, err := b.as(server, sandboxtest.Hello)
		return err == nil
	})
}

func (b *box) end(signal syscall.Signal) {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Signal(signal)
	_ = b.cmd.Wait()
	b.cmd = nil
}

// asUser runs do on a thread with a user's id, which ends with do.
func asUser(uid int, do func()) {
	proc.OnThread(func() {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			panic(errno)
		}
		do()
	})
}

func (b *box) dial(uid int) (conn *net.UnixConn, err error) {
	asUser(uid, func() {
		conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: b.config.Socket, Net: "unixpacket"})
	})
	return conn, err
}

// as sends a packet with descriptors as a user, and returns the answer. An error is one of the
// connection.
func (b *box) as(uid int, packet string, files ...*os.File) (answer helper.Answer, err error) {
	conn, err := b.dial(uid)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait.Limit)); err != nil {
		return answer, err
	}
	if err := send(conn, packet, files...); err != nil {
		return answer, err
	}
	text := make([]byte, helper.MaxMessage)
	n, err := conn.Read(text)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(text[:n], &answer)
}

func send(conn *net.UnixConn, packet string, files ...*os.File) error {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix([]byte(packet), rights, nil)
	return err
}

// descriptors returns how many descriptors the helper has open.
func (b *box) descriptors() int {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	return len(all)
}

// nothing fails the test if anything of a sandbox exists.
func (b *box) nothing() {
	b.t.Helper()
	for _, sub := range []string{"held", "state"} {
		left, err := os.ReadDir(filepath.Join(b.config.Dir, sub))
		if err != nil || len(left) > 0 {
			b.t.Errorf("%s: %v, %v", sub, left, err)
		}
	}
	for _, tree := range b.trees {
		groups, _ := os.ReadDir(filepath.Join(tree.Mount, b.config.Parent))
		if slices.ContainsFunc(groups, os.DirEntry.IsDir) {
			b.t.Errorf("%s: %v", tree.Mount, groups)
		}
	}
	if held, err := (&uids.Ranges{Dir: uids.Default}).Held(b.config.Dir); err != nil || len(held) > 0 {
		b.t.Errorf("user ids are left: %v, %v", held, err)
	}
}

// A stage is a part of making a sandbox.
type stage struct {
	name, id string
	reached  func() bool
}

// stages returns some stages of a create, each of another sandbox. A reached stage lasts while the
// client is connected.
func (b *box) stages() (all []stage) {
	b.t.Helper()
	tree, ok := b.trees.Controller("pids")
	if !ok {
		b.t.Fatal("no pids controller")
	}
	there := func(path ...string) func(id string) bool {
		return func(id string) bool {
			_, err := os.Stat(strings.ReplaceAll(filepath.Join(path...), "ID", id))
			return err == nil
		}
	}
	for _, p := range []struct {
		name    string
		reached func(id string) bool
	}{
		{"requested", func(string) bool { return true }},
		{"user ids taken", there(b.config.Dir, "held", "ID")},
		{"cgroup made", there(tree.Mount, b.config.Parent, "ID")},
		{"process started", func(id string) bool {
			group := filepath.Join(tree.Mount, b.config.Parent, id)
			pids, _ := cgroup.Processes(group)
			agents, _ := cgroup.Processes(filepath.Join(group, cgroup.Agent))
			return len(pids)+len(agents) > 0
		}},
	} {
		id := fmt.Sprintf("a%d", len(all))
		all = append(all, stage{p.name, id, func() bool { return p.reached(id) }})
	}
	return all
}

// file returns a listener's descriptor, for sending.
func file[L interface{ File() (*os.File, error) }](t *testing.T, l L) *os.File {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// agentSocket returns a socket for a sandbox's agent.
func agentSocket(t *testing.T, network string) *os.File {
	t.Helper()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(t.TempDir(), "a"), Net: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return file(t, l)
}

// good returns a request for a sandbox of the image "host".
func good(id string) string {
	text := strings.Replace(sandboxtest.Create, `"slot":3,"image":"`+sandboxtest.Digest+`",`, "", 1)
	return strings.Replace(text, `"id":"a"`, `"id":"`+id+`"`, 1)
}
