package maker

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/need"
)

func TestOptionsAreParsed(t *testing.T) {
	o := parseOptions([]string{"rbind", "ro", "rro", "nosuid", "rnodev", "mode=755", "size=64k"})
	want := mountOptions{
		flags: unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID, attr: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID,
		recursive: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV, rbind: true, data: "mode=755,size=64k",
	}
	if o != want {
		t.Errorf("%+v, want %+v", o, want)
	}
}

// A failing step is named, with the kernel's error. The process ends and is reaped.
func TestFailedStepsAreNamed(t *testing.T) {
	need.Sandboxes(t)
	c, its, err := newChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	p := &plan{channel: its.Fd()}
	s := &script{}
	p.descriptors(s)
	p.send(s, wordHere)
	s.add("accept what it may", unix.SYS_UNLINKAT, atCWD, s.text("/nonexistent/file"), 0).unless(unix.ENOENT)
	s.add("sit down", unix.SYS_CHDIR, s.text("/proc/self/status"))
	pid, err := clone(unix.CLONE_NEWUSER, noGroup, s, its.Fd())
	_ = its.Close()
	if err != nil {
		t.Fatal(err)
	}
	met, err := c.meet()
	if err != nil || met != pid {
		t.Errorf("met %d, %v; want %d", met, err, pid)
	}
	err = s.explain(c.expect(wordReady))
	if !errors.Is(err, unix.ENOTDIR) || !strings.Contains(err.Error(), "sit down") {
		t.Errorf("it reports %v", err)
	}
	reap(pid)
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d is left: got %v, want %v", pid, err, unix.ESRCH)
	}
}

// Descriptors are moved to their places, however many the maker has open.
func TestManyDescriptors(t *testing.T) {
	need.Sandboxes(t)
	var files []*os.File
	for range 2 * lowestChannel {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	c, its, err := newChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	p := &plan{null: files[len(files)-1], files: files[len(files)-9:], channel: its.Fd()}
	s := &script{}
	p.descriptors(s)
	p.send(s, wordHere)
	s.add("is the first unused one", unix.SYS_FCNTL, p.next(), unix.F_GETFD).unless(unix.EBADF)
	s.add("is the last used one", unix.SYS_FCNTL, p.next()-1, unix.F_GETFD).want = 0
	p.send(s, wordReady)
	pid, err := clone(unix.CLONE_NEWUSER, noGroup, s, its.Fd())
	_ = its.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer reap(pid)
	if _, err := c.meet(); err != nil {
		t.Fatal(err)
	}
	if err := c.expect(wordReady); err != nil {
		t.Error(s.explain(err))
	}
}

// In a container without CAP_SYS_NICE, the filter of most engines refuses the call that resets the memory policy.
func TestRefusedMemoryPolicyIsKept(t *testing.T) {
	need.Sandboxes(t)
	c, its, err := newChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_SET_MEMPOLICY},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	p, s := &plan{channel: its.Fd()}, &script{}
	p.descriptors(s)
	p.send(s, wordHere)
	s.add("gain no privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	s.add("filter calls", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, point(s, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}))
	p.spread(s)
	p.send(s, wordReady)
	pid, err := clone(unix.CLONE_NEWUSER, noGroup, s, its.Fd())
	_ = its.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer reap(pid)
	if _, err := c.meet(); err != nil {
		t.Fatal(err)
	}
	if err := c.expect(wordReady); err != nil {
		t.Error(s.explain(err))
	}
}

// A process ends when its maker ends.
func TestProcessesEndWithTheirMaker(t *testing.T) {
	need.Sandboxes(t)
	c, its, err := newChannel()
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{channel: its.Fd()}
	s := &script{}
	p.descriptors(s)
	p.send(s, wordHere)
	p.await(s, wordUsers)
	done := make(chan int, 1)
	go func() {
		pid, err := clone(unix.CLONE_NEWUSER, noGroup, s, its.Fd())
		if err != nil {
			t.Error(err)
		}
		done <- pid
	}()
	if _, err := c.meet(); err != nil {
		t.Error(err)
	}
	c.close()
	reap(<-done)
	_ = its.Close()
}

func TestUsersAreMapped(t *testing.T) {
	need.Sandboxes(t)
	before, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	users := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 1_000_000_000, Size: 1 << 16}}
	namespace, err := Users(users, users)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	its, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(namespace.Fd())))
	if err != nil || its == before || !strings.HasPrefix(its, "user:") {
		t.Errorf("it is %s, and this process's %s: %v", its, before, err)
	}
}

// A script refuses unknown parts of a spec before anything is made.
func TestUnknownPartsOfASpecAreRefused(t *testing.T) {
	for name, change := range map[string]func(*specs.Process){
		"a limit":      func(p *specs.Process) { p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_UNKNOWN"}} },
		"a capability": func(p *specs.Process) { p.Capabilities.Bounding = []string{"CAP_SYS_ADMIN"} },
		"other sets":   func(p *specs.Process) { p.Capabilities.Inheritable = []string{"CAP_CHOWN"} },
	} {
		process := &specs.Process{Args: []string{"/agent"}, Cwd: "/", Capabilities: &specs.LinuxCapabilities{}}
		p := &plan{spec: &specs.Spec{Process: process, Linux: &specs.Linux{}}, null: os.Stdin, channel: lowestChannel}
		if err := p.write(&script{}); err != nil {
			t.Errorf("%s: the plain one: %v", name, err)
		}
		change(process)
		if err := p.write(&script{}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
