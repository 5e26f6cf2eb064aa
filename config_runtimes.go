package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/runtime"
)

// DiskConfig are the settings for what runners of this machine may take of its disks.
type DiskConfig struct {
	Read int `env:"ROCKPOOL_DISK_READ" default:"128" placeholder:"MIB" help:"MiB a second that a runner may read from each disk, 1 to 1048576, where the kernel can limit that; 0: any. (${default}; $$${env})"`
}

const mostDiskRead = 1 << 20 // MiB a second

// bytes returns how many a second a runner may read.
func (c DiskConfig) bytes() int64 { return int64(c.Read) << 20 }

func (c DiskConfig) check() error {
	if c.Read < 0 || c.Read > mostDiskRead {
		return &settingError{"disk-read", strconv.Itoa(c.Read), fmt.Sprintf("1 to %d MiB a second, or 0 for any", mostDiskRead)}
	}
	return nil
}

// RuntimesConfig are the settings for other programs that make sandboxes on this
// machine.
type RuntimesConfig struct {
	GVisor string   `name:"gvisor-runtime" env:"ROCKPOOL_GVISOR_RUNTIME" placeholder:"PATH" complete:"file" help:"Program runsc of gVisor, for environments with the isolation GVISOR, and flags for it after spaces, for example \"/usr/local/bin/runsc --platform=kvm\". ($$${env})"`
	OCI    []string `name:"oci-runtimes" env:"ROCKPOOL_OCI_RUNTIMES" placeholder:"NAME=PATH,…" help:"Programs that environments may name as their runtime, each with flags after spaces, for example \"runc=/usr/bin/runc\". They must know runc's command line. ($$${env})"`

	parsed oci.Runtimes
}

// check parses the settings.
func (c *RuntimesConfig) check() error {
	c.parsed = oci.Runtimes{}
	if c.GVisor != "" {
		r, err := oci.Parse(c.GVisor)
		if err != nil {
			return &settingError{"gvisor-runtime", c.GVisor, err.Error()}
		}
		c.parsed[oci.GVisor] = r
	}
	for _, text := range c.OCI {
		name, program, _ := strings.Cut(text, "=")
		r, err := oci.Parse(program)
		switch {
		case !runtime.ValidRuntime(name) || name == oci.GVisor:
			return &settingError{"oci-runtimes", text, fmt.Sprintf("names of 1 to 32 small letters, digits and '-' but %q, each with = and a path after it, for example runc=/usr/bin/runc", oci.GVisor)}
		case err != nil:
			return &settingError{"oci-runtimes", text, "a name, =, " + err.Error()}
		}
		if _, twice := c.parsed[name]; twice {
			return &settingError{"oci-runtimes", strings.Join(slices.Sorted(maps.Keys(c.parsed)), ","), "names that stand once: " + name + " stands twice"}
		}
		c.parsed[name] = r
	}
	return nil
}
