package doctor

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/rockpool/rockpool/local/tiers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/server"
)

// doctorTier is the environment of a runner with another isolation.
const doctorTier = "doctor-tier"

// examineTiers finds out whether what the settings name beside namespaces can be
// had, by making a runner with each.
func examineTiers(ctx context.Context, srv *server.Server, p *patient) []finding.Finding {
	var all []finding.Finding
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

func noGVisor() finding.Finding {
	const refused = "environments with the isolation GVISOR are refused: the setting gvisor-runtime names no program"
	if path, err := exec.LookPath("runsc"); err == nil {
		return finding.Fine("gVisor", "%s; %s is one", refused, path)
	}
	return finding.Fine("gVisor", refused)
}

func examineTier(ctx context.Context, srv *server.Server, p *patient, tier tiers.Tier) finding.Finding {
	name, setting := "gVisor", "gvisor-runtime"
	if tier.Runtime != "" {
		name, setting = "runtime "+tier.Runtime, "oci-runtimes"
	}
	advice := "environments that ask for it are refused or fail; put right what the setting " + setting + " names, or remove it"
	if tier.Err != nil {
		return finding.Warning(name, advice, "%v", tier.Err)
	}
	env := engine.PutEnvironmentInput{
		ID: doctorTier, PoolSize: new(int), Isolation: &tier.Isolation, Runtime: &tier.Runtime,
		MemoryMiB: pointer(doctorMemoryMiB), Processes: pointer(doctorProcesses), CPUMHz: pointer(doctorCPUMHz),
	}
	if _, _, err := srv.Engine.PutEnvironment(ctx, env); err != nil {
		return finding.Warning(name, advice, "%v", err)
	}
	one := *p
	var took time.Duration
	var err error
	if one.runner, took, err = one.claim(ctx, doctorTier); err != nil {
		return finding.Warning(name, advice, "no runner could be made with it: %v", err)
	}
	got, err := one.shell(ctx, "cat /proc/version")
	if err != nil {
		return finding.Warning(name, advice, "no program could be run in it: %v", err)
	}
	version := tier.Version
	if tier.NoTime {
		return finding.Warning(name, "use a version that knows time namespaces, if that matters", "%s; a runner started in %v; programs in it see since when this machine runs", version, took.Round(time.Millisecond))
	}
	if tier.Isolation == runtime.IsolationGVisor {
		kernel, _, _ := strings.Cut(got.Text(), " #")
		version += "; programs see " + kernel
	}
	return finding.Fine(name, "%s; a runner started in %v", version, took.Round(time.Millisecond))
}
