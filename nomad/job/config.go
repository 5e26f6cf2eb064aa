package job

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// Config configures the built-in template, or replaces it. Stored environments keep the
// configuration that they were stored with. Package config has the defaults, and has checked the
// agent's address and the priority.
type Config struct {
	Prefix      string   // of the names of everything that this server has in Nomad
	Agent       Agent    // the agent of the runners
	Driver      Driver   // of their tasks
	User        string   // user of the task; else root with docker and podman, and the driver's default with others
	Datacenters []string // all if there are none
	NodePool    string   // Nomad's default if it is empty
	Constraints []string // such as "${attr.kernel.name} = linux"
	NetworkMode string   // of runners with network access: "bridge", "cni/NAME" or "host", or empty for the driver's default
	// NoNetworkMode is the group's network mode of runners without network access. Only the driver
	// exec uses it, since that driver can't disable the network itself. Nomad 1.11 fails on "none".
	// There use "cni/NAME" of a network with only a loopback interface, or "host", which gives
	// runners the machine's network.
	NoNetworkMode string
	ForcePull     bool // pull the image for each runner
	// Workspace is how docker's runners get /workspace and /tmp. With WorkspaceTmpfs programs there
	// can't be executed by name. WorkspaceVolume needs clients that allow volumes.
	Workspace string
	Pins      bool // an image is pinned to its digest when its environment is put
	// MemoryReserve is the share of its memory limit that a runner reserves. The limit itself
	// becomes memory_max, which needs clusters that allow oversubscription.
	MemoryReserve float64
	Priority      int    // of jobs that refill a pool; a claim's are 10 higher
	Restarts      int    // of a task before it is given up
	Reschedules   int    // of an allocation before it is given up
	Template      []byte // a job in HCL or JSON that replaces the built-in template
}

// An Agent says how a task gets its agent: Nomad fetches it, its image has it, or this server streams it.
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

var prefixes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

// Check returns INVALID_INPUT for the first invalid field.
func (c Config) Check() error {
	if _, known := drivers[c.Driver]; !known {
		return runtime.Invalid("driver", "must be docker, podman, exec or raw_exec, not %q", c.Driver)
	}
	if c.Workspace != WorkspaceTmpfs && c.Workspace != WorkspaceVolume {
		return runtime.Invalid("workspace", "must be tmpfs or volume, not %q", c.Workspace)
	}
	if c.NoNetworkMode == "" {
		return runtime.Invalid("noNetworkMode", "must be none, host or cni/NAME")
	}
	if !prefixes.MatchString(c.Prefix) {
		return runtime.Invalid("prefix", "must be 1 to 32 letters, digits, '_' and '-', beginning with a letter or a digit")
	}
	if err := cmp.Or(
		runtime.Between("restarts", int64(c.Restarts), 0, 10, "restarts"),
		runtime.Between("reschedules", int64(c.Reschedules), 0, 10, "reschedules"),
	); err != nil {
		return err
	}
	if !(c.MemoryReserve >= 0.01 && c.MemoryReserve <= 1) { // not a number is neither
		return runtime.Invalid("memoryReserve", "must be 0.01 to 1, a share of the memory limit, not %g", c.MemoryReserve)
	}
	if len(c.Template) == 0 {
		if _, err := c.builtIn(); err != nil {
			return err
		}
	}
	return nil
}

// Names returns the names of everything that this server has in Nomad.
func (c Config) Names() Names { return Names{c.Prefix} }

// Names are the names of everything that one server has in Nomad.
type Names struct{ Prefix string }

// Environments returns the prefix of the names of environments' jobs.
func (n Names) Environments() string { return n.Prefix + "-env-" }

// Runners returns the prefix of the names of runners' jobs.
func (n Names) Runners() string { return n.Prefix + "-runner-" }

// Claims returns the prefix of the paths of runners' variables. A path has no dots.
func (n Names) Claims() string { return n.Prefix + "/runners/" }

// Lock returns the path of the variable with the server's lock.
func (n Names) Lock() string { return n.Prefix + "/lock" }

// Environment returns the name of an environment's job.
func (n Names) Environment(id runtime.EnvironmentID) string { return n.Environments() + string(id) }

// Runner returns the name of a runner's job.
func (n Names) Runner(id runtime.RunnerID) string { return n.Runners() + string(id) }

// Claim returns the path of a runner's variable.
func (n Names) Claim(id runtime.RunnerID) string { return n.Claims() + string(id) }

// runnerIDs matches valid ids. Names and paths with other ids belong to other programs.
var runnerIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// RunnerOf returns the runner of the job with a name, if it is a runner's.
func (n Names) RunnerOf(job string) (runtime.RunnerID, bool) { return runnerID(job, n.Runners()) }

// ClaimOf returns the runner of the variable at a path, if it is a runner's.
func (n Names) ClaimOf(path string) (runtime.RunnerID, bool) { return runnerID(path, n.Claims()) }

// Owned returns the runner of a listed job, if it is a runner of this server. The job of a server
// whose prefix begins with this server's prefix isn't.
func (n Names) Owned(job *api.JobListStub) (runtime.RunnerID, bool) {
	owner := job.Meta[metaPrefix]
	id, ok := n.RunnerOf(job.ID)
	return id, ok && (owner == "" || owner == n.Prefix)
}

func runnerID(name, prefix string) (runtime.RunnerID, bool) {
	id, ok := strings.CutPrefix(name, prefix)
	return runtime.RunnerID(id), ok && runnerIDs.MatchString(id)
}

// The keys of a job's meta. A person who registers an environment by hand must set only
// metaEnvironment, and in it only the fields that differ from the defaults.
const (
	metaPrefix      = "rockpool_prefix"      // the prefix of the server that owns it; without it the job's name has the prefix
	metaEnvironment = "rockpool_environment" // a runtime.Environment in JSON
	metaVersion     = "rockpool_version"     // the job's version that this server wrote; a later one was changed by hand
	metaBridge      = "rockpool_bridge"      // of a runner: its task, and the command that carries streams to its agent
	metaCreated     = "rockpool_created"     // of a runner: when its start was requested, RFC 3339
)
