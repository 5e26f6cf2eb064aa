package poseidon

import (
	"net/http"
	"strconv"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/environments"
	"github.com/rockpool/rockpool/runtime/request"
)

// leastMemory is CodeOcean's minimum of the memory limit, in MiB. Rockpool's is higher.
const leastMemory = 4

// An environment is CodeOcean's view of a Rockpool environment.
type environment struct {
	ID                 int    `json:"id"`
	Image              string `json:"image"`
	PrewarmingPoolSize int    `json:"prewarmingPoolSize"`
	CPULimit           int    `json:"cpuLimit"`    // MHz
	MemoryLimit        int    `json:"memoryLimit"` // MiB
	NetworkAccess      bool   `json:"networkAccess"`
	ExposedPorts       []int  `json:"exposedPorts"`
}

// An environmentRequest is the body of PUT. A nil field keeps the stored value or, in a new
// environment, the default.
type environmentRequest struct {
	Image              *string `json:"image"`
	PrewarmingPoolSize *int    `json:"prewarmingPoolSize"`
	CPULimit           *int    `json:"cpuLimit"`
	MemoryLimit        *int    `json:"memoryLimit"`
	NetworkAccess      bool    `json:"networkAccess"`
	ExposedPorts       []int   `json:"exposedPorts"`
}

// number returns the number in an environment's id, and false if the id isn't a number.
func number(id runtime.EnvironmentID) (int, bool) {
	n, err := strconv.Atoi(string(id))
	return n, err == nil && n >= 0 && strconv.Itoa(n) == string(id)
}

// named returns the environment's id in a request's path.
func named(r *http.Request) (runtime.EnvironmentID, error) {
	n, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || n < 0 {
		return "", status{http.StatusBadRequest, "the id of an execution environment must be a number"}
	}
	return runtime.EnvironmentID(strconv.Itoa(n)), nil
}

// fetched rejects the parameter fetch if it isn't a boolean. Its value has no effect, since
// Rockpool's data is always current.
func fetched(r *http.Request) error {
	if fetch := r.URL.Query().Get("fetch"); fetch != "" {
		if _, err := strconv.ParseBool(fetch); err != nil {
			return status{http.StatusBadRequest, "the parameter fetch must be true or false"}
		}
	}
	return nil
}

// shown returns CodeOcean's view of an environment whose id is the number n.
func shown(n int, env runtime.Environment) environment {
	ports := env.Network.ExposedPorts
	if ports == nil {
		ports = []int{}
	}
	return environment{
		ID: n, Image: env.Image, PrewarmingPoolSize: env.PoolSize, CPULimit: env.Resources.CPUMHz, MemoryLimit: env.Resources.MemoryMiB,
		NetworkAccess: env.Network.Access, ExposedPorts: ports,
	}
}

// environments lists the environments. It leaves out those whose id isn't a number.
func (a *api) environments(w http.ResponseWriter, r *http.Request) error {
	if err := fetched(r); err != nil {
		return err
	}
	all, err := a.Engine.Environments.List(r.Context())
	if err != nil {
		return err
	}
	list := []environment{}
	for _, env := range all {
		if n, ok := number(env.ID); ok {
			list = append(list, shown(n, env))
		}
	}
	answer(w, http.StatusOK, map[string]any{"executionEnvironments": list})
	return nil
}

func (a *api) environment(w http.ResponseWriter, r *http.Request) error {
	id, err := named(r)
	if err == nil {
		err = fetched(r)
	}
	if err != nil {
		return err
	}
	env, there, err := a.Engine.Environments.Get(r.Context(), id)
	if err != nil {
		return err
	}
	if !there {
		return environments.NotFound(id)
	}
	n, _ := number(id)
	answer(w, http.StatusOK, shown(n, env))
	return nil
}

// putEnvironment creates or changes an environment. It also resolves the image's tag again, even if
// nothing else changes.
func (a *api) putEnvironment(w http.ResponseWriter, r *http.Request) error {
	var asked environmentRequest
	if err := a.read(w, r, &asked); err != nil {
		return err
	}
	id, err := named(r)
	if err != nil {
		return err
	}
	in := request.Environment{ID: id, Image: asked.Image, PoolSize: asked.PrewarmingPoolSize, NetworkAccess: &asked.NetworkAccess, ExposedPorts: asked.ExposedPorts}
	if in.ExposedPorts == nil {
		in.ExposedPorts = []int{}
	}
	if in.CPUMHz, err = atLeast("cpuLimit", asked.CPULimit, 1, a.options.LeastCPUMHz); err != nil {
		return err
	}
	if in.MemoryMiB, err = atLeast("memoryLimit", asked.MemoryLimit, leastMemory, runtime.MinMemoryMiB); err != nil {
		return err
	}
	if _, there, err := a.Engine.Environments.Get(r.Context(), id); err != nil {
		return err
	} else if !there && a.options.Isolation != "" {
		in.Isolation = &a.options.Isolation
	}
	_, created, err := a.Engine.Environments.Put(r.Context(), in)
	if err != nil {
		return err
	}
	if created {
		w.WriteHeader(http.StatusCreated)
	} else {
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// atLeast raises a requested number to Rockpool's minimum. It rejects one below CodeOcean's own
// minimum.
func atLeast(field string, asked *int, theirs, ours int) (*int, error) {
	if asked == nil {
		return nil, nil
	}
	if *asked < theirs {
		return nil, runtime.Invalid(field, "must be at least %d, not %d", theirs, *asked)
	}
	return new(max(*asked, ours)), nil
}

func (a *api) deleteEnvironment(w http.ResponseWriter, r *http.Request) error {
	id, err := named(r)
	if err != nil {
		return err
	}
	deleted, err := a.Engine.Environments.Delete(r.Context(), id, false)
	if err != nil {
		return err
	}
	if !deleted {
		return environments.NotFound(id)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// statistics returns the sizes of pools, by the environment's number.
func (a *api) statistics(w http.ResponseWriter, r *http.Request) error {
	all, err := a.Engine.Environments.List(r.Context())
	if err != nil {
		return err
	}
	type statistic struct {
		ID                 int `json:"id"`
		PrewarmingPoolSize int `json:"prewarmingPoolSize"`
		IdleRunners        int `json:"idleRunners"`
		UsedRunners        int `json:"usedRunners"`
	}
	list := map[int]statistic{}
	for _, env := range all {
		if n, ok := number(env.ID); ok {
			pool, _ := a.Engine.Environments.PoolStatus(env)
			list[n] = statistic{n, env.PoolSize, pool.Idle, pool.Claimed}
		}
	}
	answer(w, http.StatusOK, list)
	return nil
}
