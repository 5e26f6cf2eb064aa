package daemon_test

import (
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
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/daemon"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

func TestOnlyTheServersUserIsServed(t *testing.T) {
	b := newBox(t)
	if _, err := b.dial(stranger); !errors.Is(err, unix.EACCES) {
		t.Errorf("a stranger connects: got %v, want %v", err, unix.EACCES)
	}
	if answer, err := b.as(0, sandboxtest.Hello); err == nil { // root can open any socket
		t.Errorf("root is answered: %+v", answer)
	}
	if err := os.Chmod(b.config.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	if answer, err := b.as(stranger, sandboxtest.Hello); err == nil {
		t.Errorf("a stranger is answered: %+v", answer)
	}
	if answer, err := b.as(server, sandboxtest.Hello); err != nil || answer.Parent != b.config.Parent {
		t.Errorf("the server's user: %+v, %v", answer, err)
	}
}

// No request of a compromised server makes anything or harms anybody.
func TestHostileRequestsAreRefused(t *testing.T) {
	b := newBox(t)
	socket := agentSocket(t, "unix")
	before := b.descriptors()
	for _, text := range append(sandboxtest.Hostile(), strings.Replace(good("a"), `"resources"`, `"slot":3,"resources"`, 1) /* chooses its users */) {
		if answer, err := b.as(server, text, socket); err == nil && answer.Error == "" {
			t.Errorf("%.200q is answered with %+v", text, answer)
		}
	}
	for _, text := range []string{good("a") + strings.Repeat(" ", 2*helper.MaxMessage), sandboxtest.Remove + strings.Repeat(" ", helper.MaxMessage)} {
		if answer, err := b.as(server, text, socket); err == nil && answer.Error == "" {
			t.Errorf("%d bytes are answered with %+v", len(text), answer)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	connected, other := os.NewFile(uintptr(pair[0]), "connected"), os.NewFile(uintptr(pair[1]), "other")
	defer connected.Close()
	defer other.Close()
	for name, files := range map[string][]*os.File{
		"none": {}, "two": {socket, socket}, "twenty": slices.Repeat([]*os.File{socket}, 20), "a device": {null}, "a pipe": {read},
		"a TCP listener": {file(t, tcp)}, "a connected socket": {connected}, "one of packets": {agentSocket(t, "unixpacket")},
		"a socket among others": {null, socket},
	} {
		if answer, err := b.as(server, good("a"), files...); err == nil && answer.Error == "" {
			t.Errorf("descriptors, %s: %+v", name, answer)
		}
	}
	for name, files := range map[string][]*os.File{"none": {}, "a device": {null}, "a socket": {socket}} {
		if answer, err := b.as(server, work, files...); err == nil && answer.Error == "" {
			t.Errorf("to work on, %s: %+v", name, answer)
		}
	}
	for _, text := range []string{sandboxtest.Hello, sandboxtest.Remove} {
		if answer, err := b.as(server, text, socket); err == nil && answer.Error == "" {
			t.Errorf("%s with a descriptor: %+v", text, answer)
		}
	}
	b.nothing()
	b.settle(before)
}

// An image is a directory of the server, which can replace it by a link. With mapped owners, the
// link's target would be as open to the sandbox as to root.
func TestLinksToImagesAreRefused(t *testing.T) {
	b := newBox(t)
	socket := agentSocket(t, "unix")
	secret := filepath.Join(filepath.Dir(b.config.Dir), "secret")
	for _, dir := range []string{secret, filepath.Join(secret, "root"), filepath.Join(secret, filepath.Dir(helper.ImageRoot(sandboxtest.Digest)), "root")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	packet := strings.Replace(sandboxtest.Create, `"slot":3,`, "", 1)
	at := filepath.Join(b.config.Images, helper.ImageRoot(sandboxtest.Digest))
	for name, link := range map[string]string{"the root": at, "the image": filepath.Dir(at), "all images": b.config.Images} {
		err := errors.Join(os.RemoveAll(b.config.Images), os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(secret, link))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := b.as(server, packet, socket)
		if err != nil || !strings.Contains(answer.Error, unix.ELOOP.Error()) {
			t.Errorf("%s is a link: %+v, %v", name, answer, err)
		}
	}
	b.nothing()
}

// settle waits until the helper has as many descriptors as before.
func (b *box) settle(before int) {
	b.t.Helper()
	wait.For(b.t, "the helper has no more descriptors than before", func() bool { return b.descriptors() <= before })
}

// Silent connections are closed, so that others are served.
func TestSilentConnectionsAreClosed(t *testing.T) {
	b := newBox(t)
	before := b.descriptors()
	var silent []*net.UnixConn
	for range 100 { // more than are served concurrently
		conn, err := b.dial(server)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	if answer, err := b.as(server, sandboxtest.Hello); err != nil || answer.Parent != b.config.Parent {
		t.Errorf("%+v, %v", answer, err)
	}
	for _, conn := range silent {
		_ = conn.SetDeadline(time.Now().Add(wait.Limit))
		var refused helper.Answer
		text := make([]byte, helper.MaxMessage)
		if n, err := conn.Read(text); err == nil {
			err = json.Unmarshal(text[:n], &refused)
			if err != nil || refused.Error == "" {
				t.Errorf("silence is answered with %q", text[:n])
			}
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("silence is waited for")
		}
	}
	b.settle(before)
	b.nothing()
}

func TestSandboxesOutliveTheirHelper(t *testing.T) {
	b := newBox(t)
	socket := agentSocket(t, "unix")
	made, err := b.as(server, good("a"), socket)
	if err != nil || made.Error != "" || made.PID == 0 {
		t.Fatalf("%+v, %v", made, err)
	}
	status := func() string {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", made.PID))
		return string(text)
	}
	held, err := (&uids.Ranges{Dir: uids.Default}).Held(b.config.Dir)
	if err != nil || len(held) != 1 {
		t.Fatalf("held: %v, %v", held, err)
	}
	for slot := range held {
		if want := fmt.Sprintf("Uid:\t%d\t", spec.FirstUID+slot*spec.UIDs); !strings.Contains(status(), want) {
			t.Errorf("the agent's user isn't %s:\n%s", want, status())
		}
	}
	if again, err := b.as(server, good("a"), socket); err != nil || again.Error == "" {
		t.Errorf("the same once more: %+v, %v", again, err)
	}
	for range 2 { // a first start still needs the first helper's root
		b.end(syscall.SIGKILL)
		b.start()
		if !strings.Contains(status(), "State:") {
			t.Fatal("it ended with the helper")
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", made.PID, spec.AgentPath)); err != nil {
			t.Errorf("its root went: %v", err)
		}
	}
	for range 2 {
		if answer, err := b.as(server, sandboxtest.Remove); err != nil || answer.Error != "" {
			t.Errorf("%+v, %v", answer, err)
		}
	}
	b.nothing()
	b.end(syscall.SIGTERM)
	b.start()
	if roots, err := os.ReadDir(filepath.Join(b.config.Dir, "roots")); err != nil || len(roots) != 1 {
		t.Errorf("roots: %v, %v", roots, err)
	}
}

// If a server disconnects at any stage of a create, everything that is left can be removed.
func TestDisconnectedClientLeavesNothing(t *testing.T) {
	b := newBox(t)
	remote := launch.Remote{Socket: b.config.Socket, Parent: b.config.Parent}
	socket := agentSocket(t, "unix")
	_, err := b.as(server, good("a"), socket) // from now on it has a maker
	_, err2 := b.as(server, sandboxtest.Remove)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	before := b.descriptors()
	for _, stage := range b.stages() {
		conn, err := b.dial(server)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(conn, good(stage.id), socket); err != nil {
			t.Fatal(err)
		}
		wait.For(t, stage.name, stage.reached)
		_ = conn.Close()
		asUser(server, func() {
			if err := remote.Remove(context.Background(), stage.id, b.config.Parent+"/"+stage.id); err != nil {
				t.Errorf("once %s: %v", stage.name, err)
			}
		})
	}
	b.settle(before) // an abandoned sandbox may be made after its removal
	b.nothing()
	asUser(server, func() {
		if err := remote.Remove(context.Background(), "a", "/rockpool/a"); err == nil {
			t.Error("a group elsewhere is said to be removed")
		}
	})
}

// A cgroup with a sandbox's name that this helper didn't make belongs to another server.
func TestOtherServersSandboxesAreKept(t *testing.T) {
	b := newBox(t)
	trees, err := cgroup.Mounted()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(trees[0].Mount, b.config.Parent, "other", "runner")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	remote := launch.Remote{Socket: b.config.Socket, Parent: b.config.Parent}
	if answer, err := b.as(server, good("other"), agentSocket(t, "unix")); err != nil || !strings.Contains(answer.Error, "cgroup") {
		t.Errorf("made: got %+v, %v, want a refusal because of the cgroup", answer, err)
	}
	asUser(server, func() {
		if err := remote.Remove(context.Background(), "other", b.config.Parent+"/other"); err == nil || !strings.Contains(err.Error(), "cgroup") {
			t.Errorf("removed: got %v, want a refusal because of the cgroup", err)
		}
	})
	for _, dir := range []string{other, filepath.Dir(other)} {
		if err := os.Remove(dir); err != nil { // it must exist
			t.Error(err)
		}
	}
	b.nothing()
}

// Of several requests for the same sandbox one succeeds. Requests for different ones don't wait for
// each other.
func TestConcurrentRequests(t *testing.T) {
	b := newBox(t)
	var made sync.Map
	var all sync.WaitGroup
	socket := agentSocket(t, "unix")
	for i := range 6 {
		all.Go(func() {
			id := fmt.Sprintf("a%d", i/3)
			answer, err := b.as(server, good(id), socket)
			if err != nil {
				t.Error(err)
			} else if answer.Error == "" {
				if _, twice := made.LoadOrStore(id, true); twice {
					t.Errorf("%s was made twice", id)
				}
			}
		})
	}
	all.Wait()
	for _, id := range []string{"a0", "a1"} {
		if _, is := made.Load(id); !is {
			t.Errorf("%s wasn't made", id)
		}
		if answer, err := b.as(server, strings.Replace(sandboxtest.Remove, `"a"`, `"`+id+`"`, 1)); err != nil || answer.Error != "" {
			t.Errorf("%+v, %v", answer, err)
		}
	}
	b.nothing()
}

// A socket from systemd is used if it is a packet socket.
func TestSocketFromSystemd(t *testing.T) {
	b := newBox(t)
	b.end(syscall.SIGTERM)
	config := b.config
	config.Socket = ""
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for network, fine := range map[string]bool{"unixpacket": true, "unix": false} {
		_ = os.Remove(b.config.Socket)
		l, err := net.ListenUnix(network, &net.UnixAddr{Name: b.config.Socket, Net: network})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := os.Chown(b.config.Socket, server, -1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(b.config.Dir, daemon.Program), helper.Listen, string(text))
		cmd.ExtraFiles = []*os.File{file(t, l)}
		_ = l.Close()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !fine {
			if err := cmd.Wait(); err == nil || ctx.Err() != nil {
				t.Error("a socket of streams is used")
			}
			continue
		}
		if answer, err := b.as(server, sandboxtest.Hello); err != nil || answer.Parent != b.config.Parent {
			t.Errorf("%+v, %v", answer, err)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(b.config.Socket); err != nil {
			t.Errorf("systemd's socket went: %v", err)
		}
	}
	_ = os.Remove(b.config.Socket) // this test still listens there
	b.start()
}

// Directories that others than root can write to are refused.
func TestDirectoriesMustBelongToRoot(t *testing.T) {
	b := newBox(t)
	b.end(syscall.SIGTERM)
	for name, change := range map[string]func(*daemon.Config){
		"a directory of the server's": func(c *daemon.Config) { c.Dir = filepath.Join(filepath.Dir(c.Dir), "servers") },
		"the socket's of the server's": func(c *daemon.Config) {
			c.Socket = filepath.Join(filepath.Dir(c.Dir), "servers", "s.sock")
		},
		"a group elsewhere": func(c *daemon.Config) { c.Parent = "/system.slice" },
		"a file's place":    func(c *daemon.Config) { c.Socket = filepath.Join(c.Dir, daemon.Agent) },
	} {
		servers := filepath.Join(filepath.Dir(b.config.Dir), "servers")
		if err := errors.Join(os.MkdirAll(servers, 0o755), os.Chown(servers, server, -1)); err != nil {
			t.Fatal(err)
		}
		config := b.config
		change(&config)
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
		out, err := exec.CommandContext(ctx, filepath.Join(b.config.Dir, daemon.Program), helper.Listen, string(text)).CombinedOutput()
		cancel()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || len(out) == 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	text, err := json.Marshal(b.config)
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]string{
		"another user's":   "chown 61237 /run/rockpool",
		"a group's":        "chmod 775 /run/rockpool",
		"a link":           "mv /run/rockpool /run/elsewhere; ln -s elsewhere /run/rockpool",
		"everybody's /run": "chmod 777 /run",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
		cmd := exec.CommandContext(ctx, "sh", "-ec", "mount -t tmpfs -o mode=755 run /run; mkdir /run/rockpool; "+run+`; exec "$0" "$@"`,
			filepath.Join(b.config.Dir, daemon.Program), helper.Listen, string(text))
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), "root") {
			t.Errorf("where sandboxes are mounted, %s: got %v\n%s, want a refusal that names root", name, err, out)
		}
	}
	b.start()
}

const work = `{"protocol":2,"command":"work"}`

// TestWorkersHaveNoRights: whatever directory a worker gets, it changes only world-writable files
// and those of images' owners.
func TestWorkersHaveNoRights(t *testing.T) {
	b := newBox(t)
	const begin, clearing = `b{"limits":{"bytes":1000000,"entries":100},"skeleton":{"home":"/"}}`, `cnull`
	for _, c := range []struct {
		name      string
		uid, mode int
		allowed   bool
	}{
		{"root's", 0, 0o755, false}, {"the server's", server, 0o700, false}, {"a sandbox's", spec.FirstUID, 0o755, false}, {"everybody's", server, 0o777, true},
	} {
		dir := t.TempDir()
		kept := filepath.Join(dir, "kept")
		err := errors.Join(os.WriteFile(kept, nil, 0o644), os.Lchown(dir, c.uid, c.uid), os.Chmod(dir, os.FileMode(c.mode)))
		open, failed := os.Open(dir)
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		said := b.work(open, begin)
		var made unix.Stat_t
		err = unix.Lstat(filepath.Join(dir, "root"), &made)
		if c.allowed != (err == nil && made.Uid == spec.ImageOwners && made.Gid == spec.ImageOwners) || c.allowed == strings.Contains(said, "denied") {
			t.Errorf("%s directory: %s, and there is %+v (%v)", c.name, said, made, err)
		}
		said = b.work(open, clearing)
		_, stays := os.Lstat(kept)
		if _, err := os.Lstat(filepath.Join(dir, "root")); err == nil || c.allowed != (stays != nil) {
			t.Errorf("%s directory after clearing: %s; %v, %v", c.name, said, err, stays)
		}
	}
	for _, packet := range []string{"x", "d", "l{}", "b{", "b[]", "\x00"} { // unexpected packets
		open, err := os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		if said := b.work(open, packet); !strings.Contains(said, `"error"`) {
			t.Errorf("%q is answered with %s", packet, said)
		}
	}
}

// work starts a worker on a directory, and returns its answer to a packet.
func (b *box) work(dir *os.File, packet string) string {
	b.t.Helper()
	conn, err := b.dial(server)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	err = errors.Join(conn.SetDeadline(time.Now().Add(wait.Limit)), send(conn, work, dir))
	text := make([]byte, helper.MaxMessage)
	n, failed := conn.Read(text)
	var answer helper.Answer
	if err := errors.Join(err, failed, json.Unmarshal(text[:n], &answer)); err != nil || answer.Error != "" {
		b.t.Fatalf("%+v, %v", answer, err)
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", answer.PID))
	if want := fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", spec.ImageOwners); !strings.Contains(string(status), want) {
		b.t.Errorf("the worker isn't %q:\n%s", want, status)
	}
	if err := send(conn, packet); err != nil {
		b.t.Fatal(err)
	}
	if n, err = conn.Read(text); err != nil {
		b.t.Fatal(err)
	}
	return string(text[:n])
}
