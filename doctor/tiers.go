package doctor

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/server"
)

// examineTiers tests every isolation tier and runtime of the settings other than namespaces, with a
// runner of each.
func examineTiers(ctx context.Context, srv *server.Server, p *subject) []health.Finding {
	var all []health.Finding
	gvisor := false
	for _, tier := range srv.Tiers(ctx) {
		gvisor = gvisor || tier.Isolation == runtime.IsolationGVisor
		all = append(all, examineTier(ctx, srv, p, tier))
	}
	if !gvisor {
		// This is no problem: the tier is optional.
		refused := "environments with the isolation tier GVISOR are refused: the setting gvisor-runtime isn't set"
		if path, err := exec.LookPath("runsc"); err == nil {
			refused += "; you can set it to " + path
		}
		all = append(all, health.Fine("gVisor", "%s", refused))
	}
	return all
}

// examineTier claims a runner of one tier and runs a program in it. Problems are warnings: the
// other tiers work without it.
func examineTier(ctx context.Context, srv *server.Server, p *subject, tier host.Tier) health.Finding {
	name, setting := "gVisor", "gvisor-runtime"
	if tier.Runtime != "" {
		name, setting = "runtime "+tier.Runtime, "oci-runtimes"
	}
	advice := "environments that use it are refused or fail; fix the setting " + setting + ", or remove it"
	if tier.Err != nil {
		return health.Warning(name, advice, "%v", tier.Err)
	}
	env := request.Environment{
		ID: "doctor-tier", PoolSize: new(int), Isolation: &tier.Isolation, Runtime: &tier.Runtime,
		MemoryMiB: new(doctorMemoryMiB), Processes: new(doctorProcesses), CPUMHz: new(doctorCPUMHz),
	}
	if _, _, err := srv.Engine.Environments.Put(access.With(ctx, access.Server()), env); err != nil {
		return health.Warning(name, advice, "%v", err)
	}
	// The copy keeps the client, but examines another runner.
	one := *p
	var took time.Duration
	var err error
	if one.runner, took, err = one.claim(ctx, string(env.ID)); err != nil {
		return health.Warning(name, advice, "no runner could be created with it: %v", err)
	}
	got, err := one.shell(ctx, "cat /proc/version")
	if err != nil {
		return health.Warning(name, advice, "no program could run in it: %v", err)
	}
	version := tier.Version
	if tier.NoTime {
		return health.Warning(name, "if that matters, use a version with time namespaces", "%s; a runner started in %v; programs in it see the uptime of this machine", version, took.Round(time.Millisecond))
	}
	if tier.Isolation == runtime.IsolationGVisor {
		kernel, _, _ := strings.Cut(got.Text(), " #")
		version += "; programs see " + kernel
	}
	return health.Fine(name, "%s; a runner started in %v", version, took.Round(time.Millisecond))
}
