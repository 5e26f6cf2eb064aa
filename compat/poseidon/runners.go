package poseidon

import (
	"net/http"
	"strconv"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
)

// A mappedPort is the address of a runner's port.
type mappedPort struct {
	ExposedPort int    `json:"exposedPort"`
	HostAddress string `json:"hostAddress"`
}

// claim claims an idle runner. It doesn't wait for one.
func (a *api) claim(w http.ResponseWriter, r *http.Request) error {
	var asked struct {
		ExecutionEnvironmentID int  `json:"executionEnvironmentId"`
		InactivityTimeout      *int `json:"inactivityTimeout"` // seconds; 0 sets none
	}
	if err := a.read(w, r, &asked); err != nil {
		return err
	}
	id := runtime.EnvironmentID(strconv.Itoa(asked.ExecutionEnvironmentID))
	runner, err := a.Engine.Runners.Claim(r.Context(), request.Claim{EnvironmentID: id, InactivityTimeout: asked.InactivityTimeout})
	if err != nil {
		return err
	}
	ports := []mappedPort{}
	for _, p := range runner.Ports {
		ports = append(ports, mappedPort{p.ExposedPort, p.Address})
	}
	answer(w, http.StatusOK, map[string]any{"runnerId": runner.ID, "mappedPorts": ports})
	return nil
}

// release ends the claim of a runner and drops its pending executions.
func (a *api) release(w http.ResponseWriter, r *http.Request) error {
	id := runnerID(r)
	released, err := a.Engine.Runners.Release(r.Context(), id)
	if err != nil {
		return err
	}
	if !released {
		return runtime.Gone(id)
	}
	a.pending.drop(id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// runnerID returns the id in a request's path. It doesn't check that the runner exists.
func runnerID(r *http.Request) runtime.RunnerID { return runtime.RunnerID(r.PathValue("runner")) }

// runner returns the claimed runner in a request's path.
func (a *api) runner(r *http.Request) (runtime.Runner, error) {
	id := runnerID(r)
	runner, there, err := a.Engine.Runners.Get(r.Context(), id)
	if err == nil && (!there || runner.State != runtime.RunnerClaimed) {
		err = runtime.Gone(id)
	}
	return runner, err
}
