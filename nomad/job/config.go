package job

import (
	"cmp"
	"net/url"
	"regexp"

	"github.com/rockpool/rockpool/runtime"
)

// Config configures the built-in template, or replaces it. Stored environments keep the
// configuration that they were stored with. Unset fields have the default in their comment.
type Config struct {
	Prefix      string   // of the names of everything that this server has in Nomad: "rockpool"
	Agent       Agent    // the agent of the runners
	Driver      Driver   // docker
	User        string   // user of the task; "": root with docker and podman, else the driver's default
	Datacenters []string // all
	NodePool    string   // Nomad's default
	Constraints []string // such as "${attr.kernel.name} = linux"
	NetworkMode string   // of runners with network access: "bridge", "cni/NAME" or "host"; "": the driver's default
	// NoNetworkMode is the group's network mode of runners without network access. Only the driver
	// exec uses it, since that driver can't disable the network itself. The default is "none".
	// Nomad 1.11 fails on that. There use "cni/NAME" of a network with only a loopback interface,
	// or "host", which gives runners the machine's network.
	NoNetworkMode string
	ForcePull     bool // pull the image for each runner
	// Workspace is how docker's runners get /workspace and /tmp. With WorkspaceTmpfs programs there
	// can't be executed by name. WorkspaceVolume needs clients that allow volumes.
	Workspace string
	Pins      bool // an image is pinned to its digest when its environment is put
	// MemoryReserve is the share of its memory limit that a runner reserves. The limit itself
	// becomes memory_max, which needs clusters that allow oversubscription. The default is 1.
	MemoryReserve float64
	Priority      int    // of jobs that refill a pool, 1 to 90: 50; a claim's are 10 higher
	Restarts      int    // of a task before it is given up: 0
	Reschedules   int    // of an allocation before it is given up: 0
	Template      []byte // a job in HCL or JSON that replaces the built-in template
}

// An Agent says how a task gets its agent: Nomad fetches it, the image contains it, or this server
// streams it.
type Agent struct {
	URL    string // permanent address of its archive, without a query: clients may fetch it hours later
	SHA256 string // of the archive, in hexadecimal
	Arch   string // the architecture, named as in Nomad: "amd64"
	Path   string // in the image, instead of URL
	Stream bool   // package delivery streams it, while a shell in the task waits
}

// The values of Config.Workspace.
const (
	WorkspaceTmpfs  = "tmpfs"
	WorkspaceVolume = "volume"
)

// A Driver is one of Nomad's task drivers.
type Driver string

// The drivers. RawExec is unsafe: it doesn't isolate runners from each other or from the machine.
const (
	Docker  Driver = "docker"
	Podman  Driver = "podman"
	Exec    Driver = "exec"
	RawExec Driver = "raw_exec"
)

// prefixes matches a valid Config.Prefix.
var prefixes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

// Complete returns c with its defaults, or INVALID_INPUT for the first invalid field.
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

// sums matches a SHA-256 in hexadecimal.
var sums = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check returns INVALID_INPUT if Nomad couldn't fetch the agent. An agent that isn't fetched needs
// no URL.
func (a Agent) check() error {
	if a.Path != "" || a.Stream {
		return nil
	}
	u, err := url.Parse(a.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return runtime.Invalid("agent.url", "must be an http or https address without a query or a password, that Nomad's clients can reach")
	}
	if !sums.MatchString(a.SHA256) {
		return runtime.Invalid("agent.sha256", "must be 64 hexadecimal digits, the checksum of the agent")
	}
	return nil
}

// Names returns the names of everything that this server has in Nomad.
func (c Config) Names() Names { return Names{c.Prefix} }
