package doctor

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/server"
)

// doctorTier is the environment of a runner with another isolation.
const doctorTier = "doctor-tier"

// examineTiers finds out whether what the settings name beside namespaces can be
// had, by making a runner with each.
func examineTiers(ctx context.Context, srv *server.Server, p *patient) []finding {
	var all []finding
	gvisor := false
	for _, tier := range srv.Tiers(ctx) {
		gvisor = gvisor || tier.Isolation == runtime.IsolationGVisor
		all = append(all, examineTier(ctx, srv, p, tier))
	}
	if !gvisor {
		all = append(all, noGVisor())
	}
	return all
}

func noGVisor() finding {
	const refused = "environments with the isolation GVISOR are refused: the setting gvisor-runtime names no program"
	if path, err := exec.LookPath("runsc"); err == nil {
		return fine("gVisor", "%s; %s is one", refused, path)
	}
	return fine("gVisor", refused)
}

func examineTier(ctx context.Context, srv *server.Server, p *patient, tier local.Tier) finding {
	name, setting := "gVisor", "gvisor-runtime"
	if tier.Runtime != "" {
		name, setting = "runtime "+tier.Runtime, "oci-runtimes"
	}
	advice := "environments that ask for it are refused or fail; put right what the setting " + setting + " names, or remove it"
	if tier.Err != nil {
		return warn(name, advice, "%v", tier.Err)
	}
	env := engine.PutEnvironmentInput{
		ID: doctorTier, PoolSize: new(int), Isolation: &tier.Isolation, Runtime: &tier.Runtime,
		MemoryMiB: pointer(doctorMemoryMiB), Processes: pointer(doctorProcesses), CPUMHz: pointer(doctorCPUMHz),
	}
	if _, _, err := srv.Engine.PutEnvironment(ctx, env); err != nil {
		return warn(name, advice, "%v", err)
	}
	one := *p
	var took time.Duration
	var err error
	if one.runner, took, err = one.claim(ctx, doctorTier); err != nil {
		return warn(name, advice, "no runner could be made with it: %v", err)
	}
	got, err := one.shell(ctx, "cat /proc/version")
	if err != nil {
		return warn(name, advice, "no program could be run in it: %v", err)
	}
	version := tier.Version
	if tier.NoTime {
		return warn(name, "use a version that knows time namespaces, if that matters", "%s; a runner started in %v; programs in it see since when this machine runs", version, took.Round(time.Millisecond))
	}
	if tier.Isolation == runtime.IsolationGVisor {
		kernel, _, _ := strings.Cut(got.Text(), " #")
		version += "; programs see " + kernel
	}
	return fine(name, "%s; a runner started in %v", version, took.Round(time.Millisecond))
}
