package maker

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// imageAt is the address at which init maps an image; init.c has the same.
const imageAt = 0x600000000000

// An image is memory for another process, with the addresses that it has there.
type image struct{ memory []byte }

// add adds a copy of b, and returns its address.
func (m *image) add(b []byte) uintptr {
	const word = 8
	m.memory = append(m.memory, make([]byte, (word-len(m.memory)%word)%word)...)
	at := len(m.memory)
	m.memory = append(m.memory, b...)
	return imageAt + uintptr(at)
}

// A Command is what init runs in a cell.
type Command struct {
	Files []File // written before the command starts, by its user

	User, Group uint32
	Groups      []uint32 // further ones
	Dir         string
	Candidates  []string // files to execute: the first one that exists and may be executed
	Args        []string
	Env         []string
	Limits      map[int]unix.Rlimit // by resource
	Filter      []unix.SockFilter   // of the command's system calls
}

// A File is a file or directory to write. Its path is relative to the cell's workspace, and clean. Missing
// directories above it are made.
type File struct {
	Path      string
	Directory bool
	Mode      uint32 // 0 means 0644 for a file, 0755 for a directory
	Content   []byte
}

// workspaceFD is the descriptor of the workspace while files are written: the lowest one that init leaves free.
const (
	workspaceFD = 4
	fileFD      = 6 // 5 is the maker's pipe
)

// prepare writes the script that comes before the command's start.
func (c *Command) prepare(s *script) {
	s.add("hide itself", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	s.add("name itself", unix.SYS_PRCTL, unix.PR_SET_NAME, s.text("init"))
	if len(c.Files) == 0 {
		return
	}
	// The files belong to the user. A program of the user doesn't run yet, so nothing changes a path meanwhile.
	s.add("become the owner of files", unix.SYS_SETFSGID, uintptr(c.Group))
	s.add("become the owner of files", unix.SYS_SETFSUID, uintptr(c.User))
	s.add("open the workspace", unix.SYS_OPENAT, atCWD, s.text(c.Dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC).want = workspaceFD
	made := map[string]bool{".": true}
	for _, f := range c.Files {
		c.write(s, f, made)
	}
	s.add("close the workspace", unix.SYS_CLOSE, workspaceFD)
	s.add("become root again", unix.SYS_SETFSUID, 0)
	s.add("become root again", unix.SYS_SETFSGID, 0)
}

// write adds the calls that write a file. made has the directories that exist.
func (c *Command) write(s *script, f File, made map[string]bool) {
	dir := path.Dir(f.Path)
	if f.Directory {
		dir = f.Path
	}
	for i := range dir {
		if dir[i] == '/' {
			c.makeDir(s, dir[:i], 0o755, made)
		}
	}
	if f.Directory {
		c.makeDir(s, dir, orDefault(f.Mode, 0o755), made)
		return
	}
	c.makeDir(s, dir, 0o755, made)
	name := fileStep + f.Path
	how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC | unix.O_CLOEXEC, Mode: uint64(orDefault(f.Mode, 0o644)), Resolve: resolveBelow}
	s.add(name, unix.SYS_OPENAT2, workspaceFD, s.text(f.Path), point(s, &how), unsafe.Sizeof(how)).want = fileFD
	if len(f.Content) > 0 {
		s.add(name, unix.SYS_WRITE, fileFD, s.bytes(f.Content), uintptr(len(f.Content))).want = int64(len(f.Content))
	}
	s.add(name, unix.SYS_FCHMOD, fileFD, uintptr(orDefault(f.Mode, 0o644))) // the umask doesn't apply
	s.add(name, unix.SYS_CLOSE, fileFD)
}

// resolveBelow lets no path lead out of the workspace, whatever it contains.
const resolveBelow = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// makeDir adds the calls that make a directory, unless an earlier one did.
func (c *Command) makeDir(s *script, dir string, mode uint32, made map[string]bool) {
	if made[dir] {
		return
	}
	made[dir] = true
	// The directories above it were made by this script, so no link is among them.
	s.add(fileStep+dir, unix.SYS_MKDIRAT, workspaceFD, s.text(dir), uintptr(mode)).unless(unix.EEXIST)
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolveBelow}
	s.add(fileStep+dir, unix.SYS_OPENAT2, workspaceFD, s.text(dir), point(s, &how), unsafe.Sizeof(how)).want = fileFD
	s.add(fileStep+dir, unix.SYS_FCHMOD, fileFD, uintptr(mode))
	s.add(fileStep+dir, unix.SYS_CLOSE, fileFD)
}

func orDefault(mode, usual uint32) uint32 {
	if mode == 0 {
		return usual
	}
	return mode
}

// fileStep begins the names of calls that write a file.
const fileStep = "write "

