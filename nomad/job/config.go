package job

import (
	"cmp"
	"net/url"
	"regexp"

	"github.com/rockpool/rockpool/runtime"
)

// Config says how the built-in template makes runners, or has one in its place. An
// environment that is stored keeps what it was stored with. Fields that aren't set have
// the default that is named.
type Config struct {
	Prefix      string   // of the names of all that this server has in Nomad: "rockpool"
	Agent       Agent    // what runs in the runners
	Driver      Driver   // docker
	User        string   // that the task runs as; "": root on docker and podman, else the driver's default
	Datacenters []string // every one
	NodePool    string   // Nomad's default
	Constraints []string // such as "${attr.kernel.name} = linux"
	NetworkMode string   // of runners with network access: "bridge", "cni/NAME" or "host"; "": the driver's own
	// NoNetworkMode is the mode of the group's network of runners without network
	// access, with the driver exec alone, which can't keep them from it itself: "none".
	// Nomad 1.11 fails on that; there it is "cni/NAME" of one that has but a loopback
	// interface, or "host", which leaves them the machine's.
	NoNetworkMode string
	ForcePull     bool // images are pulled anew for each runner
	// Workspace is what docker's runners have as /workspace and /tmp: WorkspaceTmpfs, in which nothing
	// can be executed by its own name, or WorkspaceVolume, for clients that allow volumes.
	Workspace string
	Pins      bool // images are pinned when an environment is put
	// MemoryReserve is the share of its memory limit that a runner reserves; the
	// rest is memory_max, for clusters that allow oversubscription. 1
	MemoryReserve float64
	Priority      int    // of jobs that refill a pool, 1 to 90: 50; a claim's are 10 above
	Restarts      int    // of a task before it is given up: 0
	Reschedules   int    // of an allocation before it is given up: 0
	Template      []byte // an own job, in HCL or JSON, in place of the built-in template
}

// An Agent says how a task gets its agent: fetched by Nomad, there already, or streamed to it by
// this server.
type Agent struct {
	URL    string // of its archive, permanent, without a query: Nomad's clients fetch it, hours later too
	SHA256 string // of the archive, in hex
	Arch   string // that it runs on, as Nomad names it: "amd64"
	Path   string // in the image, in place of URL
	Stream bool   // a shell in the task waits until package delivery has brought it there
}

// The values of Config.Workspace.
const (
	WorkspaceTmpfs  = "tmpfs"
	WorkspaceVolume = "volume"
)

// A Driver is one of Nomad's task drivers.
type Driver string

// The drivers. RawExec is unsafe: it isolates runners neither from each other nor from
// the machine.
const (
	Docker  Driver = "docker"
	Podman  Driver = "podman"
	Exec    Driver = "exec"
	RawExec Driver = "raw_exec"
)

var prefixes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

// Complete returns c with its defaults, or INVALID_INPUT with the first field
// that can't be used.
func (c Config) Complete() (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, "rockpool")
	c.Driver = cmp.Or(c.Driver, Docker)
	c.MemoryReserve = cmp.Or(c.MemoryReserve, 1)
	c.NoNetworkMode = cmp.Or(c.NoNetworkMode, "none")
	c.Workspace = cmp.Or(c.Workspace, WorkspaceTmpfs)
	c.Priority = cmp.Or(c.Priority, 50)
	if len(c.Datacenters) == 0 {
		c.Datacenters = []string{"*"}
	}
	if _, known := drivers[c.Driver]; !known {
		return c, runtime.Invalid("driver", "must be docker, podman, exec or raw_exec, not %q", c.Driver)
	}
	if c.Workspace != WorkspaceTmpfs && c.Workspace != WorkspaceVolume {
		return c, runtime.Invalid("workspace", "must be tmpfs or volume, not %q", c.Workspace)
	}
	if !prefixes.MatchString(c.Prefix) {
		return c, runtime.Invalid("prefix", "must be 1 to 32 letters, digits, '_' and '-', beginning with a letter or a digit")
	}
	if err := cmp.Or(
		runtime.Between("priority", int64(c.Priority), 1, 90, "(jobs of claims that wait have 10 more)"),
		runtime.Between("restarts", int64(c.Restarts), 0, 10, "restarts"),
		runtime.Between("reschedules", int64(c.Reschedules), 0, 10, "reschedules"),
	); err != nil {
		return c, err
	}
	if !(c.MemoryReserve >= 0.01 && c.MemoryReserve <= 1) { // not a number is neither
		return c, runtime.Invalid("memoryReserve", "must be 0.01 to 1, a share of the memory limit, not %g", c.MemoryReserve)
	}
	if len(c.Template) == 0 {
		if _, err := c.builtIn(); err != nil {
			return c, err
		}
	}
	return c, c.Agent.check()
}

var sums = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (a Agent) check() error {
	if a.Path != "" || a.Stream {
		return nil
	}
	u, err := url.Parse(a.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return runtime.Invalid("agent.url", "must be an http or https address without a query or a password, which Nomad's clients reach")
	}
	if !sums.MatchString(a.SHA256) {
		return runtime.Invalid("agent.sha256", "must be 64 hexadecimal digits, the checksum of the agent")
	}
	return nil
}

// Names returns those of all that this server has in Nomad.
func (c Config) Names() Names { return Names{c.Prefix} }
