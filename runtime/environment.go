package runtime

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// An Environment is what runners are made from. Put together with its
// Revision it never changes: a change makes a new revision.
type Environment struct {
	ID       EnvironmentID `json:"id"`
	Tenant   TenantID      `json:"tenant,omitempty"` // whose it is
	Shared   bool          `json:"shared,omitempty"` // every tenant may see and claim it
	Revision int           `json:"revision"`         // 1, 2, 3 …: counts every change
	// RunnerRevision is the newest revision that changed what runners are made
	// from. A runner of an earlier revision is replaced when it is idle; a
	// change of PoolSize alone leaves it where it is.
	RunnerRevision   int           `json:"runnerRevision"`
	Image            string        `json:"image"`
	Pin              ImagePin      `json:"pin,omitzero"` // what Image was when this revision was made
	PoolSize         int           `json:"poolSize"`     // idle runners to keep; 0: only on demand
	Resources        Resources     `json:"resources"`
	Network          Network       `json:"network"`
	Isolation        Isolation     `json:"isolation"`
	Runtime          string        `json:"runtime,omitempty"` // of those that the server's settings name; "": the isolation's own
	Variables        []Variable    `json:"variables,omitempty"`
	Warm             *Warm         `json:"warm,omitempty"`   // nil: each execution starts its own interpreter
	DefaultTimeLimit time.Duration `json:"defaultTimeLimit"` // of an execution that names none; 0: none
	OutputLimit      int64         `json:"outputLimit"`      // bytes per execution
	// Previous is what runners are made from until the cluster has the pinned
	// image; nil: nothing is. It has no Previous itself.
	Previous *Environment `json:"previous,omitempty"`
}

// Resources are the limits of one runner, shared by all that runs in it.
type Resources struct {
	CPUMHz       int `json:"cpuMHz"`       // as Nomad counts: a share of a core is its part of the core's clock
	MemoryMiB    int `json:"memoryMiB"`    // without swap; what lies in the workspace counts too
	Processes    int `json:"processes"`    // threads count too; the agent has 16 more
	WorkspaceMiB int `json:"workspaceMiB"` // room in /workspace, and as much again in /tmp
}

// Isolation is the tier that keeps a runner apart from the machine.
type Isolation string

// The tiers.
const (
	IsolationNamespaces Isolation = "NAMESPACES" // Linux namespaces, cgroups and seccomp; the kernel is shared
	IsolationGVisor     Isolation = "GVISOR"     // gVisor's runsc: its own kernel in user space
	IsolationNone       Isolation = "NONE"       // none; for programs that are trusted
	IsolationCluster    Isolation = "CLUSTER"    // what the cluster's own driver gives
)

// A Variable is one environment variable of a command.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// What an environment is made of where its creator doesn't say.
const (
	DefaultImage       = "host"
	DefaultPoolSize    = 2
	DefaultOutputLimit = 16 << 20
	DefaultTimeLimit   = 60 * time.Second
)

// DefaultResources are the limits of an environment that names none.
func DefaultResources() Resources {
	return Resources{CPUMHz: 2000, MemoryMiB: 256, Processes: 128, WorkspaceMiB: 64}
}

// Bounds of what a client may ask for.
const (
	MaxPoolSize    = 1000
	MinMemoryMiB   = 16
	MaxTimeLimit   = 24 * time.Hour
	MinOutputLimit = 1 << 10
	MaxOutputLimit = 1 << 40
	MaxVariables   = 256
	MaxValueBytes  = 32 << 10
	MaxAllValues   = 512 << 10 // of all variables together
)

// Validate returns INVALID_INPUT with the first field that is out of its
// range, and nil for an environment that a cluster can be asked to keep.
func (e Environment) Validate() error {
	if err := e.ID.Validate(); err != nil {
		return err
	}
	if _, err := ParseTenant("tenant", e.Tenant.String()); err != nil {
		return err
	}
	if e.Image == "" || len(e.Image) > 512 || !printable(e.Image) {
		return Invalid("image", "must be 1 to 512 printable bytes, for example %q", DefaultImage)
	}
	for _, b := range []struct {
		field            string
		value, low, high int64
		unit             string
	}{
		{"poolSize", int64(e.PoolSize), 0, MaxPoolSize, "runners"},
		{"resources.cpuMHz", int64(e.Resources.CPUMHz), 10, 1 << 20, "MHz"},
		{"resources.memoryMiB", int64(e.Resources.MemoryMiB), MinMemoryMiB, 1 << 20, "MiB"},
		{"resources.processes", int64(e.Resources.Processes), 16, 1 << 16, "processes"},
		{"resources.workspaceMiB", int64(e.Resources.WorkspaceMiB), 1, 1 << 20, "MiB"},
		{"defaultTimeLimit", int64(e.DefaultTimeLimit / time.Second), 0, int64(MaxTimeLimit / time.Second), "seconds"},
		{"outputLimit", e.OutputLimit, MinOutputLimit, MaxOutputLimit, "bytes"},
	} {
		if err := Between(b.field, b.value, b.low, b.high, b.unit); err != nil {
			return err
		}
	}
	if err := e.Network.validate(); err != nil {
		return err
	}
	switch e.Isolation {
	case IsolationNamespaces, IsolationGVisor, IsolationNone, IsolationCluster:
	default:
		return Invalid("isolation", "must be NAMESPACES, GVISOR, NONE or CLUSTER")
	}
	if e.Runtime != "" && !ValidRuntime(e.Runtime) {
		return Invalid("runtime", "must be 1 to 32 small letters, digits and '-', beginning with a letter, or empty")
	}
	if err := e.Warm.validate(e.Isolation, e.Runtime); err != nil {
		return err
	}
	return ValidateVariables("variables", e.Variables)
}

// ValidRuntime reports whether name can be one of a runtime.
func ValidRuntime(name string) bool {
	for i, c := range name {
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return 1 <= len(name) && len(name) <= 32
}

// SameRunners reports whether runners made from e and from other are alike,
// so that a change from one to the other replaces none.
func (e Environment) SameRunners(other Environment) bool {
	return e.Tenant == other.Tenant && // idle runners belong to it
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

var variableNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ValidateVariables returns INVALID_INPUT below field unless every variable
// has a portable name (POSIX 8.1) and a value without NUL, and no name
// stands twice.
func ValidateVariables(field string, variables []Variable) error {
	if len(variables) > MaxVariables {
		return Invalid(field, "must be at most %d variables, not %d", MaxVariables, len(variables))
	}
	seen := map[string]bool{}
	total := 0
	for i, v := range variables {
		if total += len(v.Name) + len(v.Value); total > MaxAllValues {
			return Invalid(field, "must be at most %d bytes in all", MaxAllValues)
		}
		at := fmt.Sprintf("%s.%d", field, i)
		switch {
		case !variableNames.MatchString(v.Name) || len(v.Name) > 256:
			return Invalid(at+".name", "must be 1 to 256 letters, digits and underscores, not beginning with a digit")
		case seen[v.Name]:
			return Invalid(at+".name", "%s is named twice", v.Name)
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
