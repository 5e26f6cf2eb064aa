package runtime

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// An Environment describes how its runners are made. An id and a Revision name one immutable
// version; each change makes a new revision.
type Environment struct {
	ID       EnvironmentID `json:"id"`
	Tenant   TenantID      `json:"tenant,omitempty"` // that owns it
	Shared   bool          `json:"shared,omitempty"` // every tenant may see it and claim its runners
	Revision int           `json:"revision"`         // 1, 2, 3 …: counts every change
	// RunnerRevision is the newest revision that changed how runners are made. A runner of an
	// earlier revision is replaced once it is idle. A change of PoolSize alone replaces none.
	RunnerRevision   int           `json:"runnerRevision"`
	Image            string        `json:"image"`
	Pin              ImagePin      `json:"pin,omitzero"` // content of Image when this revision was made
	PoolSize         int           `json:"poolSize"`     // idle runners to keep; 0 means only on demand
	Resources        Resources     `json:"resources"`
	Network          Network       `json:"network"`
	Isolation        Isolation     `json:"isolation"`
	Runtime          string        `json:"runtime,omitempty"` // named in the server's settings; "" means the tier's own
	Variables        []Variable    `json:"variables,omitempty"`
	Warm             *Warm         `json:"warm,omitempty"`   // nil means each execution starts its own interpreter
	DefaultTimeLimit time.Duration `json:"defaultTimeLimit"` // of an execution without one; 0 means unlimited
	OutputLimit      int64         `json:"outputLimit"`      // bytes per execution
	// Previous is the revision that runners are made from until the cluster has the pinned
	// image; nil means none. It has no Previous itself.
	Previous *Environment `json:"previous,omitempty"`
}

// Resources are the limits of one runner, shared by everything that runs in it.
type Resources struct {
	CPUMHz       int `json:"cpuMHz"`       // as in Nomad: half of a 2000 MHz core is 1000
	MemoryMiB    int `json:"memoryMiB"`    // without swap; files in the workspace count too
	Processes    int `json:"processes"`    // including threads; the agent has 16 more
	WorkspaceMiB int `json:"workspaceMiB"` // size of /workspace, and separately of /tmp
}

// Plus returns r + b in each dimension.
func (r Resources) Plus(b Resources) Resources {
	return Resources{r.CPUMHz + b.CPUMHz, r.MemoryMiB + b.MemoryMiB, r.Processes + b.Processes, r.WorkspaceMiB + b.WorkspaceMiB}
}

// Minus returns r - b in each dimension, which can be negative.
func (r Resources) Minus(b Resources) Resources {
	return Resources{r.CPUMHz - b.CPUMHz, r.MemoryMiB - b.MemoryMiB, r.Processes - b.Processes, r.WorkspaceMiB - b.WorkspaceMiB}
}

// Beyond returns what r has more than b in each dimension, at least 0.
func (r Resources) Beyond(b Resources) Resources {
	return Resources{max(r.CPUMHz-b.CPUMHz, 0), max(r.MemoryMiB-b.MemoryMiB, 0), max(r.Processes-b.Processes, 0), max(r.WorkspaceMiB-b.WorkspaceMiB, 0)}
}

// Fits reports whether free has at least r of every dimension.
func (r Resources) Fits(free Resources) bool { return r.Beyond(free) == Resources{} }

// Isolation is the isolation tier: how a runner is isolated from the machine.
type Isolation string

// The tiers.
const (
	IsolationNamespaces Isolation = "NAMESPACES" // Linux namespaces, cgroups and seccomp; shared kernel
	IsolationGVisor     Isolation = "GVISOR"     // gVisor's runsc: a kernel of its own in user space
	IsolationNone       Isolation = "NONE"       // none; for trusted programs only
	IsolationCluster    Isolation = "CLUSTER"    // that of the cluster's own task driver
)

// A Variable is one environment variable of a command.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Defaults of an environment's fields.
const (
	DefaultImage       = "host"
	DefaultPoolSize    = 2
	DefaultOutputLimit = 16 << 20 // bytes
	DefaultTimeLimit   = 60 * time.Second
)

// DefaultResources returns the limits of an environment that names none.
func DefaultResources() Resources {
	return Resources{CPUMHz: 2000, MemoryMiB: 256, Processes: 128, WorkspaceMiB: 64}
}

// Bounds of what a client may request.
const (
	MaxPoolSize    = 1000
	MinMemoryMiB   = 16
	MaxTimeLimit   = 24 * time.Hour
	MinOutputLimit = 1 << 10 // bytes
	MaxOutputLimit = 1 << 40 // bytes
	MaxVariables   = 256
	MaxValueBytes  = 32 << 10  // of one variable
	MaxAllValues   = 512 << 10 // bytes of all names and values together
)

