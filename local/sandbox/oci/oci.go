// Package oci makes sandboxes with installed runtimes: gVisor's runsc, and runtimes with runc's
// command line. A request can only name a configured runtime, never a path.
package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// GVisor is the name of the runtime whose sandboxes have their own kernel.
const GVisor = "gvisor"

// A Runtime is an installed OCI runtime.
type Runtime struct {
	Path  string   `json:"path"`
	Flags []string `json:"flags,omitempty"` // flags before the command

	// NoTime: it doesn't support time namespaces, so programs can see how long the machine has been
	// running. Probe determines it.
	NoTime bool `json:"noTime,omitempty"`
}

// Runtimes are the configured runtimes by name.
type Runtimes map[string]Runtime

// Parse parses a setting: the path of a program and, separated by spaces, its flags.
func Parse(text string) (Runtime, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 || !filepath.IsAbs(fields[0]) || filepath.Clean(fields[0]) != fields[0] {
		return Runtime{}, errors.New("must be an absolute path, with flags after it")
	}
	for _, flag := range fields[1:] {
		if !strings.HasPrefix(flag, "-") {
			return Runtime{}, fmt.Errorf("must be an absolute path, with flags after it that begin with - and have their value after =; %q doesn't", flag)
		}
	}
	return Runtime{Path: fields[0], Flags: fields[1:]}, nil
}

// probeWithin bounds how long a runtime may take to report its version and features. A server that
// asks a listening helper waits longer (see launch).
const probeWithin = 4 * time.Second

// Probe returns the version that a runtime reports, and whether it lacks time namespaces. The error
// says why the runtime is unavailable, without naming a path.
func (all Runtimes) Probe(ctx context.Context, name string) (version string, noTime bool, err error) {
	r, err := all.Find(name)
	if err != nil {
		return "", false, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	if version, err = r.version(ctx, name); err != nil || name == GVisor {
		return version, false, err // gVisor's clocks start with its kernel
	}
	return version, !r.hasTimeNamespaces(ctx), nil
}

// hasTimeNamespaces reports whether a runtime supports time namespaces, according to runc's command
// "features". A runtime without that command counts as one that doesn't.
func (r Runtime) hasTimeNamespaces(ctx context.Context) bool {
	var features struct{ Linux struct{ Namespaces []string } }
	said, err := r.command(ctx, r.Path, []string{"features"}).Output()
	return err == nil && json.Unmarshal(said, &features) == nil && slices.Contains(features.Linux.Namespaces, "time")
}

// version returns the first line of a runtime's --version, with Rockpool's flags, so that it also
// tests these.
func (r Runtime) version(ctx context.Context, name string) (string, error) {
	cmd := r.command(ctx, r.Path, append(r.flags(name, Box{Dir: "/nonexistent"}), "--version"))
	said, err := cmd.CombinedOutput()
	line, _, _ := bytes.Cut(bytes.TrimSpace(said), []byte("\n"))
	text := shorten(string(line))
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("the runtime %s didn't report its version within %v", name, probeWithin)
	case errors.Is(err, syscall.ENOEXEC):
		return "", fmt.Errorf("the runtime %s isn't a program for this machine's architecture", name)
	case err != nil:
		return "", fmt.Errorf("the runtime %s doesn't accept Rockpool's flags, or is another program: %w: %s", name, err, text)
	case name == GVisor && !strings.HasPrefix(text, "runsc"):
		return "", fmt.Errorf("the runtime %s isn't runsc: its version is %q", name, text)
	}
	return text, nil
}

// Find returns a runtime, with its links resolved. It refuses a program that anybody but root can
// replace.
func (all Runtimes) Find(name string) (Runtime, error) {
	r, ok := all[name]
	if !ok {
		return Runtime{}, fmt.Errorf("no runtime %s is configured", name)
	}
	resolved, err := filepath.EvalSymlinks(r.Path)
	if err == nil {
		r.Path = resolved
	}
	info, err := os.Stat(r.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Runtime{}, fmt.Errorf("the runtime %s isn't installed at the path in the settings", name)
	case err != nil:
		return Runtime{}, fmt.Errorf("the runtime %s: %w", name, err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return Runtime{}, fmt.Errorf("the runtime %s can't be executed: it must be a program", name)
	}
	if RootOnly(r.Path) != nil {
		return Runtime{}, fmt.Errorf("the runtime %s isn't used because users other than root can replace it or a directory above it: make root its owner, with mode 755, in a directory that only root can write to", name)
	}
	return r, nil
}

var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// UsesKVM reports whether gVisor is configured to use the machine's /dev/kvm.
func (r Runtime) UsesKVM() bool { return slices.Contains(r.Flags, "--platform=kvm") }

func (r Runtime) flags(name string, box Box) []string {
	all := append([]string{}, r.Flags...)
	if name == GVisor {
		// Rockpool's flags come last, so that no setting can weaken them. No network but lo; with
		// links, a network stack of its own on the box's links, never the machine's. Sockets of the
		// machine can be made in the one writable directory, but none can be used. The limits are
		// around all of it (see Run); its own kernel limits processes.
		network := "--network=none"
		if box.Linked {
			network = "--network=sandbox"
		}
		all = append(all, network, "--EXPERIMENTAL-xdp=off", "--net-raw=false", "--allow-packet-socket-write=false",
			"--host-uds=create", "--ignore-cgroups", "--in-sandbox-cgroup=v2", "--allow-flag-override=false")
	}
	return append(all, "--root="+box.state())
}

// shorten turns a program's output into one short line of printable text.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(text), "?"))
	return text[:min(len(text), 500)]
}

// RootOnly returns an error unless only root can change a file or directory, put something into the
// directory, or replace it. The path must be absolute. A path with a symbolic link is refused.
func RootOnly(path string) error {
	for at := path; ; at = filepath.Dir(at) {
		var info unix.Stat_t
		if err := unix.Lstat(at, &info); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		// In a sticky directory, others can't replace root's files.
		others := info.Mode&0o022 != 0 && (at == path || info.Mode&unix.S_ISVTX == 0)
		if info.Mode&unix.S_IFMT == unix.S_IFLNK || info.Uid != 0 || others {
			return fmt.Errorf("%s must belong to root, must not be a link, and nobody else may write to it", at)
		}
		if at == "/" {
			return nil
		}
	}
}
