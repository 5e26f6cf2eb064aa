// Package oci makes sandboxes with the programs of others: gVisor's runsc, and
// runtimes that know runc's command line. Which program a name stands for is the
// configuration of who runs it; nobody can ask for a path.
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

	"github.com/rockpool/rockpool/local/sandbox/roots"
)

// GVisor is the name of the runtime whose sandboxes have a kernel of their own.
const GVisor = "gvisor"

// A Runtime is an installed program.
type Runtime struct {
	Path  string   `json:"path"`
	Flags []string `json:"flags,omitempty"` // before its command

	// NoTime: it knows no time namespaces, so that who is inside sees since when the
	// machine runs. Probe finds out.
	NoTime bool `json:"noTime,omitempty"`
}

// Runtimes are all that are configured, by name.
type Runtimes map[string]Runtime

// Parse reads a setting: the path of a program and, after spaces, its flags.
func Parse(text string) (Runtime, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 || !filepath.IsAbs(fields[0]) || filepath.Clean(fields[0]) != fields[0] {
		return Runtime{}, errors.New("an absolute path, and flags after it")
	}
	for _, flag := range fields[1:] {
		if !strings.HasPrefix(flag, "-") {
			return Runtime{}, fmt.Errorf("an absolute path, and flags after it that begin with - and have their value after =, unlike %q", flag)
		}
	}
	return Runtime{Path: fields[0], Flags: fields[1:]}, nil
}

// probeWithin is how long a program may take to tell of itself. A server waits
// longer for a helper that asks.
const probeWithin = 4 * time.Second

// Probe returns what the runtime of a name says of its version, and whether it
// knows time namespaces. Its error is why there is no such runtime here, in words
// that name no path.
func (all Runtimes) Probe(ctx context.Context, name string) (version string, noTime bool, err error) {
	r, err := all.Find(name)
	if err != nil {
		return "", false, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	if version, err = r.version(ctx, name); err != nil || name == GVisor {
		return version, false, err // its clocks begin with its kernel
	}
	return version, !r.knowsTime(ctx), nil
}

// knowsTime asks what runc and its kin tell of themselves; those that don't are
// taken to know less.
func (r Runtime) knowsTime(ctx context.Context) bool {
	var features struct{ Linux struct{ Namespaces []string } }
	said, err := r.command(ctx, r.Path, []string{"features"}).Output()
	return err == nil && json.Unmarshal(said, &features) == nil && slices.Contains(features.Linux.Namespaces, "time")
}

func (r Runtime) version(ctx context.Context, name string) (string, error) {
	cmd := r.command(ctx, r.Path, append(r.flags(name, Box{Dir: "/nonexistent"}), "--version"))
	said, err := cmd.CombinedOutput()
	line, _, _ := bytes.Cut(bytes.TrimSpace(said), []byte("\n"))
	text := shorten(string(line))
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("the runtime %s didn't tell its version in %v", name, probeWithin)
	case errors.Is(err, syscall.ENOEXEC):
		return "", fmt.Errorf("the runtime %s is no program for this machine", name)
	case err != nil:
		return "", fmt.Errorf("the runtime %s doesn't take the flags that it is to be run with, or isn't what it should be: %w: %s", name, err, text)
	case name == GVisor && !strings.HasPrefix(text, "runsc"):
		return "", fmt.Errorf("the runtime %s isn't runsc: it says %q", name, text)
	}
	return text, nil
}

// Find returns the runtime of a name, whose program only root can replace.
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
		return Runtime{}, fmt.Errorf("the runtime %s isn't installed where the settings say", name)
	case err != nil:
		return Runtime{}, fmt.Errorf("the runtime %s: %w", name, err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return Runtime{}, fmt.Errorf("the runtime %s can't be executed: it must be a program", name)
	}
	if roots.Alone(r.Path) != nil {
		return Runtime{}, fmt.Errorf("the runtime %s isn't used, since others than root could replace it, or a directory that it is in: give it to root, with mode 755, and put it where only root can write", name)
	}
	return r, nil
}

// environment is that of every runtime.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// UsesKVM reports whether gVisor is told to use the machine's /dev/kvm.
func (r Runtime) UsesKVM() bool { return slices.Contains(r.Flags, "--platform=kvm") }

// flags are those of every command for a box.
func (r Runtime) flags(name string, box Box) []string {
	all := append([]string{}, r.Flags...)
	if name == GVisor {
		// What is needed comes last, so that no setting can weaken it: no network but
		// lo, or a stack of its own on the links that the box has, never the machine's;
		// sockets on the machine can be made, in the one directory that is writable,
		// but none used; the limits are around all of it (see Run); its own kernel
		// limits processes.
		network := "--network=none"
		if box.Linked {
			network = "--network=sandbox"
		}
		all = append(all, network, "--EXPERIMENTAL-xdp=off", "--net-raw=false", "--allow-packet-socket-write=false",
			"--host-uds=create", "--ignore-cgroups", "--in-sandbox-cgroup=v2", "--allow-flag-override=false")
	}
	return append(all, "--root="+box.state())
}

// shorten makes a line of what a program said.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(text), "?"))
	return text[:min(len(text), 500)]
}