// Validate returns INVALID_INPUT with the first field that is out of range, and nil for an
// environment that a cluster may store.
func (e Environment) Validate() error {
	_, wrong := ParseTenant("tenant", e.Tenant.String())
	if err := cmp.Or(e.ID.Validate(), wrong); err != nil {
		return err
	}
	if e.Image == "" || len(e.Image) > 512 || !printable(e.Image) {
		return Invalid("image", "must be 1 to 512 printable bytes, for example %q", DefaultImage)
	}
	err := cmp.Or(
		Between("poolSize", int64(e.PoolSize), 0, MaxPoolSize, "runners"),
		Between("resources.cpuMHz", int64(e.Resources.CPUMHz), 10, 1<<20, "MHz"),
		Between("resources.memoryMiB", int64(e.Resources.MemoryMiB), MinMemoryMiB, 1<<20, "MiB"),
		Between("resources.processes", int64(e.Resources.Processes), 16, 1<<16, "processes"),
		Between("resources.workspaceMiB", int64(e.Resources.WorkspaceMiB), 1, 1<<20, "MiB"),
		Between("defaultTimeLimit", int64(e.DefaultTimeLimit/time.Second), 0, int64(MaxTimeLimit/time.Second), "seconds"),
		Between("outputLimit", e.OutputLimit, MinOutputLimit, MaxOutputLimit, "bytes"),
		e.Network.validate(),
	)
	if err != nil {
		return err
	}
	switch e.Isolation {
	case IsolationNamespaces, IsolationGVisor, IsolationNone, IsolationCluster:
	default:
		return Invalid("isolation", "must be NAMESPACES, GVISOR, NONE or CLUSTER")
	}
	if e.Runtime != "" && !ValidRuntime(e.Runtime) {
		return Invalid("runtime", "must be 1 to 32 lower-case letters, digits and '-', beginning with a letter, or empty")
	}
	return cmp.Or(e.Warm.validate(e.Isolation, e.Runtime), ValidateVariables("variables", e.Variables))
}

var runtimeNames = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// ValidRuntime reports whether name is a valid name of a runtime.
func ValidRuntime(name string) bool { return runtimeNames.MatchString(name) }

// SameRunners reports whether e and other make equal runners. If so, a change from one to the
// other replaces no runner.
func (e Environment) SameRunners(other Environment) bool {
	return e.Tenant == other.Tenant && // it owns the idle runners
		e.Image == other.Image && e.Pin.Digest == other.Pin.Digest &&
		e.Resources == other.Resources &&
		e.Network.equal(other.Network) &&
		e.Isolation == other.Isolation && e.Runtime == other.Runtime &&
		slices.Equal(e.Variables, other.Variables) &&
		e.Warm.equal(other.Warm) &&
		e.DefaultTimeLimit == other.DefaultTimeLimit &&
		e.OutputLimit == other.OutputLimit
}

// Claimable reports whether a tenant may hold runners of the environment.
func (e Environment) Claimable(by TenantID) bool { return e.Shared || e.Tenant == by }

// Same reports whether a change from e to other changes nothing.
func (e Environment) Same(other Environment) bool {
	return e.PoolSize == other.PoolSize && e.Shared == other.Shared && e.SameRunners(other)
}

// Between returns INVALID_INPUT for field unless low ≤ value ≤ high.
func Between(field string, value, low, high int64, unit string) error {
	if value < low || value > high {
		return Invalid(field, "must be %d to %d %s, not %d", low, high, unit, value)
	}
	return nil
}

// variableNames is the POSIX portable form, without which shells drop variables.
var variableNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ValidateVariables returns INVALID_INPUT below field unless every variable has a portable name
// (POSIX 8.1), no name occurs twice, and no value contains NUL.
func ValidateVariables(field string, variables []Variable) error {
	if len(variables) > MaxVariables {
		return Invalid(field, "must be at most %d variables, not %d", MaxVariables, len(variables))
	}
	seen := map[string]bool{}
	total := 0
	for i, v := range variables {
		if total += len(v.Name) + len(v.Value); total > MaxAllValues {
			return Invalid(field, "names and values must be at most %d bytes in total", MaxAllValues)
		}
		at := fmt.Sprintf("%s.%d", field, i)
		switch {
		case !variableNames.MatchString(v.Name) || len(v.Name) > 256:
			return Invalid(at+".name", "must be 1 to 256 letters, digits and underscores, not beginning with a digit")
		case seen[v.Name]:
			return Invalid(at+".name", "%s occurs twice", v.Name)
		case len(v.Value) > MaxValueBytes || strings.ContainsRune(v.Value, 0):
			return Invalid(at+".value", "must be at most %d bytes without NUL", MaxValueBytes)
		}
		seen[v.Name] = true
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// An ImagePin identifies the bytes of an environment's image, and holds what the image says about
// running programs. The zero ImagePin means that the cluster alone handles the image.
type ImagePin struct {
	Digest           string     `json:"digest,omitempty"` // "sha256:…" of the content
	Variables        []Variable `json:"variables,omitempty"`
	WorkingDirectory string     `json:"workingDirectory,omitempty"` // "" means the workspace
	User             string     `json:"user,omitempty"`             // name of the user that programs run as
	// Account is the image's own USER, a name or a number. It is set only where files can't be
	// given to another user.
	Account string `json:"account,omitempty"`
	// Unpinned is why there is no digest. Each node then runs its own version of the image.
	Unpinned string `json:"unpinned,omitempty"`
}

// An ImageState says whether a cluster has a pinned image.
type ImageState string

// The states.
const (
	ImagePulling ImageState = "PULLING" // it is being pulled
	ImageReady   ImageState = "READY"   // it is stored here; its registry is no longer needed
	ImageFailed  ImageState = "FAILED"  // it is missing; Reason says what to do
)

// An ImageStatus is the progress of a cluster in getting a pinned image. It is zero for an
// environment without one.
type ImageStatus struct {
	Digest     string
	State      ImageState
	Layers     int // in the image; 0 means not known yet
	LayersDone int
	Bytes      int64 // of the layers as transferred, mostly compressed
	BytesDone  int64
	Reason     string // with FAILED: why, and what to do
}
