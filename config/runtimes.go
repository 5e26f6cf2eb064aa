package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/runtime"
)

// Disk are the limits for runners' use of this machine's disks.
type Disk struct {
	Read int `env:"ROCKPOOL_DISK_READ" default:"128MiB" type:"size" unit:"MiB" placeholder:"SIZE" help:"How much a runner may read from each disk in a second, if the kernel can limit that. With --sandbox-helper this is a flag of rockpool helper. Allowed: 1MiB to 1TiB; 0: no limit. (${default}; $$${env})"`
}

// Check returns an [Error] for a setting out of range.
func (c Disk) Check() error {
	return zeroOr("disk-read", c.Read, 1, 1<<20, " MiB a second, or 0 for no limit")
}

// Runtimes are the settings for other programs that make sandboxes on this machine.
type Runtimes struct {
	GVisor string   `name:"gvisor-runtime" env:"ROCKPOOL_GVISOR_RUNTIME" placeholder:"PATH" complete:"file" help:"gVisor's program runsc, for environments with the isolation GVISOR. Flags for it follow after spaces, for example \"/usr/local/bin/runsc --platform=kvm\". With --sandbox-helper this is a flag of rockpool helper. Empty: this isolation is unavailable. ($$${env})"`
	OCI    []string `name:"oci-runtimes" env:"ROCKPOOL_OCI_RUNTIMES" placeholder:"NAME=PATH,…" help:"Programs that environments can name as their runtime, each with flags after spaces, for example \"runc=/usr/bin/runc\". They must have runc's command line. With --sandbox-helper this is a flag of rockpool helper. ($$${env})"`
}

// Parse returns the parsed settings, or an [Error].
func (c Runtimes) Parse() (oci.Runtimes, error) {
	all := oci.Runtimes{}
	if c.GVisor != "" {
		gvisor, err := oci.Parse(c.GVisor)
		if err != nil {
			return nil, &Error{"gvisor-runtime", c.GVisor, err.Error()}
		}
		all[oci.GVisor] = gvisor
	}
	for _, text := range c.OCI {
		name, setting, _ := strings.Cut(text, "=")
		program, err := oci.Parse(setting)
		switch {
		case !runtime.ValidRuntime(name) || name == oci.GVisor:
			return nil, &Error{"oci-runtimes", text, fmt.Sprintf("names of 1 to 32 lower-case letters, digits and '-', except %q, each followed by = and a path, for example runc=/usr/bin/runc", oci.GVisor)}
		case err != nil:
			return nil, &Error{"oci-runtimes", text, "a name, =, " + err.Error()}
		}
		if _, twice := all[name]; twice {
			return nil, &Error{"oci-runtimes", strings.Join(slices.Sorted(maps.Keys(all)), ","), "names that stand once: " + name + " stands twice"}
		}
		all[name] = program
	}
	return all, nil
}
