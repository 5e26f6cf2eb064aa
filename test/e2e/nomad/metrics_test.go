package nomad

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/e2e/scraping"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EMetricsCountWhatHappenedOnNomad causes a known number of events, restarts the server, and
// compares the metrics with these numbers.
func TestE2EMetricsCountWhatHappenedOnNomad(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{})
	c := troubledCluster{n: n, servers: new(int)}
	b, stop := c.serve(t, func(*config.Config) {})
	c.put(t, b, 3)
	b.Full(t, "a", 3)
	s := scrapeWhen(t, b, "all is counted, also what the node says", func(s scraping.Scraping) bool {
		return s.Value("rockpool_runner_start_phase_duration_seconds", "phase", "POSTSTART") == 3 && s.Value("rockpool_pool_runners", "state", "IDLE") == 3
	})
	s.Want(t, map[string]float64{
		`rockpool_task_starts_total`:                                      3,
		`rockpool_task_start_failures_total`:                              0,
		`rockpool_task_restores_total`:                                    0,
		`rockpool_scheduler_placed_total`:                                 3,
		`rockpool_scheduler_evaluations`:                                  0,
		`rockpool_runners_leaked`:                                         0,
		`rockpool_cluster_problems`:                                       0,
		`rockpool_runner_start_phase_duration_seconds{phase="TURN"}`:      3,
		`rockpool_runner_start_phase_duration_seconds{phase="REGISTER"}`:  3,
		`rockpool_runner_start_phase_duration_seconds{phase="PLACE"}`:     3,
		`rockpool_runner_start_phase_duration_seconds{phase="START"}`:     3,
		`rockpool_runner_start_phase_duration_seconds{phase="SAVE"}`:      3,
		`rockpool_nomad_calls_total{call="REGISTER_JOB",result="DONE"}`:   3 + 1, // and the environment
		`rockpool_nomad_calls_total{call="WRITE_VARIABLE",result="DONE"}`: 3,
		`rockpool_nomad_calls_total{call="EVENTS",result="DONE"}`:         1,
		`rockpool_nomad_calls_total{call="STOP_JOB"}`:                     0,
		`rockpool_nomad_calls_total{result="UNANSWERED"}`:                 0,
		`rockpool_nomad_call_duration_seconds{call="REGISTER_JOB"}`:       3 + 1,
		`rockpool_nomad_lock_held`:                                        1,
		`rockpool_nomad_lock_ttl_seconds`:                                 120,
		`rockpool_nomad_lock_losses_total`:                                0,
		`rockpool_nomad_bridges`:                                          3,
		`rockpool_nomad_bridge_opens_total`:                               3,
		`rockpool_nomad_streams`:                                          0,
	})
	if share := s.Value("rockpool_scheduler_promised_ratio", "dimension", "MEMORY"); share <= 0 || share >= 1 {
		t.Errorf("of its memory %v is promised", share)
	}

	// Many runners start and end, and leave no series.
	before := s.Series()
	const many = 10
	for range many {
		b.Call(t, `mutation { run(input: {environmentId: "a", waitFor: 60, command: ["true"]}) { execution { id } } }`, nil, nil)
	}
	b.Full(t, "a", 3)
	s = scrapeWhen(t, b, "runners that were used are gone", func(s scraping.Scraping) bool {
		return s.Value("rockpool_task_kills_total") == many && s.Value("rockpool_pool_runners") == 3
	})
	if after := s.Series(); !slices.Equal(after, before) {
		t.Errorf("%d series have become %d:\n%s\n%s", len(before), len(after), before, after)
	}
	if opened := s.Value("rockpool_nomad_streams_opened_total"); opened < many {
		t.Errorf("%v streams were opened", opened)
	}

	runner := b.ClaimUnreleased(t, "a")
	c.kill(t, runner)
	scrapeWhen(t, b, "an agent that died counts", func(s scraping.Scraping) bool { return s.Value("rockpool_task_exits_total") == 1 })
	b.Full(t, "a", 3)
	wait.For(t, "Nomad has forgotten it", func() bool {
		kept, _, err := c.n.API().Variables().PrefixList(c.prefix()+"/runners/", nil)
		return err == nil && len(kept) == 3
	})

	stop()
	settings := newNomadConfig(t, n)
	settings.TokenFile, settings.Nomad.Prefix = "", c.prefix()
	b, _ = bed.ServeHere(t, settings)
	scrapeWhen(t, b, "all that ran is there again", func(s scraping.Scraping) bool { return s.Value("rockpool_task_restores_total") == 3 }).Want(t, map[string]float64{
		`rockpool_task_starts_total`:      0,
		`rockpool_task_lost_total`:        0,
		`rockpool_scheduler_placed_total`: 0,
	})
}

// kill kills a runner's agent.
func (c troubledCluster) kill(t *testing.T, runner string) {
	t.Helper()
	all, _, err := c.n.API().Allocations().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(a *api.AllocationListStub) bool { return strings.HasSuffix(a.JobID, runner) })
	if i < 0 {
		t.Fatal("it has no allocation")
	}
	if err := c.n.API().Allocations().Signal(&api.Allocation{ID: all[i].ID}, nil, "runner", "SIGKILL"); err != nil {
		t.Fatal(err)
	}
}
