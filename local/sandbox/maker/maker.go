// Package maker makes sandboxes without executing a helper program for each. It is the part of
// rockpool-sandbox that runs as long as its server.
//
// The first process of a sandbox is cloned from the maker directly into all of its namespaces.
// Before it becomes the agent, it makes a fixed list of system calls (a [script]) that the maker
// wrote from the OCI spec. It joins its cgroups, mounts file systems, drops privileges, and waits
// until the maker has read the limits back. Of the maker's code it runs only the loop over that
// list, and it gets none of the maker's other descriptors.
//
// A stage has mounted once what all sandboxes of a server share: the root directory, the
// machine's directories that are shown in it, and /dev. Each sandbox gets a copy of these mounts.
//
// The methods of a [Maker] are safe for concurrent use, for different sandboxes.
package maker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// stages is how many sandboxes are made concurrently: each uses a thread until its agent is
// executed.
const stages = 4

// firstWithin bounds how long a first process may take for its script, on a busy machine.
const firstWithin = 20 * time.Second

const deviceDir = "/dev"

// A Maker makes sandboxes around one root directory, and ends them. Its methods are safe for
// concurrent use, for different sandboxes.
type Maker struct {
	jobs chan job // unbuffered: a stage receives each job; closed only by a failing New
	// entersTime: a process enters its new time namespace when it executes a program.
	entersTime bool

	mu    sync.Mutex     // guards first
	first map[string]int // ids of first processes, by sandbox
}

// New returns a maker of sandboxes around a root directory, or around images. It mounts what the
// spec of a sandbox without an image shares with all others.
func New(root string, s *specs.Spec) (*Maker, error) {
	m := &Maker{jobs: make(chan job), first: map[string]int{}, entersTime: kernelAtLeast(6, 3)}
	var device specs.Mount
	var shared []specs.Mount
	for _, mount := range s.Mounts {
		switch {
		case mount.Destination == deviceDir:
			device = mount
		case sharedBind(mount):
			shared = append(shared, mount)
		}
	}
	for range stages {
		if err := startStage(root, shared, device, m.jobs); err != nil {
			close(m.jobs) // ends the stages that were started
			return nil, fmt.Errorf("mount what sandboxes share: %w", err)
		}
	}
	return m, nil
}

// ErrUnborn means that the kernel killed the first process at its clone into [Sandbox.Group]. Join works
// there, and takes some ms more. Some kernels, for example 6.1.176 and 6.18.44, do that if the maker is in a
// cgroup that was killed by its cgroup.kill before.
var ErrUnborn = errors.New("no process starts in the sandbox's cgroup")

// A Sandbox is a sandbox to make.
type Sandbox struct {
	ID       string
	Spec     *specs.Spec
	Image    *os.File    // its root: a detached mount with mapped owners, nil for the shared root
	Stdio    [3]*os.File // the first process's descriptors 0 to 2; nil means /dev/null
	Files    []*os.File  // those from 3 on
	Program  *os.File    // executed instead of the file that the spec names; nil means that
	Join     []string    // version 1: directories of its cgroups, which the first process joins
	Group    string      // version 2: directory of its cgroup, in which the first process starts
	Settings []Setting
	// Check checks the first process, which waits meanwhile. The agent runs only after it returned
	// nil.
	Check func(pid int) error
}

// Make makes a sandbox whose cgroups exist, and returns when its agent runs. After an error its
// first process is dead.
func (m *Maker) Make(b Sandbox) (pid int, err error) {
	if m.has(b.ID) {
		return 0, fmt.Errorf("sandbox %s exists already", b.ID)
	}
	extra, err := m.openExtra(b)
	defer func() {
		for _, e := range extra {
			e.close()
		}
	}()
	if err != nil {
		return 0, err
	}
	c, its, err := newChannel()
	if err != nil {
		return 0, err
	}
	s, done := &script{}, make(chan cloneResult, 1)
	if err := m.clone(b, extra, its, s, done); err != nil {
		c.close()
		return 0, err
	}
	pid, err = m.lead(b, c)
	unborn := pid == 0 && err != nil
	if err != nil && pid != 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	c.close() // this ends a process that still waits
	made := <-done
	if made.pid != 0 && made.pid != pid { // it ended, or another process continued
		reap(made.pid)
	}
	if unborn && made.err == nil && b.Group != "" {
		err = fmt.Errorf("%w: %w", ErrUnborn, err)
	}
	if err := errors.Join(s.explain(err), made.err); err != nil {
		if pid != 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
			reap(pid)
		}
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.first[b.ID] = pid
	return pid, nil
}

