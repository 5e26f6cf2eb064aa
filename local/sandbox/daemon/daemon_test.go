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
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/daemon"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/sandboxtest"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/local/uids"
)

// Users that nobody on the machine is.
const (
	server   = 61_234
	stranger = 61_235
)

// TestMain is the worker, too, that a helper starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == daemon.WorkerArgument {
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

// A box is a helper that listens, in a directory and below a group of its own.
type box struct {
	t      *testing.T
	config daemon.Config
	cmd    *exec.Cmd
	trees  cgroup.Hierarchies
	said   bytes.Buffer
}

func newBox(t *testing.T) *box {
	t.Helper()
	sandboxtest.NeedRoot(t)
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
	for name, data := range map[string][]byte{daemon.Program: sandboxtest.Helper(t), daemon.Agent: sandboxtest.Agent(t)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(b.config.Dir, name), data, 0o755))
	}
	var worker []byte
	if err == nil {
		worker, err = os.ReadFile("/proc/self/exe")
	}
	if err = errors.Join(err, os.WriteFile(b.config.Worker, worker, 0o755)); err != nil {
		t.Fatal(err)
	}
	b.start()
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
	return b
}

// start starts the helper, and returns when it answers.
func (b *box) start() {
	b.t.Helper()
	config, err := json.Marshal(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.cmd = exec.Command(filepath.Join(b.config.Dir, daemon.Program), helper.Listen, string(config))
	b.cmd.Env, b.cmd.Stderr = []string{}, &b.said
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if _, err := b.as(server, sandboxtest.Hello); err == nil {
			return
		} else if time.Now().After(end) {
			b.t.Fatalf("the helper doesn't answer: %v\n%s", err, b.said.String())
		}
	}
}

func (b *box) end(signal syscall.Signal) {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Signal(signal)
	_ = b.cmd.Wait()
	b.cmd = nil
}

// asUser runs do on a thread that is a user's, which ends with it.
func asUser(uid int, do func()) {
	var ended sync.WaitGroup
	ended.Go(func() {
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			panic(errno)
		}
		do()
	})
	ended.Wait()
}

func (b *box) dial(uid int) (conn *net.UnixConn, err error) {
	asUser(uid, func() {
		conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: b.config.Socket, Net: "unixpacket"})
	})
	return conn, err
}

// as sends a packet with descriptors as a user, and returns the answer. An error
// is one of the connection's.
func (b *box) as(uid int, packet string, files ...*os.File) (answer helper.Answer, err error) {
	conn, err := b.dial(uid)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
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

// descriptors returns how many the helper has open.
func (b *box) descriptors() int {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	return len(all)
}

// nothing fails the test if there is anything of a sandbox.
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

// file returns what can be sent of a listener.
func file[L interface{ File() (*os.File, error) }](t *testing.T, l L) *os.File {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// agentSocket returns a socket that a sandbox's agent can have.
func agentSocket(t *testing.T, network string) *os.File {
	t.Helper()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(t.TempDir(), "a"), Net: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return file(t, l)
}

// good is a request for a sandbox of the machine's programs.
func good(id string) string {
	text := strings.Replace(sandboxtest.Create, `"slot":3,"image":"`+sandboxtest.Digest+`",`, "", 1)
	return strings.Replace(text, `"id":"a"`, `"id":"`+id+`"`, 1)
}

func TestOnlyTheServersUserIsServed(t *testing.T) {
	b := newBox(t)
	if _, err := b.dial(stranger); !errors.Is(err, unix.EACCES) {
		t.Errorf("a stranger connects: %v", err)
	}
	if answer, err := b.as(0, sandboxtest.Hello); err == nil { // it can open whatever it likes
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

// What a server that was taken over can say makes nothing, and harms nobody.
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

// An image is a directory of the server's, who may put a link in its place: with
// its owners mapped, what that leads to would be open to the sandbox as to root.
func TestImagesAreNoLinks(t *testing.T) {
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
	for end := time.Now().Add(10 * time.Second); b.descriptors() > before; <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%d descriptors are open, and %d were", b.descriptors(), before)
		}
	}
}

// Who says nothing, or leaves, holds up others for seconds at most.
func TestSilenceEnds(t *testing.T) {
	b := newBox(t)
	before := b.descriptors()
	began := time.Now()
	var silent []*net.UnixConn
	for range 100 { // more than are served at once
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
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("others waited %v", took)
	}
	for _, conn := range silent {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
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
	for range 2 { // whose first start still needs the first one's root
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

// A server that dies, or doesn't wait, leaves nothing that can't be removed.
func TestWhoeverLeavesGivesUp(t *testing.T) {
	b := newBox(t)
	remote := launch.Remote{Socket: b.config.Socket, Parent: b.config.Parent}
	socket := agentSocket(t, "unix")
	for i, patience := range []time.Duration{0, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		id := fmt.Sprintf("a%d", i)
		conn, err := b.dial(server)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(conn, good(id), socket); err != nil {
			t.Fatal(err)
		}
		<-time.After(patience)
		_ = conn.Close()
		asUser(server, func() {
			if err := remote.Remove(context.Background(), id, b.config.Parent+"/"+id); err != nil {
				t.Errorf("after %v: %v", patience, err)
			}
		})
	}
	b.nothing()
	asUser(server, func() {
		if err := remote.Remove(context.Background(), "a", "/rockpool/a"); err == nil {
			t.Error("a group elsewhere is said to be removed")
		}
	})
}

// What has a sandbox's name, and wasn't made here, is another server's.
func TestOthersSandboxesAreLeft(t *testing.T) {
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
	if answer, err := b.as(server, good("other"), agentSocket(t, "unix")); err != nil || !strings.Contains(answer.Error, "isn't this helper's") {
		t.Errorf("made: %+v, %v", answer, err)
	}
	asUser(server, func() {
		if err := remote.Remove(context.Background(), "other", b.config.Parent+"/other"); err == nil || !strings.Contains(err.Error(), "isn't this helper's") {
			t.Errorf("removed: %v", err)
		}
	})
	for _, dir := range []string{other, filepath.Dir(other)} {
		if err := os.Remove(dir); err != nil { // so it was there
			t.Error(err)
		}
	}
	b.nothing()
}

// Of several who want the same sandbox one gets it; different ones don't wait for
// each other's end.
func TestManyAtOnce(t *testing.T) {
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

// A socket that systemd made is used as it is, if it is one of packets.
func TestSocketIsHandedOver(t *testing.T) {
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
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	b.start()
}

// What isn't root's alone isn't used.
func TestPlacesMustBeRoots(t *testing.T) {
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
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		out, err := exec.CommandContext(ctx, filepath.Join(b.config.Dir, daemon.Program), helper.Listen, string(text)).CombinedOutput()
		cancel()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || len(out) == 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	b.start()
}

const work = `{"protocol":1,"command":"work"}`

// TestWorkersAreNobody: whatever directory a server gives to one, it changes only
// what everybody may, and what is that of images' owners.
func TestWorkersAreNobody(t *testing.T) {
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
	for _, packet := range []string{"x", "d", "l{}", "b{", "b[]", "\x00"} { // what isn't expected
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

// work has a worker begin on a directory, and returns what it says to a packet.
func (b *box) work(dir *os.File, packet string) string {
	b.t.Helper()
	conn, err := b.dial(server)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	err = errors.Join(conn.SetDeadline(time.Now().Add(20*time.Second)), send(conn, work, dir))
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
