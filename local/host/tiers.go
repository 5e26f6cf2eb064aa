package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/runtime"
)

// A Tier is an isolation tier of the settings, in addition to namespaces by libcontainer, which is
// always available.
type Tier struct {
	Isolation runtime.Isolation
	Runtime   string // "" with GVISOR
	Version   string // version that its program reports
	NoTime    bool   // without time namespaces: programs see the machine's uptime
	Err       error  // why it is unavailable; nil means it can be used
}

// Tiers tests the configured runtimes concurrently, each for at most 15 s, and returns their tiers.
func (h *Host) Tiers(ctx context.Context) []Tier {
	all := make([]Tier, len(h.Runtimes))
	var probing sync.WaitGroup
	for i, name := range h.Runtimes {
		t := &all[i]
		*t = Tier{Isolation: runtime.IsolationNamespaces, Runtime: name}
		if name == oci.GVisor {
			*t = Tier{Isolation: runtime.IsolationGVisor}
		}
		if h.Rootless() {
			t.Err = errors.New("its sandboxes need root: run a sandbox helper as root")
			continue
		}
		probing.Go(func() { t.Version, t.NoTime, t.Err = h.Launcher.Probe(ctx, name) })
	}
	probing.Wait()
	return all
}

// Name returns the tier's name in the settings.
func (t Tier) Name() string {
	if t.Isolation == runtime.IsolationGVisor {
		return oci.GVisor
	}
	return t.Runtime
}

// String describes a tier in one line.
func (t Tier) String() string {
	name := string(t.Isolation)
	if t.Runtime != "" {
		name += " with the runtime " + t.Runtime
	}
	if t.Err != nil {
		return fmt.Sprintf("%s is unavailable: %v", name, t.Err)
	}
	if t.NoTime {
		return fmt.Sprintf("%s is available (%s), but without time namespaces: programs see how long this machine has been running", name, t.Version)
	}
	return fmt.Sprintf("%s is available (%s)", name, t.Version)
}

// HasTier returns INVALID_INPUT for an environment whose isolation tier is unavailable on this
// machine now. Another tier never replaces it: that could isolate less than requested.
func (h *Host) HasTier(ctx context.Context, env runtime.Environment) error {
	name := sandbox.Runtime(env)
	if name == "" {
		return nil
	}
	configured := slices.Contains(h.Runtimes, name)
	gvisor := env.Isolation == runtime.IsolationGVisor
	where := "this server"
	if h.Direct == nil {
		where = "this server's sandbox helper"
	}
	switch {
	case !configured && gvisor:
		return runtime.Invalid("isolation", "must be %s: %s has no %s; set its gvisor-runtime to the path of gVisor's program runsc", runtime.IsolationNamespaces, where, env.Isolation)
	case !configured:
		return runtime.Invalid("runtime", "must be empty, or a name in the oci-runtimes of %s (%s)", where, strings.Join(h.named(), ", "))
	}
	if _, _, err := h.Launcher.Probe(ctx, name); err != nil && gvisor {
		return runtime.Invalid("isolation", "%s is unavailable now: %v", env.Isolation, err)
	} else if err != nil {
		return runtime.Invalid("runtime", "%s is unavailable now: %v", name, err)
	}
	return nil
}

// named returns the runtimes that environments can name.
func (h *Host) named() []string {
	return slices.DeleteFunc(slices.Clone(h.Runtimes), func(name string) bool { return name == oci.GVisor })
}
