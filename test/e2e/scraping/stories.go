package scraping

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

type object = map[string]any

// A Story brings a server into the state of an alert. It returns a scrape from before and one from
// after.
type Story func(t *testing.T) (before, after Scraping)

// A Stage starts the servers of stories on one of the clusters.
type Stage struct {
	// Serve starts a server with changed settings and without environments. The server ends with stop,
	// or with the test.
	Serve func(t *testing.T, change func(*config.Config)) (b bed.Bed, stop func())
	// Environment has the fields that environments need there.
	Environment object
}

// put puts an environment.
func (s Stage) put(t *testing.T, b bed.Bed, id string, input object) {
	t.Helper()
	all := object{"id": id, "poolSize": 0}
	for _, more := range []object{s.Environment, input} {
		for key, value := range more {
			all[key] = value
		}
	}
	b.Change(t, all)
}

// Fire plays a story for each example alert of a cluster, and requires that the alert fires. Some
// stories are the cluster's own.
func (s Stage) Fire(t *testing.T, of Cluster, own map[string]Story) {
	stories := s.stories()
	for alert, story := range own {
		stories[alert] = story
	}
	alerts := Alerts(t, of)
	for alert := range stories {
		if !slices.Contains(alerts, alert) {
			t.Errorf("the example has no alert %s", alert)
		}
	}
	t.Run("none", func(t *testing.T) {
		before, after := s.well(t)
		WantQuiet(t, before, after)
		after.WantDocumented(t, of)
	})
	for _, alert := range alerts {
		t.Run(strings.TrimPrefix(alert, "Rockpool"), func(t *testing.T) {
			story := stories[alert]
			if story == nil {
				t.Fatal("no story makes it fire")
			}
			before, after := story(t)
			WantSilent(t, alert, before, before)
			WantFiring(t, alert, before, after)
		})
	}
}

// stories are those that both clusters share.
func (s Stage) stories() map[string]Story {
	return map[string]Story{
		"RockpoolDown":              s.down,
		"RockpoolPoolDepleted":      s.full,
		"RockpoolFull":              s.full,
		"RockpoolClaimsSlow":        s.slow,
		"RockpoolNoRunnerAvailable": s.noRunner,
		"RockpoolExecutionsFail":    s.refused,
		"RockpoolOutputLost":        s.loud,
	}
}

// well returns scrapes of a healthy, working server.
func (s Stage) well(t *testing.T) (before, after Scraping) {
	b, _ := s.Serve(t, func(*config.Config) {})
	s.put(t, b, "well", object{"poolSize": 1})
	work := func() Scraping {
		b.Full(t, "well", 1)
		runner := b.ClaimUnreleased(t, "well")
		if x := b.Shell(t, runner, "echo well"); x.Outcome != "EXITED" {
			t.Errorf("%+v", x)
		}
		b.Release(t, runner)
		b.Full(t, "well", 1)
		var now Scraping
		wait.For(t, "the pool says so, and doesn't alert", func() bool {
			now = Scrape(t, b)
			return now.Value("rockpool_pool_runners", "state", "IDLE") == 1 && now.Value("rockpool_pool_alert") == 0 && now.Value("rockpool_pool_runners") == 1
		})
		return now
	}
	before = work()
	wait.For(t, "a claim is as fast as one of an idle runner is", func() bool {
		if after = work(); slowClaims(after) == slowClaims(before) {
			return true
		}
		before = after // the machine was busy, so that an alert would be right
		return false
	})
	return before, after
}

// slowClaims counts claims that took more than a second.
func slowClaims(s Scraping) (slow uint64) {
	for _, m := range s["rockpool_claim_duration_seconds"].GetMetric() {
		h := m.GetHistogram()
		slow += h.GetSampleCount()
		for _, b := range h.GetBucket() {
			if b.GetUpperBound() == 1 {
				slow -= b.GetCumulativeCount()
			}
		}
	}
	return slow
}

