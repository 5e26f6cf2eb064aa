package nomad

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/e2e/scraping"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EAlertsFireOnNomad makes each of the example alerts of a Nomad fire.
func TestE2EAlertsFireOnNomad(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{})
	c := troubledCluster{n: n, servers: new(int)}
	scraping.Stage{Serve: c.serve, Environment: onRawExec}.Fire(t, scraping.Nomad, map[string]scraping.Story{
		"RockpoolStartsFail":      c.withoutAnAgent,
		"RockpoolLeaks":           c.withAStrayJob,
		"RockpoolClusterProblems": c.withoutNomad,
		"RockpoolNomadFails":      c.withoutNomad,
		"RockpoolLockLate":        c.withALateLock,
		"RockpoolBridgesShort":    c.withOneBridge,
	})
	t.Run("Standby", c.standby)
}

// standby makes a second server wait. That is a problem in health, but no alert.
func (c troubledCluster) standby(t *testing.T) {
	owner, _ := c.serve(t, func(*config.Config) {})
	c.put(t, owner, 0)
	owning := c.prefix()
	b, _ := c.serve(t, func(s *config.Config) { s.Nomad.Prefix, s.Listen = owning, "127.0.0.1:0" })
	s := scrapeWhen(t, b, "it waits", func(s scraping.Scraping) bool { return s.Value("rockpool_cluster_problems") > 1 })
	s.Want(t, map[string]float64{"rockpool_nomad_lock_held": 0})
	if s["rockpool_nomad_lock_age_seconds"] != nil {
		t.Error("a lock that isn't held has an age")
	}
	scraping.WantQuiet(t, s, scraping.Scrape(t, b))
}

// A troubledCluster is a Nomad with faults.
type troubledCluster struct {
	n       *nomadtest.Nomad
	servers *int // number of servers started
}

// serve starts a server with its own prefix. After the server's end it removes what that left in
// Nomad.
func (c troubledCluster) serve(t *testing.T, change func(*config.Config)) (bed.Bed, func()) {
	t.Helper()
	settings := newNomadConfig(t, c.n)
	*c.servers++
	settings.TokenFile, settings.Nomad.Prefix = "", c.prefix()
	change(&settings)
	t.Cleanup(func() { c.clean(t) })
	return bed.ServeHere(t, settings)
}

func (c troubledCluster) prefix() string { return fmt.Sprintf("rockpool-%d", *c.servers) }

func (c troubledCluster) clean(t *testing.T) {
	jobs, _, err := c.n.API().Jobs().PrefixList(c.prefix())
	if err != nil {
		t.Error(err)
	}
	for _, job := range jobs {
		if _, _, err := c.n.API().Jobs().Deregister(job.ID, true, nil); err != nil {
			t.Error(err)
		}
	}
	wait.For(t, "nothing runs that could take room", func() bool {
		all, _, err := c.n.API().Allocations().List(nil)
		for _, a := range all {
			if a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning {
				return false
			}
		}
		return err == nil
	})
}

// scrapeWhen waits until a scrape meets a condition, and returns it.
func scrapeWhen(t *testing.T, b bed.Bed, what string, so func(scraping.Scraping) bool) (now scraping.Scraping) {
	t.Helper()
	wait.For(t, what, func() bool {
		now = scraping.Scrape(t, b)
		return so(now)
	})
	return now
}

func (c troubledCluster) put(t *testing.T, b bed.Bed, size int) {
	t.Helper()
	input := object{"id": "a", "poolSize": size}
	for key, value := range onRawExec {
		input[key] = value
	}
	b.Change(t, input)
}

// withoutAnAgent has nodes without the agent at the path in the settings.
func (c troubledCluster) withoutAnAgent(t *testing.T) (before, after scraping.Scraping) {
	b, _ := c.serve(t, func(s *config.Config) { s.Nomad.AgentPath = "/nowhere/agent" })
	before = scraping.Scrape(t, b)
	c.put(t, b, 1)
	return before, scrapeWhen(t, b, "starts fail", func(s scraping.Scraping) bool { return s.Value("rockpool_task_start_failures_total") > 0 })
}

// withAStrayJob registers a job by hand that looks like a runner's but is unreadable.
func (c troubledCluster) withAStrayJob(t *testing.T) (before, after scraping.Scraping) {
	b, _ := c.serve(t, func(*config.Config) {})
	c.put(t, b, 1)
	b.Full(t, "a", 1)
	before = scraping.Scrape(t, b)
	task := api.NewTask("runner", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"1000"})
	job := api.NewBatchJob(c.prefix()+"-runner-stray", "stray", "global", 50).AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
	if _, _, err := c.n.API().Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	after = scrapeWhen(t, b, "it leaks", func(s scraping.Scraping) bool { return s.Value("rockpool_runners_leaked") == 1 })
	if leaks := after.Value("rockpool_task_leaks_total"); leaks != 1 {
		t.Errorf("%v leaks, want 1", leaks)
	}
	return before, after
}

// withoutNomad kills Nomad's server.
func (c troubledCluster) withoutNomad(t *testing.T) (before, after scraping.Scraping) {
	b, _ := c.serve(t, func(*config.Config) {})
	c.put(t, b, 0)
	before = scraping.Scrape(t, b)
	if err := c.n.KillServer(); err != nil {
		t.Fatal(err)
	}
	defer c.restart(t)
	return before, scrapeWhen(t, b, "calls fail, and health says so", func(s scraping.Scraping) bool {
		return s.Value("rockpool_nomad_calls_total", "result", "UNANSWERED") > 5 && s.Value("rockpool_cluster_problems") > 0 && s.Value("rockpool_nomad_call_retries_total") > 0
	})
}

func (c troubledCluster) restart(t *testing.T) {
	if err := c.n.RestartServer(t.Context()); err != nil {
		t.Error(err)
	}
}

// withALateLock kills Nomad's server until half of the lock's time is over. The test's server ends
// before the other half is.
func (c troubledCluster) withALateLock(t *testing.T) (before, after scraping.Scraping) {
	b, stop := c.serve(t, func(s *config.Config) { s.Nomad.LockTTL = 30 })
	c.put(t, b, 0)
	before = scraping.Scrape(t, b)
	if err := c.n.KillServer(); err != nil {
		t.Fatal(err)
	}
	defer c.restart(t)
	after = scrapeWhen(t, b, "half of the lock's time is over", func(s scraping.Scraping) bool {
		return s.Value("rockpool_nomad_lock_age_seconds") > s.Value("rockpool_nomad_lock_ttl_seconds")/2
	})
	stop()
	return before, after
}

// withOneBridge uses a runner that takes the only connection.
func (c troubledCluster) withOneBridge(t *testing.T) (before, after scraping.Scraping) {
	b, _ := c.serve(t, func(s *config.Config) { s.Nomad.Bridges = 1 })
	c.put(t, b, 0)
	runner := b.ClaimUnreleased(t, "a")
	before = scraping.Scrape(t, b)
	endless := b.Start(t, object{"runnerId": runner, "shell": "sleep 1000"})
	scrapeWhen(t, b, "it has a stream", func(s scraping.Scraping) bool { return s.Value("rockpool_nomad_streams") > 0 })
	c.put(t, b, 1)
	after = scrapeWhen(t, b, "another runner waits", func(s scraping.Scraping) bool { return s.Value("rockpool_nomad_bridges_waiting") > 0 })
	after.Want(t, map[string]float64{"rockpool_nomad_bridges": 1, "rockpool_nomad_bridges_limit": 1, "rockpool_nomad_bridges_waiting": 1})
	b.Call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": endless}, nil)
	return before, after
}
