// Package tiers finds out which ways to keep runners apart this machine can use now.
package tiers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/runtime"
)

// A Tier is a way to keep runners apart that the settings name, beside
// namespaces made by libcontainer, which is always there.
type Tier struct {
	Isolation runtime.Isolation
	Runtime   string // "" with GVISOR
	Version   string // what its program says
	NoTime    bool   // programs see since when the machine runs
	Err       error  // why it is unavailable; nil: it can be used
}

// Probe tries which of the configured runtimes can be run, each for 5 s at most.
func Probe(ctx context.Context, h *host.Host) []Tier {
	all := make([]Tier, 0, len(h.Runtimes))
	for _, name := range h.Runtimes {
		t := Tier{Isolation: runtime.IsolationNamespaces, Runtime: name}
		if name == oci.GVisor {
			t = Tier{Isolation: runtime.IsolationGVisor}
		}
		all = append(all, t)
	}
	if h.Ordinary() {
		for i := range all {
			all[i].Err = errors.New("only root can have its sandboxes made: run a sandbox helper as root")
		}
		return all
	}
	var probing sync.WaitGroup
	for i := range all {
		t := &all[i]
		probing.Go(func() { t.Version, t.NoTime, t.Err = h.Launcher.Probe(ctx, t.Name()) })
	}
	probing.Wait()
	return all
}

// Name returns what the machine's settings call it.
func (t Tier) Name() string {
	if t.Isolation == runtime.IsolationGVisor {
		return oci.GVisor
	}
	return t.Runtime
}

// String describes a tier in a line.
func (t Tier) String() string {
	name := string(t.Isolation)
	if t.Runtime != "" {
		name += " with the runtime " + t.Runtime
	}
	if t.Err != nil {
		return fmt.Sprintf("%s is unavailable: %v", name, t.Err)
	}
	if t.NoTime {
		return fmt.Sprintf("%s can be had (%s), but without time namespaces: programs see since when this machine runs", name, t.Version)
	}
	return fmt.Sprintf("%s can be had (%s)", name, t.Version)
}

// Available returns INVALID_INPUT for an environment whose isolation is unavailable
// on this machine now: another in its place would be less than was asked for.
func Available(ctx context.Context, h *host.Host, env runtime.Environment) error {
	name := sandbox.Runtime(env)
	if name == "" {
		return nil
	}
	configured := slices.Contains(h.Runtimes, name)
	gvisor := env.Isolation == runtime.IsolationGVisor
	whose := "this server"
	if h.Direct == nil {
		whose = "this server's sandbox helper"
	}
	switch {
	case !configured && gvisor:
		return runtime.Invalid("isolation", "must be %s: %s has no %s, which needs its setting gvisor-runtime (the path of gVisor's program runsc)", runtime.IsolationNamespaces, whose, env.Isolation)
	case !configured:
		return runtime.Invalid("runtime", "must be empty, or one of %s's setting oci-runtimes (%s)", whose, strings.Join(named(h), ", "))
	}
	if _, _, err := h.Launcher.Probe(ctx, name); err != nil && gvisor {
		return runtime.Invalid("isolation", "can't be %s now: %v", env.Isolation, err)
	} else if err != nil {
		return runtime.Invalid("runtime", "can't be %s now: %v", name, err)
	}
	return nil
}

// named returns the names of runtimes that environments may name.
func named(h *host.Host) []string {
	return slices.DeleteFunc(slices.Clone(h.Runtimes), func(name string) bool { return name == oci.GVisor })
}