func (s Stage) down(t *testing.T) (before, after Scraping) {
	b, stop := s.Serve(t, func(*config.Config) {})
	before = Scrape(t, b)
	stop()
	return before, ScrapeDown(t, b)
}

// filled returns a server whose only runner takes all capacity.
func (s Stage) filled(t *testing.T) (b bed.Bed, held string, before Scraping) {
	const share = 0.1 // of the machine is the server's capacity
	b, _ = s.Serve(t, func(c *config.Config) { c.MemoryOvercommit = share })
	var now bed.Scheduled
	b.Call(t, `{ cluster { kind capacity { memoryMiB memoryMiBUsed } } }`, nil, &now)
	memory := int(float64(now.Cluster.Capacity.MemoryMiB) * 0.6)
	if s.Environment["isolation"] == nil {
		memory = int(float64(memory) * share)
	}
	big := object{"resources": object{"memoryMiB": memory, "cpuMHz": 50}}
	s.put(t, b, "held", big)
	held = b.ClaimUnreleased(t, "held")
	before = Scrape(t, b)
	big["poolSize"] = 1
	s.put(t, b, "short", big)
	return b, held, before
}

func (s Stage) full(t *testing.T) (before, after Scraping) {
	b, _, before := s.filled(t)
	wait.For(t, "the pool raises an alert, and its runner is blocked by memory", func() bool {
		after = Scrape(t, b)
		return after.Value("rockpool_pool_alert", "environment", "short") == 1 && after.Value("rockpool_scheduler_blocked_evaluations", "dimension", "MEMORY") == 1
	})
	return before, after
}

// slow makes a claim wait for more than a second.
func (s Stage) slow(t *testing.T) (before, after Scraping) {
	b, held, before := s.filled(t)
	claimed := make(chan error)
	go func() {
		_, err := client.Claim(t.Context(), b, client.ClaimRunnerInput{EnvironmentId: "short", WaitFor: new(int(wait.Limit.Seconds()))})
		claimed <- err
	}()
	wait.For(t, "the claim waits", func() bool { return Scrape(t, b).Value("rockpool_pool_waiting_claims") == 1 })
	began := time.Now()
	wait.For(t, "it is slow", func() bool { return time.Since(began) > 1500*time.Millisecond })
	b.Release(t, held)
	if err := <-claimed; err != nil {
		t.Fatal(err)
	}
	return before, Scrape(t, b)
}

func (s Stage) noRunner(t *testing.T) (before, after Scraping) {
	b, _ := s.Serve(t, func(*config.Config) {})
	s.put(t, b, "none", object{})
	before = Scrape(t, b)
	b.Refused(t, `mutation { claimRunner(input: {environmentId: "none"}) { runner { id } } }`, nil, runtime.CodeNoRunnerAvailable, "")
	return before, Scrape(t, b)
}

// refused starts a command that can't start.
func (s Stage) refused(t *testing.T) (before, after Scraping) {
	b, _ := s.Serve(t, func(*config.Config) {})
	s.put(t, b, "refused", object{})
	runner := b.ClaimUnreleased(t, "refused")
	before = Scrape(t, b)
	if x := b.Run(t, object{"runnerId": runner, "command": []string{"true"}, "workingDirectory": "/nowhere"}); x.Outcome != "FAILED" {
		t.Errorf("%+v", x)
	}
	return before, Scrape(t, b)
}

// loud prints more than the server may keep.
func (s Stage) loud(t *testing.T) (before, after Scraping) {
	b, _ := s.Serve(t, func(c *config.Config) { c.KeepBytes = 16 << 20 })
	s.put(t, b, "loud", object{"outputLimit": 32 << 20})
	runner := b.ClaimUnreleased(t, "loud")
	before = Scrape(t, b)
	b.Shell(t, runner, "head -c 20000000 /dev/zero")
	return before, Scrape(t, b)
}