func (m *Maker) has(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, there := m.first[id]
	return there
}

// sharedBind reports whether a mount shows a directory of the machine at the same path.
func sharedBind(m specs.Mount) bool {
	return m.Source == m.Destination && slices.Contains(m.Options, "rbind") && slices.Contains(m.Options, "rro")
}

// openExtra opens the mounts that aren't in a stage.
func (m *Maker) openExtra(b Sandbox) (all []bind, err error) {
	for _, mount := range b.Spec.Mounts {
		if parseOptions(mount.Options).flags&unix.MS_BIND == 0 || b.Image == nil && sharedBind(mount) || strings.HasPrefix(mount.Source, spec.Views) {
			continue
		}
		e, err := openBind(mount)
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// cloneFlags has the namespaces that a first process is cloned into. It enters the others by
// unshare.
var cloneFlags = map[specs.LinuxNamespaceType]uint64{
	specs.UserNamespace: unix.CLONE_NEWUSER, specs.PIDNamespace: unix.CLONE_NEWPID, specs.MountNamespace: unix.CLONE_NEWNS,
	specs.IPCNamespace: unix.CLONE_NEWIPC, specs.UTSNamespace: unix.CLONE_NEWUTS, specs.NetworkNamespace: unix.CLONE_NEWNET,
}

// clone lets a stage clone the first process, with a script that waits for lead. The channel done
// receives the process when it has executed the agent or ended. Its end of the channel to the maker
// is closed then.
func (m *Maker) clone(b Sandbox, extra []bind, its *os.File, s *script, done chan<- cloneResult) (err error) {
	p := &plan{spec: b.Spec, stdio: b.Stdio, files: b.Files, program: b.Program, channel: its.Fd(), settings: b.Settings}
	if p.masked, err = inspectMasked(b.Spec.Linux.MaskedPaths); err != nil {
		return err
	}
	// The stage closes these after the clone. After an error, this function does.
	keep := []*os.File{its}
	release := func() {
		for _, f := range keep {
			_ = f.Close()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if p.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	keep = append(keep, p.null)
	for _, dir := range b.Join {
		f, err := openJoin(dir)
		if err != nil {
			return err
		}
		keep, p.join = append(keep, f), append(p.join, f)
	}
	group := noGroup
	if b.Group != "" {
		dir, err := os.Open(b.Group)
		if err != nil {
			return err
		}
		keep, group = append(keep, dir), int(dir.Fd())
	}
	var flags uint64
	for _, n := range b.Spec.Linux.Namespaces {
		flags |= cloneFlags[n.Type]
	}
	if p.twice = len(offsets(b.Spec)) > 0 && !m.entersTime; p.twice {
		// The second process makes the pid namespace instead, and is process 1 in it.
		flags &^= unix.CLONE_NEWPID
	}
	m.jobs <- job{root: b.Image, extra: extra, free: release, done: done, clone: func(root string) (int, error) {
		p.root = root
		if err := p.write(s); err != nil {
			return 0, err
		}
		return clone(flags, group, s, p.channel)
	}}
	return nil
}

// openJoin opens the file to write to in order to join a cgroup.
func openJoin(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir+"/tasks", os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) { // a version 2 tree in a mixed setup
		return os.OpenFile(dir+"/cgroup.procs", os.O_WRONLY, 0)
	}
	return f, err
}

// offsets returns the contents of timens_offsets for the spec, nil if it has no time namespace.
func offsets(s *specs.Spec) []byte {
	if len(s.Linux.TimeOffsets) == 0 {
		return nil
	}
	var text strings.Builder
	for clock, offset := range s.Linux.TimeOffsets {
		fmt.Fprintf(&text, "%s %d %d\n", clock, offset.Secs, offset.Nanosecs)
	}
	return []byte(text.String())
}

// lead leads a first process through its script, and checks it before the agent runs. It returns
// the process id.
func (m *Maker) lead(b Sandbox, c channel) (pid int, err error) {
	if pid, err = c.meet(); err != nil {
		return pid, err
	}
	if err := mapUsers(pid, b.Spec.Linux.UIDMappings, b.Spec.Linux.GIDMappings); err != nil {
		return pid, err
	}
	if err := c.send(wordUsers); err != nil {
		return pid, err
	}
	if err := c.expect(wordReady); err != nil {
		return pid, err
	}
	// The process waits for wordGo, so no program runs in the sandbox before Check.
	if err := b.Check(pid); err != nil {
		return pid, err
	}
	if err := c.send(wordGo); err != nil {
		return pid, err
	}
	if err := c.expect(wordNothing); err != nil {
		return pid, err
	}
	return pid, checkTimeNamespace(pid, b.Spec)
}

// checkTimeNamespace returns an error unless an agent has its own time namespace. It enters that
// only when it is executed, so this can't be checked earlier.
func checkTimeNamespace(pid int, s *specs.Spec) error {
	if len(offsets(s)) == 0 {
		return nil
	}
	own, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return err
	}
	its, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/time")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil // it ended, which is reported as for any agent
	}
	if err != nil {
		return err
	}
	if its == own {
		return errors.New("the agent has no time namespace of its own")
	}
	return nil
}

func kernelAtLeast(major, minor int) bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var has [2]int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &has[0], &has[1])
	return has[0] > major || has[0] == major && has[1] >= minor
}

