package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
)

// BuildRoot makes, at dir, the read-only root directory that all sandboxes share: every mount
// point, the machine's links such as /bin, a small /etc of its own, and the agent. It replaces what
// was at dir; no sandbox may be using that.
func BuildRoot(dir string, m Machine, agent []byte) error {
	if err := RemoveRoot(dir); err != nil {
		return err
	}
	b := builder{dir: dir}
	for _, at := range []string{"/", "/proc", "/sys", "/dev", "/tmp", "/run", "/etc", "/var", "/var/lib", caches, "/root", "/home", "/opt", "/srv", "/mnt", Workspace, filepath.Dir(AgentPath)} {
		b.directory(at)
	}
	for _, at := range m.Binds {
		b.target(at)
	}
	for _, at := range append(hostLinks, matches(hostPaths)...) {
		b.link(at)
	}
	for _, at := range hostFiles {
		b.copy(at)
	}
	for at, text := range ownFiles {
		b.file(at, []byte(text), 0o644)
	}
	b.symlink("/tmp", "/var/tmp")
	b.symlink("/run", "/var/run")
	b.symlink("/proc/mounts", "/etc/mtab")
	b.file(AgentPath, agent, 0o755)
	return b.err
}

// WriteResolver writes the /etc/resolv.conf of those sandboxes of root directory dir that have a
// network.
func WriteResolver(dir string, server netip.Addr) error {
	b := builder{dir: dir}
	b.file(ResolverPath, []byte("nameserver "+server.String()+"\n"), 0o644)
	return b.err
}

// hostLinks are kept as links if the machine has them as links into /usr.
var hostLinks = []string{"/etc/localtime", "/etc/os-release"}

// hostFiles are small files of the machine that programs look for. They hold no secrets and rarely
// change, so they are copied.
var hostFiles = []string{
	"/etc/ld.so.conf", "/etc/localtime", "/etc/os-release", "/etc/debian_version", "/etc/timezone", "/etc/mime.types",
	"/etc/protocols", "/etc/services", "/etc/ssl/openssl.cnf", "/etc/inputrc", "/etc/locale.alias", "/etc/octave.conf", "/etc/pylintrc",
}

// ownFiles are the files of a sandbox's /etc that don't come from the machine.
var ownFiles = map[string]string{
	"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n" +
		"runner:x:1000:1000:runner:" + home + ":/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"/etc/group":         "root:x:0:\ntty:x:5:\nrunner:x:1000:\nnogroup:x:65534:\n",
	"/etc/hostname":      hostname + "\n",
	"/etc/hosts":         "127.0.0.1 localhost " + hostname + "\n::1 localhost\n",
	"/etc/resolv.conf":   "",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
	"/etc/profile":       "PATH=" + searchPath + ":/usr/local/go/bin\nexport PATH\n",
	"/etc/shells":        "/bin/sh\n/bin/bash\n",
}

// RemoveRoot deletes a root directory that no sandbox uses. It refuses if anything is mounted
// below: with the machine's /usr mounted there, deleting would destroy it.
func RemoveRoot(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	switch {
	case err != nil:
		return err
	case len(mounts) > 0:
		return fmt.Errorf("%s is mounted: unmount it first", mounts[0].Mountpoint)
	}
	return os.RemoveAll(dir)
}

// SweepRoots deletes the root directories in dir whose names aren't in used.
func SweepRoots(dir string, used []string) (failed error) {
	roots, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, root := range roots {
		if !slices.Contains(used, filepath.Base(root)) {
			failed = errors.Join(failed, RemoveRoot(root))
		}
	}
	return failed
}

func matches(patterns []string) []string {
	var all []string
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern)
		all = append(all, found...)
	}
	return all
}

// A builder makes files below dir and keeps the first error.
type builder struct {
	dir string
	err error
}

// keep records an error, unless there is one already.
func (b *builder) keep(err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("build root: %w", err)
	}
}

// directory makes a directory and those above it, which every user can enter.
func (b *builder) directory(at string) {
	path := filepath.Join(b.dir, at)
	b.keep(os.MkdirAll(path, 0o755))
	for ; len(path) >= len(b.dir); path = filepath.Dir(path) {
		b.keep(os.Chmod(path, 0o755)) // regardless of the umask
	}
}

func (b *builder) target(at string) {
	info, err := os.Stat(at)
	switch {
	case err != nil:
		b.keep(err)
	case info.IsDir():
		b.directory(at)
	default:
		b.file(at, nil, 0o644)
	}
}

func (b *builder) link(at string) {
	if to, err := os.Readlink(at); err == nil {
		b.symlink(to, at)
	}
}

func (b *builder) symlink(to, at string) {
	b.directory(filepath.Dir(at))
	b.keep(os.Symlink(to, filepath.Join(b.dir, at)))
}

// copy copies the machine's file at, if it exists and is world-readable.
func (b *builder) copy(at string) {
	info, err := os.Lstat(at)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o004 == 0 {
		return
	}
	data, err := os.ReadFile(at)
	b.keep(err)
	b.file(at, data, 0o644)
}

// file writes a file with these permissions, and the directories above it.
func (b *builder) file(at string, data []byte, mode os.FileMode) {
	b.directory(filepath.Dir(at))
	path := filepath.Join(b.dir, at)
	b.keep(os.WriteFile(path, data, mode))
	b.keep(os.Chmod(path, mode)) // regardless of the umask
}