// become writes the script that makes a new process the command. The user comes last, because then other processes
// of the user could stop this one; there are none yet.
func (c *Command) become(s *script) {
	s.add("start a session", unix.SYS_SETSID)
	for resource, limit := range c.Limits {
		s.add("limit its resources", unix.SYS_PRLIMIT64, 0, uintptr(resource), point(s, &limit), 0)
	}
	for number := range uint(lastCapability + 1) {
		s.add("drop capabilities", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0).unless(unix.EINVAL)
	}
	s.add("set its groups", unix.SYS_SETGROUPS, uintptr(len(c.Groups)), s.bytes(bytesOf(c.Groups)))
	s.add("become its user", unix.SYS_SETRESGID, uintptr(c.Group), uintptr(c.Group), uintptr(c.Group))
	s.add("become its user", unix.SYS_SETRESUID, uintptr(c.User), uintptr(c.User), uintptr(c.User))
	s.add("refuse new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	s.add("enter its directory", unix.SYS_CHDIR, s.text(c.Dir))
	none := uint64(0)
	s.add("unblock signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, point(s, &none), 0, unsafe.Sizeof(none))
	// struct sock_fprog
	filter := struct {
		count uint16
		_     [6]byte
		calls uintptr
	}{uint16(len(c.Filter)), [6]byte{}, s.bytes(bytesOf(c.Filter))}
	if filter.count > 0 {
		s.add("filter its system calls", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, point(s, &filter))
	}
	args, env := s.texts(c.Args), s.texts(c.Env)
	for i, file := range c.Candidates {
		step := s.add(executeStep+file, unix.SYS_EXECVE, s.text(file), args, env)
		if i < len(c.Candidates)-1 {
			step.unless(unix.ENOENT, unix.EACCES)
		}
	}
}

const executeStep = "execute "

// A Plan is a command as init reads it, in a sealed file without a name. Close it after init was started.
type Plan struct {
	File  *os.File
	names [2][]string // of the steps of both scripts
}

// NewPlan returns the plan of a command. It returns an error if a file isn't below the workspace.
func NewPlan(c Command) (*Plan, error) {
	for _, f := range c.Files {
		if !filepath.IsLocal(f.Path) || path.Clean(f.Path) != f.Path {
			return nil, fmt.Errorf("the path %q isn't clean, or not below the workspace", f.Path)
		}
	}
	m := &image{memory: make([]byte, 4*unsafe.Sizeof(uint64(0)))} // struct plan of init.c
	p := &Plan{}
	for i, write := range []func(*script){c.prepare, c.become} {
		s := &script{image: m}
		write(s)
		at := m.add(bytesOf(s.calls))
		binary.NativeEndian.PutUint64(m.memory[16*i:], uint64(at))
		binary.NativeEndian.PutUint64(m.memory[16*i+8:], uint64(len(s.calls)))
		p.names[i] = s.names
	}
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate("plan", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make a plan: %w", err)
	}
	p.File = os.NewFile(uintptr(fd), "plan")
	if _, err = p.File.Write(m.memory); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = p.File.Close()
		return nil, fmt.Errorf("write a plan: %w", err)
	}
	return p, nil
}

// A StepError is why a plan failed.
type StepError struct {
	Step  string
	Errno syscall.Errno
}

func (e *StepError) Error() string { return e.Step + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *StepError) Unwrap() error { return e.Errno }

// File returns the path of the file that couldn't be written, "" if it was another step.
func (e *StepError) File() string {
	file, found := strings.CutPrefix(e.Step, fileStep)
	if !found {
		return ""
	}
	return file
}

// Failure returns the step that failed, nil if the report is no failure.
func (p *Plan) Failure(r agent.CellReport) *StepError {
	var names []string
	switch r.Kind {
	case agent.CellUnprepared:
		names = p.names[0]
	case agent.CellUnstarted:
		names = p.names[1]
	default:
		return nil
	}
	e := &StepError{Step: "start a process", Errno: syscall.Errno(r.Errno)}
	if int(r.Step) < len(names) {
		e.Step = names[r.Step]
	}
	return e
}

//go:embed all:bin
var programs embed.FS

// OpenInit returns init's program, open for reading. Close it.
func OpenInit() (*os.File, error) {
	text, err := programs.ReadFile("bin/init")
	if err != nil {
		return nil, errors.New("this rockpool-sandbox was built without init: run make build")
	}
	fd, err := unix.MemfdCreate("init", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make init's file: %w", err)
	}
	written := os.NewFile(uintptr(fd), "init")
	defer written.Close()
	if _, err := written.Write(text); err != nil {
		return nil, fmt.Errorf("write init: %w", err)
	}
	return os.Open("/proc/self/fd/" + strconv.Itoa(fd)) // a file that is open for writing can't be executed
}
