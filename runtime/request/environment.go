// Package request has the requests of clients to the services: what each contains, and its checks. A
// request has the API's units (seconds, bytes). A nil pointer or slice means that the client left
// the field out: the stored or default value applies. Checks return INVALID_INPUT, which names the
// field as the API spells it. They start nothing, and read no state.
package request

import (
	"cmp"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// An Environment creates or changes an environment.
type Environment struct {
	ID               runtime.EnvironmentID
	Tenant           *runtime.TenantID // owner; nil means unchanged, or the default tenant for a new one
	Shared           *bool             // every tenant may see it and claim its runners
	IfRevision       *int              // CONFLICT if the stored revision differs; 0 means that the environment must not exist yet
	Image            *string
	PoolSize         *int
	CPUMHz           *int
	MemoryMiB        *int
	Processes        *int
	WorkspaceMiB     *int
	NetworkAccess    *bool
	ExposedPorts     []int
	Allow            []string
	AllowNames       []string
	BandwidthMbit    *int
	Isolation        *runtime.Isolation
	Runtime          *string
	Variables        []runtime.Variable
	Warm             *runtime.Warm // InterpreterNone removes it
	DefaultTimeLimit *int          // seconds
	OutputLimit      *int64
}

// New returns the environment that the request would create, without a pinned image.
func (in Environment) New() (runtime.Environment, error) {
	return in.Apply(runtime.Environment{}, false, runtime.ImagePin{})
}

// Apply returns stored with the request's changes, at the same revision if nothing changes. pin is the
// content of Image now, if Image is set.
func (in Environment) Apply(stored runtime.Environment, exists bool, pin runtime.ImagePin) (runtime.Environment, error) {
	env := stored
	if !exists {
		env = runtime.Environment{
			ID: in.ID, Image: runtime.DefaultImage, PoolSize: runtime.DefaultPoolSize, Resources: runtime.DefaultResources(),
			Isolation: runtime.IsolationNamespaces, DefaultTimeLimit: runtime.DefaultTimeLimit, OutputLimit: runtime.DefaultOutputLimit,
		}
	}
	if in.Image != nil {
		env.Image, env.Pin = *in.Image, pin
	}
	set(&env.Tenant, in.Tenant)
	set(&env.Shared, in.Shared)
	set(&env.PoolSize, in.PoolSize)
	set(&env.Resources.CPUMHz, in.CPUMHz)
	set(&env.Resources.MemoryMiB, in.MemoryMiB)
	set(&env.Resources.Processes, in.Processes)
	set(&env.Resources.WorkspaceMiB, in.WorkspaceMiB)
	set(&env.Network.Access, in.NetworkAccess)
	set(&env.Isolation, in.Isolation)
	set(&env.Runtime, in.Runtime)
	set(&env.OutputLimit, in.OutputLimit)
	set(&env.Network.BandwidthMbit, in.BandwidthMbit)
	setAll(&env.Network.ExposedPorts, in.ExposedPorts)
	setAll(&env.Network.Allow, in.Allow)
	setAll(&env.Network.AllowNames, in.AllowNames)
	setAll(&env.Variables, in.Variables)
	if in.Warm != nil {
		if env.Warm = in.Warm; in.Warm.Interpreter == runtime.InterpreterNone {
			env.Warm = nil
		}
	}
	err := bounded(&env.DefaultTimeLimit, "defaultTimeLimit", in.DefaultTimeLimit, time.Second, 0, int64(runtime.MaxTimeLimit/time.Second), "seconds")
	if err := cmp.Or(err, env.Validate()); err != nil {
		return env, err
	}
	if exists && env.Same(stored) {
		return stored, nil
	}
	env.Revision = stored.Revision + 1
	if !env.SameRunners(stored) {
		env.RunnerRevision = env.Revision // the pool replaces idle runners of earlier revisions
	}
	return env, nil
}

// set overwrites a field that the client named.
func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// setAll overwrites a list that the client named.
func setAll[T any](to *[]T, from []T) {
	if from != nil {
		*to = from
	}
}
