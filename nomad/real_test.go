package nomad

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

func TestWaitingRunnersReportWhy(t *testing.T) {
	b := newBed(t)
	big := b.env
	big.ID, big.Resources.MemoryMiB = "big", 1<<20
	if err := b.PutEnvironment(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	id := runtime.NewRunnerID()
	if err := b.Start(t.Context(), id, big, runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	const want = "memory exhausted on 1 node (1 node evaluated, 0 filtered, 1 exhausted)"
	wait.For(t, "it says why the runner does not fit", func() bool { // the reason may come after the wait
		r, _ := b.find(id)
		return r.Message == want
	})
	// A waiting claim raises the job's priority, and one that stopped waiting lowers it
	// again. Nothing else changes.
	for _, priority := range []runtime.Priority{runtime.PriorityWaiting, runtime.PriorityRefill, runtime.PriorityWaiting} {
		if err := b.Start(t.Context(), id, big, priority); err != nil {
			t.Fatal(err)
		}
		stored, err := b.nomad.Job(t.Context(), b.names().Runner(id))
		if err != nil || *stored.Priority != b.config.Jobs.JobPriority(priority) {
			t.Errorf("priority %v, %v", *stored.Priority, err)
		}
		if r, _ := b.find(id); r.State != runtime.RunnerStarting {
			t.Errorf("it is %s, want %s", r.State, runtime.RunnerStarting)
		}
	}
}

func TestJobsRegisteredByHandAreEnvironments(t *testing.T) {
	b := newBed(t)
	jobs := b.n.API().Jobs()
	changed, err := b.nomad.Job(t.Context(), b.names().Environment("a"))
	if err != nil {
		t.Fatal(err)
	}
	changed.TaskGroups[0].Tasks[0].Resources.CPU = new(77)
	if _, _, err := jobs.Register(changed, nil); err != nil {
		t.Fatal(err)
	}
	byHand := func(id, meta string) *api.Job {
		other := *changed
		name := b.names().Environment(runtime.EnvironmentID(id))
		other.ID, other.Name, other.Version, other.Meta = &name, &name, nil, map[string]string{"rockpool_environment": meta}
		return &other
	}
	for id, meta := range map[string]string{"hand": `{"poolSize": 1, "isolation": "NONE"}`, "broken": `{`} {
		if _, _, err := jobs.Register(byHand(id, meta), nil); err != nil {
			t.Fatal(err)
		}
	}
	all, err := b.Environments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[runtime.EnvironmentID]runtime.Environment{}
	for _, env := range all {
		found[env.ID] = env
	}
	if a := found["a"]; a.Revision != 2 || a.RunnerRevision != 2 || a.Resources.CPUMHz != 77 {
		t.Errorf("changed by hand: %+v", a)
	}
	if hand := found["hand"]; hand.PoolSize != 1 || hand.Revision != 1 || len(found) != 2 {
		t.Errorf("registered by hand: %+v of %d", hand, len(found))
	}
	problem := func() string {
		status, err := b.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range status.Problems {
			if p.Subject == "environment broken" {
				return p.Message
			}
		}
		return ""
	}
	if text := problem(); !strings.Contains(text, "can't be read") {
		t.Errorf("the broken one is reported as %q", text)
	}
	// A runner's job that can't be read is reported, too, until it is stopped.
	stray := byHand("x", "{")
	stray.ID, stray.Name, stray.ParameterizedJob = new(b.names().Runner("stray")), new("x"), nil
	if _, _, err := jobs.Register(stray, nil); err != nil {
		t.Fatal(err)
	}
	told := func(want bool) {
		t.Helper()
		wait.For(t, fmt.Sprintf("a stray job isn't listed, and is reported: %t", want), func() bool {
			_, listed := b.find("stray")
			has := slices.ContainsFunc(b.problemsNow(), func(p runtime.Problem) bool { return p.Subject == "runner stray" })
			return has == want && !listed
		})
	}
	told(true)
	if _, _, err := jobs.Deregister(*stray.ID, true, nil); err != nil {
		t.Fatal(err)
	}
	told(false)
	// Runners are made from the job as it was changed by hand.
	b.env = found["a"]
	if got := *b.allocation(b.idle()).Job.TaskGroups[0].Tasks[0].Resources.CPU; got != 77 {
		t.Errorf("a runner has %d MHz, want 77", got)
	}
	// Putting the environment again repairs it.
	again := b.env
	again.ID, again.Revision, again.RunnerRevision = "broken", 1, 1
	if err := b.PutEnvironment(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if text := problem(); text != "" {
		t.Errorf("it is still told: got %q, want \"\"", text)
	}
}

// Events alone report changes by other programs: the interval is long.
func TestChangesByOthersCauseHints(t *testing.T) {
	n := raw.Nomad(t)
	far := config(t, n, job.RawExec)
	far.Relist = 10 * time.Minute
	b := bedOn(t, n, far)
	ctx, stop := context.WithCancel(t.Context())
	hints, watched := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		watched <- b.WatchEnvironments(ctx, func() {
			select {
			case hints <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { stop(); <-watched }()
	follow := func(what string, is func(int) bool) {
		t.Helper()
		for {
			wait.Receive(t, hints, "a hint until "+what)
			all, err := b.Environments(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(all) > 0 && is(all[0].Resources.CPUMHz) || len(all) == 0 && is(0) {
				return
			}
		}
	}
	follow("it is there", func(mhz int) bool { return mhz == b.env.Resources.CPUMHz })
	changed, err := b.nomad.Job(t.Context(), b.names().Environment("a"))
	if err != nil {
		t.Fatal(err)
	}
	changed.TaskGroups[0].Tasks[0].Resources.CPU = new(77)
	if _, _, err := n.API().Jobs().Register(changed, nil); err != nil {
		t.Fatal(err)
	}
	follow("it is changed", func(mhz int) bool { return mhz == 77 })
	if _, _, err := n.API().Jobs().Deregister(*changed.ID, true, nil); err != nil {
		t.Fatal(err)
	}
	follow("it is purged", func(mhz int) bool { return mhz == 0 })
}

func TestRunnersOfADrainedNodeAreReplaced(t *testing.T) {
	t.Parallel()
	n := nomadtest.Start(t, nomadtest.Options{})
	b := bedOn(t, n, config(t, n, job.RawExec))
	idle, claimed := b.idle(), b.claimed()
	node := b.allocation(idle).NodeID
	nodes := n.API().Nodes()
	if _, err := nodes.UpdateDrain(node, &api.DrainSpec{Deadline: time.Hour}, false, nil); err != nil {
		t.Fatal(err)
	}
	if r := b.awaitGone(idle); r.GoneReason != runtime.GoneDrained {
		t.Errorf("the idle one: %s, %s", r.GoneReason, r.Message)
	}
	if r, _ := b.find(claimed); r.State != runtime.RunnerClaimed {
		t.Errorf("the claimed one is %s before the drain's end, want %s", r.State, runtime.RunnerClaimed)
	}
	if got := b.run(claimed, "echo", "hi"); got != "hi\n" {
		t.Errorf("it prints %q", got)
	}
	if _, err := nodes.UpdateDrain(node, &api.DrainSpec{Deadline: -1}, false, nil); err != nil { // immediately
		t.Fatal(err)
	}
	if r := b.awaitGone(claimed); r.GoneReason != runtime.GoneDrained {
		t.Errorf("the claimed one: %s, %s", r.GoneReason, r.Message)
	}
	for _, id := range []runtime.RunnerID{idle, claimed} {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	waiting := runtime.NewRunnerID()
	if err := b.Start(t.Context(), waiting, b.env, runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.UpdateDrain(node, nil, true, nil); err != nil {
		t.Fatal(err)
	}
	b.await(waiting, runtime.RunnerIdle)
}

// With several nodes, each has runners. No runner starts on a drained node, and its runners are
// replaced on another.
func TestRunnersOfADrainedNodeMoveToAnother(t *testing.T) {
	t.Parallel()
	n := nomadtest.Start(t, nomadtest.Options{})
	if err := n.AddClient(t.Context()); err != nil {
		t.Fatal(err)
	}
	// As docs/guides/nomad.md says: a job's own spread counts that job's allocations, and a runner is a job.
	spread := &api.SchedulerConfiguration{SchedulerAlgorithm: api.SchedulerAlgorithmSpread}
	if _, _, err := n.API().Operator().SchedulerSetConfiguration(spread, nil); err != nil {
		t.Fatal(err)
	}
	b := bedOn(t, n, config(t, n, job.RawExec))
	on := map[string][]runtime.RunnerID{}
	for range 6 {
		id := b.idle()
		node := b.allocation(id).NodeID
		on[node] = append(on[node], id)
	}
	if len(on) != 2 {
		t.Fatalf("all runners are on one node: %v", on)
	}
	all := slices.Collect(maps.Keys(on))
	drained, other := all[0], all[1]
	claimed := on[drained][0]
	b.mark(claimed, 1)
	nodes := n.API().Nodes()
	if _, err := nodes.UpdateDrain(drained, &api.DrainSpec{Deadline: time.Hour}, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, id := range on[drained][1:] {
		if r := b.awaitGone(id); r.GoneReason != runtime.GoneDrained {
			t.Errorf("an idle one there: %s, %s", r.GoneReason, r.Message)
		}
	}
	for range 3 {
		if got := b.allocation(b.idle()).NodeID; got != other {
			t.Errorf("a new one is on %s, which is drained, want %s", got, other)
		}
	}
	if got := b.run(claimed, "echo", "hi"); got != "hi\n" {
		t.Errorf("the claimed one there prints %q", got)
	}
	for _, id := range on[other] {
		if r, _ := b.find(id); r.State != runtime.RunnerIdle {
			t.Errorf("one on the other node is %s: %s", r.State, r.Message)
		}
	}
	if _, err := nodes.UpdateDrain(drained, &api.DrainSpec{Deadline: -1}, false, nil); err != nil { // immediately
		t.Fatal(err)
	}
	if r := b.awaitGone(claimed); r.GoneReason != runtime.GoneDrained {
		t.Errorf("the claimed one: %s, %s", r.GoneReason, r.Message)
	}
	events, err := b.TaskEvents(t.Context(), claimed)
	if err != nil || len(events) == 0 || !slices.ContainsFunc(events, func(e runtime.TaskEvent) bool {
		return e.Message() == "It is gone: its node is being drained."
	}) {
		t.Errorf("%+v, %v", events, err)
	}
}

func TestRunnersOutliveNomad(t *testing.T) {
	t.Parallel()
	n := nomadtest.Start(t, nomadtest.Options{})
	settings := config(t, n, job.RawExec)
	settings.Connection.Patience, settings.LockTTL = 2*time.Second, time.Hour // it takes what it takes until Nomad is back
	b := bedOn(t, n, settings)
	idle, claimed := b.idle(), b.claimed()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	var err error
	wait.For(t, "the list fails", func() bool { // one may be half a second old
		_, err = b.Runners(t.Context(), "")
		return err != nil
	})
	refusal.Want(t, err, runtime.CodeClusterUnavailable, "", "without Nomad:")
	refusal.Want(t, b.Mark(t.Context(), claimed, runtime.Claim{Epoch: 2}), runtime.CodeClusterUnavailable, "", "a mark without Nomad:")
	status, err := b.Status(t.Context())
	if err != nil || len(status.Problems) == 0 || status.Problems[0].Subject != "nomad" {
		t.Errorf("status: %+v, %v", status, err)
	}
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the list is there again", func() bool {
		_, err := b.Runners(t.Context(), "")
		return err == nil
	})
	if i, c := b.await(idle, runtime.RunnerIdle), b.await(claimed, runtime.RunnerClaimed); i.Claim.Held() || c.Claim.Epoch != 1 {
		t.Errorf("%+v, %+v", i, c)
	}
	for _, id := range []runtime.RunnerID{idle, claimed} {
		if got := b.run(id, "echo", "hi"); got != "hi\n" {
			t.Errorf("it prints %q", got)
		}
	}
	for _, p := range b.problemsNow() {
		if p.Subject == "nomad" {
			t.Errorf("still told: %+v", p)
		}
	}
}

func (b bed) problemsNow() []runtime.Problem {
	return b.problems.All()
}

// A configured template that Nomad itself parses and validates.
const hclTemplate = `
job "any" {
  type = "batch"
  group "g" {
    task "main" {
      driver = "raw_exec"
      env { FROM = "template" }
    }
  }
}`

func TestTemplateInHCL(t *testing.T) {
	n := raw.Nomad(t)
	own := config(t, n, job.RawExec)
	own.Jobs.Template = []byte(hclTemplate)
	b := bedOn(t, n, own)
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
	id := b.idle()
	if got := b.allocation(id).Job.TaskGroups[0].Tasks[0].Env["FROM"]; got != "template" {
		t.Errorf("the runner isn't made from it: got %q, want \"template\"", got)
	}
	own.Jobs.Template = []byte(strings.Replace(hclTemplate, "env {", "envv {", 1))
	c, err := New(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	refusal.Want(t, c.Check(t.Context()), runtime.CodeInvalidInput, "template", "a broken template:")
}

// No node has podman, but Nomad's validation accepts its job.
func TestNomadAcceptsTheJobsOfEachDriver(t *testing.T) {
	n := raw.Nomad(t)
	for driver, image := range map[job.Driver]string{job.Docker: "a:1", job.Podman: "a:1", job.Exec: "host", job.RawExec: "host"} {
		c := defaults(Config{Jobs: job.Config{Driver: driver, NetworkMode: "bridge", Agent: agents.agent(t)}}).Jobs
		base, err := c.Base(nil)
		if err != nil {
			t.Fatal(err)
		}
		env := rawEnvironment()
		env.ID, env.Image, env.Isolation, env.Network.Access = "x", image, runtime.IsolationCluster, true
		template, err := c.RenderTemplate(base, env, 0)
		if err != nil {
			t.Fatal(err)
		}
		template.Namespace = new(n.Namespace())
		runner, _, err := c.RenderRunner(template, "r1", env, runtime.PriorityRefill, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range []*api.Job{template, runner} {
			answer, _, err := n.API().Jobs().Validate(j, nil)
			if err != nil || answer.Error != "" || len(answer.ValidationErrors) > 0 || answer.Warnings != "" {
				text, _ := json.Marshal(j)
				t.Errorf("%s: %v, %+v\n%s", driver, err, answer, text)
			}
		}
	}
}

func TestCheckReportsWhatIsMissing(t *testing.T) {
	n := raw.Nomad(t)
	good := config(t, n, job.RawExec)
	const secret = "6d0ad3b5-0000-4000-8000-a5a5a5a5a5a5"
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"nothing":    {func(*Config) {}, ""},
		"the driver": {func(c *Config) { c.Jobs.Driver = job.Docker }, "docker"},
		"a token":    {func(c *Config) { c.Connection.Token = secret }, "Nomad refuses it"},
		"the address": {func(c *Config) {
			c.Connection.Address, c.Connection.Patience = "https://127.0.0.1:1", 100*time.Millisecond
		}, "Nomad doesn't answer"},
		"certificates": {func(c *Config) {
			c.Connection.ClientCert, c.Connection.ClientKey, c.Connection.Patience = "", "", 100*time.Millisecond
		}, "Nomad doesn't answer"},
	} {
		c := good
		test.change(&c)
		cluster, err := New(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		err = cluster.Check(t.Context())
		cluster.Close()
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the token is in the error: %v", name, err)
		}
	}
}

// The policy allows the signal that makes Nomad's client update a task, and the signal has no
// effect on the runner.
func TestHealingSignalIsHarmless(t *testing.T) {
	b := newBed(t)
	id := b.idle()
	err := b.nomad.API().Allocations().Signal(&api.Allocation{ID: b.allocation(id).ID}, nil, job.TaskName, "SIGCONT")
	if err != nil {
		t.Fatal(err)
	}
	if out := b.run(id, "echo", "hi"); out != "hi\n" {
		t.Errorf("it says %q", out)
	}
	if r, _ := b.find(id); r.State != runtime.RunnerIdle {
		t.Errorf("it is %s: %s", r.State, r.Message)
	}
}
