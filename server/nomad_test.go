package server

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

func TestSettingsOfNomadAreConverted(t *testing.T) {
	c := config.Default()
	c.Data, c.Cluster, c.AdvertiseURL = t.TempDir(), config.ClusterNomad, "https://pool.example.org:8443/"
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	sum := strings.Repeat("0", 64)
	got := nomadConfig(c, "d", sum, zap.NewNop())
	if want := "https://pool.example.org:8443/agent/" + sum; got.Jobs.Agent.URL != want || got.Jobs.Agent.SHA256 != sum {
		t.Errorf("%+v", got.Jobs.Agent)
	}
	if got.Remove {
		t.Error("runners are removed at the stop, though nobody said so")
	}
	if c.OnStop = config.StopRemoves; !nomadConfig(c, "d", sum, zap.NewNop()).Remove {
		t.Error("runners aren't removed at the stop")
	}
	if _, err := nomad.New(t.Context(), got); err != nil {
		t.Error(err)
	}
	for field, want := range map[string]string{"memoryReserve": "--nomad-memory-reserve ", "constraints.0": "--nomad-constraints-0 "} {
		if err := nomadSetting(runtime.Invalid(field, "must be less")); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", field, err)
		}
	}
	c.AdvertiseURL, c.Nomad.StreamAgent, c.Nomad.NoNetworkMode = "", true, "host"
	if got := nomadConfig(c, "d", sum, zap.NewNop()); got.Jobs.Agent != (job.Agent{Stream: true, Arch: c.Nomad.Arch}) || got.Jobs.NoNetworkMode != "host" {
		t.Errorf("%+v, and %q where there is no network", got.Jobs.Agent, got.Jobs.NoNetworkMode)
	}
}

func TestDefaultsAreConverted(t *testing.T) {
	c := config.Default()
	offer, ports, err := c.Networks.Parse()
	if err != nil || offer.Pool.Check() != nil || ports.First != 20000 || ports.Last != 29999 || offer.Bandwidth != 100 {
		t.Errorf("%+v, %+v, %v", offer, ports, err)
	}
	if images := imageCache(c.Images); images.Bytes != 20<<30 || images.Stall.Seconds() != 60 || images.Within.Minutes() != 30 {
		t.Errorf("%+v", images)
	}
	c.Runtimes.GVisor, c.Runtimes.OCI = "/usr/bin/runsc --debug", []string{"runc=/usr/bin/runc"}
	all, err := c.Runtimes.Parse()
	if err != nil || len(all) != 2 || all["gvisor"].Path != "/usr/bin/runsc" || len(all["gvisor"].Flags) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