// mapUsers maps the ids of a process's user namespace.
func mapUsers(pid int, users, groups []specs.LinuxIDMapping) error {
	for file, mappings := range map[string][]specs.LinuxIDMapping{"uid_map": users, "gid_map": groups} {
		var text strings.Builder
		for _, m := range mappings {
			fmt.Fprintf(&text, "%d %d %d\n", m.ContainerID, m.HostID, m.Size)
		}
		if err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/"+file, []byte(text.String()), 0); err != nil {
			return fmt.Errorf("map its users: %w", err)
		}
	}
	return nil
}

// Users returns a user namespace with these users, for a mount with mapped owners. No process is
// left.
func Users(users, groups []specs.LinuxIDMapping) (*os.File, error) {
	c, its, err := newChannel()
	if err != nil {
		return nil, err
	}
	p := &plan{channel: its.Fd()}
	s := &script{}
	p.descriptors(s)
	p.send(s, wordHere)
	p.await(s, wordUsers) // never sent: the process waits until the channel is closed
	done := make(chan error, 1)
	go func() {
		pid, err := clone(unix.CLONE_NEWUSER, noGroup, s, its.Fd())
		_ = its.Close()
		if err == nil {
			reap(pid)
		}
		done <- err
	}()
	namespace, err := c.users(users, groups)
	c.close() // this ends the process
	if err := errors.Join(err, <-done); err != nil {
		if namespace != nil {
			_ = namespace.Close()
		}
		return nil, err
	}
	return namespace, nil
}

// users maps the ids of the process on the channel, and opens its user namespace.
func (c channel) users(users, groups []specs.LinuxIDMapping) (*os.File, error) {
	pid, err := c.meet()
	if err != nil {
		return nil, err
	}
	if err := mapUsers(pid, users, groups); err != nil {
		return nil, err
	}
	return os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
}

// endWithin bounds how long the processes of a sandbox may take to end.
const endWithin = 5 * time.Second

// End kills the first process of a sandbox that this maker made, and so its whole pid namespace,
// and waits for the end. For other sandboxes it does nothing.
func (m *Maker) End(id string) error {
	m.mu.Lock()
	pid, ours := m.first[id]
	m.mu.Unlock()
	if !ours {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0) // it wasn't reaped, so the id is still its own
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	for end := time.Now().Add(endWithin); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds())+1)
		if n > 0 {
			break
		}
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d didn't end within %s", pid, endWithin)
		}
	}
	m.mu.Lock()
	// A concurrent End may have reaped it.
	_, ours = m.first[id]
	delete(m.first, id)
	m.mu.Unlock()
	if ours {
		reap(pid)
	}
	return nil
}

func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != unix.EINTR {
			return
		}
	}
}
