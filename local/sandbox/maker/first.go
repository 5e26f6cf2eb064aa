package maker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// Words from the maker to a first process, one byte each.
const (
	wordUsers = "u" // its user namespace has its users
	wordGo    = "g" // become the agent
)

// Words from a first process.
const (
	wordHere  = "h" // it runs; the kernel adds its process id
	wordReady = "r" // everything is done except executing the agent
)

// lowestChannel is above all descriptors that a first process passes to the agent.
const lowestChannel = 512

// A plan is the input of a first process's script.
type plan struct {
	spec     *specs.Spec
	root     string      // path of the mounted root directory
	stdio    [3]*os.File // descriptors 0 to 2; nil means null
	files    []*os.File  // from descriptor 3 on
	program  *os.File    // the descriptor after files: executed instead of the spec's file; or nil
	null     *os.File
	channel  uintptr    // descriptor of the socket to the maker, at least lowestChannel
	join     []*os.File // version 1: files of the cgroups to join
	settings []Setting
	masked   []maskedPath
	twice    bool // the process makes another one, which continues the script
}

// A Setting is a value for a file below /proc/sys of a sandbox's own namespaces. A kernel may lack
// the file.
type Setting struct {
	Name  string
	Value int
}

// write writes the script of a first process. The order of the steps matters for security.
func (p *plan) write(s *script) error {
	// A process joins a cgroup by writing 0. The cgroups come first, so they limit everything
	// below.
	one := s.text("0")
	for _, f := range p.join {
		s.add("join "+f.Name(), unix.SYS_WRITE, f.Fd(), one, 1).want = 1
	}
	p.descriptors(s)
	p.spread(s)
	p.clocks(s)
	// The maker maps the users now. Before that, the process can't become the sandbox's root.
	p.send(s, wordHere)
	p.await(s, wordUsers)
	s.add("set its groups", unix.SYS_SETGROUPS, 0, 0)
	s.add("become root", unix.SYS_SETRESGID, 0, 0, 0)
	s.add("become root", unix.SYS_SETRESUID, 0, 0, 0)
	// The cgroup that the process is in becomes the namespace's root (cgroup_namespaces(7)).
	if p.has(specs.CgroupNamespace) {
		s.add("make a cgroup namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	}
	if err := p.mounts(s); err != nil {
		return err
	}
	p.set(s)
	p.guard(s)
	if p.spec.Hostname != "" {
		s.add("set the host name", unix.SYS_SETHOSTNAME, s.text(p.spec.Hostname), uintptr(len(p.spec.Hostname)))
	}
	if p.has(specs.NetworkNamespace) {
		p.raiseLoopback(s)
	}
	if err := p.limits(s); err != nil {
		return err
	}
	s.add("start a session", unix.SYS_SETSID)
	s.add("start a session keyring", unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0).unless(unix.ENOSYS)
	s.add("set its umask", unix.SYS_UMASK, 0o022)
	// The process waits here while the maker checks it.
	p.send(s, wordReady)
	p.await(s, wordGo)
	if err := p.drop(s); err != nil {
		return err
	}
	none := uint64(0)
	s.add("unblock signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, point(s, &none), 0, unsafe.Sizeof(none))
	process := p.spec.Process
	args, env := s.texts(process.Args), s.texts(process.Env)
	if p.program != nil {
		s.add("execute "+process.Args[0], unix.SYS_EXECVEAT, uintptr(3+len(p.files)), s.text(""), args, env, unix.AT_EMPTY_PATH)
		return nil
	}
	s.add("execute "+process.Args[0], unix.SYS_EXECVE, s.text(process.Args[0]), args, env)
	return nil
}

func (p *plan) has(kind specs.LinuxNamespaceType) bool {
	return slices.ContainsFunc(p.spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
}

func (p *plan) send(s *script, word string) {
	s.add("report "+word, unix.SYS_WRITE, p.channel, s.text(word), 1).want = 1
}

// await adds a wait for a word of the maker. The script fails there if the maker ends.
func (p *plan) await(s *script, word string) {
	got := make([]byte, 1)
	s.add("wait for the maker's word "+word, unix.SYS_READ, p.channel, s.bytes(got), 1).want = 1
}

// descriptors moves the agent's descriptors to their places, and closes all others except the
// channel, which is closed when the agent is executed.
func (p *plan) descriptors(s *script) {
	all := append([]*os.File{}, p.files...)
	if p.null != nil {
		all = append([]*os.File{cmp.Or(p.stdio[0], p.null), cmp.Or(p.stdio[1], p.null), cmp.Or(p.stdio[2], p.null)}, p.files...)
	}
	if p.program != nil {
		all = append(all, p.program)
	}
	above := max(uintptr(len(all)), p.channel+1)
	for _, f := range all {
		above = max(above, f.Fd()+1)
	}
	for i, f := range all { // first above all places
		s.add("move descriptors", unix.SYS_DUP3, f.Fd(), above+uintptr(i), unix.O_CLOEXEC)
	}
	for i, f := range all {
		flags := uintptr(0)
		if f == p.program {
			flags = unix.O_CLOEXEC
		}
		s.add("move descriptors", unix.SYS_DUP3, above+uintptr(i), uintptr(i), flags)
	}
	s.add("close descriptors", unix.SYS_CLOSE_RANGE, uintptr(len(all)), p.channel-1, 0)
	s.add("close descriptors", unix.SYS_CLOSE_RANGE, p.channel+1, math.MaxInt32, 0)
}

// clocks gives the process its own clocks. They take effect when it executes a program; before
// Linux 6.3 they take effect only for its children, so a child continues in its place.
func (p *plan) clocks(s *script) {
	text := offsets(p.spec)
	if len(text) == 0 {
		return
	}
	s.add("make a time namespace", unix.SYS_UNSHARE, unix.CLONE_NEWTIME)
	s.add("open the clocks", unix.SYS_OPENAT, atCWD, s.text("/proc/self/timens_offsets"), unix.O_WRONLY|unix.O_CLOEXEC)
	s.add("set the clocks", unix.SYS_WRITE, p.next(), s.bytes(text), uintptr(len(text)))
	s.add("close the clocks", unix.SYS_CLOSE, p.next())
	if p.twice {
		args := &cloneArgs{flags: unix.CLONE_PARENT | unix.CLONE_NEWPID}
		s.add("continue in another process", unix.SYS_CLONE3, point(s, args), unsafe.Sizeof(*args)).want = inChild
	}
}

type cloneArgs struct {
	flags uint64
	_     [10]uint64
}

// spread lets the process run on every CPU, even if the server was bound to some. It also sets what a process
// inherits and can change without privileges. The maker has set the rest for itself.
func (p *plan) spread(s *script) {
	all := &[128]byte{}
	for i := range all {
		all[i] = 0xff
	}
	s.add("run on every CPU", unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(*all), point(s, all)).unless(unix.EINVAL)
	s.add("use any memory node", unix.SYS_SET_MEMPOLICY, unix.MPOL_DEFAULT, 0, 0).unless(unix.ENOSYS, unix.EPERM) // containers refuse it without CAP_SYS_NICE
	s.add("be an ordinary Linux process", unix.SYS_PERSONALITY, 0)
	s.add("set the timer slack", unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, timerSlack)
}

// timerSlack is the kernel's default, in nanoseconds.
const timerSlack = 50_000

// next returns the lowest free descriptor.
func (p *plan) next() uintptr {
	if p.program != nil {
		return uintptr(4 + len(p.files))
	}
	return uintptr(3 + len(p.files))
}

// mounts makes the root directory with its mounts, and leaves all other mounts.
func (p *plan) mounts(s *script) error {
	s.mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	s.mount(p.root, p.root, "", unix.MS_BIND|unix.MS_REC, "")
	here, root := s.text("."), s.text(p.root)
	// The mounts are made with the root as /, so that links of an image can't lead outside. The
	// stage's files are left afterwards, because the kernel allows mounting /proc only while
	// another /proc is visible.
	s.add("open the stage", unix.SYS_OPENAT, atCWD, s.text("/"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	views := map[string]uintptr{} // descriptors of the stage's files, by destination
	for _, m := range p.spec.Mounts {
		if from, ok := strings.CutPrefix(m.Source, spec.Views); ok {
			views[m.Destination] = p.next() + 1 + uintptr(len(views))
			s.add("open its "+m.Destination, unix.SYS_OPENAT, atCWD, s.text(viewDir+from), unix.O_PATH|unix.O_CLOEXEC).want = int64(views[m.Destination])
		}
	}
	s.add("enter the root", unix.SYS_CHDIR, root)
	s.add("enter the root", unix.SYS_CHROOT, here)
	for i, m := range p.spec.Mounts {
		if fd, ok := views[m.Destination]; ok {
			s.mount("/proc/self/fd/"+strconv.Itoa(int(fd)), m.Destination, "", unix.MS_BIND, "")
			s.add("close its "+m.Destination, unix.SYS_CLOSE, fd)
			continue
		}
		o := parseOptions(m.Options)
		if o.flags&unix.MS_BIND != 0 || m.Destination == deviceDir || covered(m, p.spec.Mounts[i+1:]) {
			continue // the stage has this mount
		}
		s.mount(m.Source, m.Destination, m.Type, o.flags, o.data)
	}
	s.add("enter the stage", unix.SYS_FCHDIR, p.next())
	s.add("enter the stage", unix.SYS_CHROOT, here)
	s.add("close the stage", unix.SYS_CLOSE, p.next())
	s.add("enter the root", unix.SYS_CHDIR, root)
	s.add("enter the root", unix.SYS_PIVOT_ROOT, here, here)
	s.add("leave the stage", unix.SYS_UMOUNT2, here, unix.MNT_DETACH)
	s.add("enter the root", unix.SYS_CHDIR, s.text(p.spec.Process.Cwd))
	s.add("open its own /dev/null", unix.SYS_OPENAT, atCWD, s.text(os.DevNull), unix.O_RDWR|unix.O_CLOEXEC)
	for i, f := range p.stdio { // the previous one was opened by the maker
		if f == nil {
			s.add("replace /dev/null", unix.SYS_DUP3, p.next(), uintptr(i), 0)
		}
	}
	s.add("close /dev/null", unix.SYS_CLOSE, p.next())
	return nil
}

func covered(m specs.Mount, later []specs.Mount) bool {
	return slices.ContainsFunc(later, func(l specs.Mount) bool { return l.Destination == m.Destination })
}

// set writes settings of the namespaces, before /proc/sys is made read-only.
func (p *plan) set(s *script) {
	for _, setting := range p.settings {
		text := strconv.Itoa(setting.Value)
		s.add("open the setting "+setting.Name, unix.SYS_OPENAT, atCWD, s.text("/proc/sys/"+setting.Name), unix.O_WRONLY|unix.O_CLOEXEC).unless(unix.ENOENT)
		s.add("write the setting "+setting.Name, unix.SYS_WRITE, p.next(), s.text(text), uintptr(len(text))).unless(unix.EBADF)
		s.add("close the setting "+setting.Name, unix.SYS_CLOSE, p.next()).unless(unix.EBADF)
	}
}

const atCWD = ^uintptr(99) // AT_FDCWD, which is -100

// guard masks paths, and makes others read-only.
func (p *plan) guard(s *script) {
	for _, m := range p.masked {
		if m.directory {
			s.mount("tmpfs", m.path, "tmpfs", unix.MS_RDONLY, "nr_blocks=1,nr_inodes=1")
			continue
		}
		s.mount("/dev/null", m.path, "", unix.MS_BIND, "")
	}
	var flags uintptr
	for _, m := range p.spec.Mounts {
		if m.Destination == "/proc" {
			flags = parseOptions(m.Options).flags
		}
	}
	for _, path := range p.spec.Linux.ReadonlyPaths {
		s.mount(path, path, "", unix.MS_BIND|unix.MS_REC, "").unless(unix.ENOENT)
		s.mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, "").unless(unix.ENOENT)
	}
}

// A maskedPath can't be read inside.
type maskedPath struct {
	path      string
	directory bool
}

// inspectMasked returns the paths that exist on this kernel now.
func inspectMasked(paths []string) (all []maskedPath, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("inspect a path to mask: %w", err)
		}
		all = append(all, maskedPath{path, info.IsDir()})
	}
	return all, nil
}

// An ifreq is the argument of SIOCSIFFLAGS (netdevice(7)).
type ifreq struct {
	name  [unix.IFNAMSIZ]byte
	flags uint16
	_     [22]byte
}

// raiseLoopback brings up lo in the network namespace.
func (p *plan) raiseLoopback(s *script) {
	request := &ifreq{flags: unix.IFF_UP | unix.IFF_RUNNING}
	copy(request.name[:], "lo")
	s.add("raise the loopback interface", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	s.add("raise the loopback interface", unix.SYS_IOCTL, p.next(), unix.SIOCSIFFLAGS, point(s, request))
	s.add("raise the loopback interface", unix.SYS_CLOSE, p.next())
}

func (p *plan) limits(s *script) error {
	for _, limit := range p.spec.Process.Rlimits {
		number, known := spec.RlimitNumbers[limit.Type]
		if !known {
			return fmt.Errorf("unknown rlimit %s", limit.Type)
		}
		value := &unix.Rlimit{Cur: limit.Soft, Max: limit.Hard}
		s.add("limit "+limit.Type, unix.SYS_PRLIMIT64, 0, uintptr(number), point(s, value), 0)
	}
	return nil
}

// capabilityNumbers has the capabilities that an agent can have.
var capabilityNumbers = map[string]uint{
	"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_FOWNER": unix.CAP_FOWNER, "CAP_KILL": unix.CAP_KILL,
	"CAP_SETGID": unix.CAP_SETGID, "CAP_SETUID": unix.CAP_SETUID, "CAP_SETPCAP": unix.CAP_SETPCAP,
}

func capabilityBits(names []string) (bits uint64, err error) {
	for _, name := range names {
		number, known := capabilityNumbers[name]
		if !known {
			return 0, fmt.Errorf("unknown capability %s", name)
		}
		bits |= 1 << number
	}
	return bits, nil
}

// lastCapability is above all capabilities that kernels know; the kernel refuses unknown ones.
const lastCapability = 63

func (p *plan) drop(s *script) error {
	of := p.spec.Process.Capabilities
	bounding, err := capabilityBits(of.Bounding)
	if err != nil {
		return err
	}
	permitted, err := capabilityBits(of.Permitted)
	if err != nil {
		return err
	}
	if !slices.Equal(of.Permitted, of.Effective) || len(of.Inheritable)+len(of.Ambient) > 0 {
		return fmt.Errorf("unknown sets of capabilities: %s", strings.Join(of.Effective, " "))
	}
	// This needs CAP_SETPCAP, so it comes before capset (prctl(2), PR_CAPBSET_DROP).
	for number := range uint(lastCapability + 1) {
		if bounding&(1<<number) == 0 {
			s.add("drop capabilities", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0).unless(unix.EINVAL)
		}
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{
		{Effective: uint32(permitted), Permitted: uint32(permitted)},
		{Effective: uint32(permitted >> 32), Permitted: uint32(permitted >> 32)},
	}
	s.add("drop capabilities", unix.SYS_CAPSET, point(s, header), point(s, data))
	if p.spec.Process.NoNewPrivileges {
		s.add("refuse new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return nil
}
