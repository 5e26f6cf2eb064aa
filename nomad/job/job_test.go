package job

import (
	gocmp "cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/refusal"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample returns an environment that uses every field.
func sample() runtime.Environment {
	return runtime.Environment{
		ID: "10", Revision: 3, RunnerRevision: 2, Image: "python:3.12", PoolSize: 5,
		Resources:   runtime.Resources{CPUMHz: 500, MemoryMiB: 256, Processes: 64, WorkspaceMiB: 32},
		Network:     runtime.Network{Access: true, ExposedPorts: []int{8080, 3000}},
		Isolation:   runtime.IsolationCluster,
		Variables:   []runtime.Variable{{Name: "A", Value: "${b} 'c'"}},
		OutputLimit: runtime.DefaultOutputLimit,
	}
}

func completed(t *testing.T, c Config) Config {
	t.Helper()
	if c.Agent == (Agent{}) {
		c.Agent = Agent{URL: "https://rockpool.example.org/agent/x", SHA256: strings.Repeat("ab", 32), Arch: "amd64"}
	}
	c.Prefix, c.Driver, c.MemoryReserve = "rockpool", gocmp.Or(c.Driver, Docker), gocmp.Or(c.MemoryReserve, 1)
	c.NoNetworkMode, c.Workspace, c.Priority = "none", gocmp.Or(c.Workspace, WorkspaceTmpfs), 50
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return c
}

func baseOf(t *testing.T, c Config) *api.Job {
	t.Helper()
	base, err := c.Base(nil)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// stored returns a job as Nomad returns it after it was stored.
func stored(t *testing.T, job *api.Job, version uint64) *api.Job {
	t.Helper()
	job, err := copyJob(job)
	if err != nil {
		t.Fatal(err)
	}
	job.Version, job.JobModifyIndex, job.Stop = &version, new(uint64(7)), new(false)
	return job
}

func TestJobsMatchTheGoldenFiles(t *testing.T) {
	bare := sample()
	bare.Image, bare.Network = runtime.DefaultImage, runtime.Network{}
	raw := bare
	raw.Isolation = runtime.IsolationNone
	gvisor := sample()
	gvisor.Isolation, gvisor.Network = runtime.IsolationGVisor, runtime.Network{}
	for name, test := range map[string]struct {
		config Config
		env    runtime.Environment
	}{
		"docker":        {Config{}, sample()},
		"docker-gvisor": {Config{ForcePull: true, MemoryReserve: 0.25}, gvisor},
		"docker-cni":    {Config{NetworkMode: "cni/runners", Constraints: []string{"${attr.kernel.name} = linux", "${meta.fast} is_set"}}, sample()},
		"podman":        {Config{Driver: Podman, Agent: Agent{Path: "/usr/bin/rockpool-agent"}}, sample()},
		"exec":          {Config{Driver: Exec, User: "root", Restarts: 2, Reschedules: 1, Datacenters: []string{"a", "b"}, NodePool: "runners"}, bare},
		"raw_exec":      {Config{Driver: RawExec}, raw},
	} {
		t.Run(name, func(t *testing.T) {
			c := completed(t, test.config)
			template, err := c.RenderTemplate(baseOf(t, c), test.env, 4)
			if err != nil {
				t.Fatal(err)
			}
			runner, _, err := c.RenderRunner(stored(t, template, 4), "r1", test.env, runtime.PriorityWaiting, time.Unix(1_700_000_000, 5))
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(map[string]*api.Job{"template": template, "runner": runner}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = dropNulls(t, got)
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s isn't what it was; if it should be so: go test ./nomad -run %s -update\n%s", path, t.Name(), diff)
			}
		})
	}
}

// dropNulls removes unset fields, which are a third of the text.
func dropNulls(t *testing.T, text []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	var drop func(any) any
	drop = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				if inner = drop(inner); inner == nil {
					delete(v, k)
				} else {
					v[k] = inner
				}
			}
		case []any:
			for i := range v {
				v[i] = drop(v[i])
			}
		}
		return v
	}
	out, err := json.MarshalIndent(drop(v), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

func TestEnvironmentRoundTrip(t *testing.T) {
	for _, c := range []Config{{}, {MemoryReserve: 0.3}, {NetworkMode: "bridge"}} {
		c = completed(t, c)
		job, err := c.RenderTemplate(baseOf(t, c), sample(), 4)
		if err != nil {
			t.Fatal(err)
		}
		env, err := c.ReadEnvironment(stored(t, job, 4))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sample(), env); diff != "" {
			t.Error(diff)
		}
	}
}

func TestChangesByHandAreAdopted(t *testing.T) {
	c := completed(t, Config{NetworkMode: "bridge"})
	job, err := c.RenderTemplate(baseOf(t, c), sample(), 4)
	if err != nil {
		t.Fatal(err)
	}
	job = stored(t, job, 6) // changed twice
	task := job.TaskGroups[0].Tasks[0]
	task.Config["image"] = "python:3.13"
	task.Resources.CPU, task.Resources.MemoryMB = new(700), new(512)
	job.TaskGroups[0].Networks[0].DynamicPorts = []api.Port{{Label: "web", To: 80}}
	job.Constrain(api.NewConstraint("${meta.x}", "=", "y"))
	env, err := c.ReadEnvironment(job)
	if err != nil {
		t.Fatal(err)
	}
	want := sample()
	want.Revision, want.RunnerRevision = 5, 5
	want.Image, want.Resources.CPUMHz, want.Resources.MemoryMiB, want.Network.ExposedPorts = "python:3.13", 700, 512, []int{80}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Error(diff)
	}
	runner, _, err := c.RenderRunner(job, "r1", env, runtime.PriorityRefill, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(runner.Constraints) != 1 || runner.TaskGroups[0].Tasks[0].Config["image"] != "python:3.13" {
		t.Error("the runner isn't made from the job as it was changed")
	}
}

// byHand is a job that a person wrote.
const byHand = `{
	"ID": "rockpool-env-hand", "Type": "batch", "ParameterizedJob": {}, "Version": 2, "JobModifyIndex": 9,
	"Meta": {"rockpool_environment": "{\"poolSize\": 7}"},
	"TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "docker", "Config": {"image": "alpine:3"}, "Resources": {"CPU": 100, "MemoryMB": 64}}]}]
}`

func TestJobRegisteredByHandIsAnEnvironment(t *testing.T) {
	c := completed(t, Config{})
	read := func(change func(*api.Job)) (runtime.Environment, error) {
		job := &api.Job{}
		if err := json.Unmarshal([]byte(byHand), job); err != nil {
			t.Fatal(err)
		}
		change(job)
		return c.ReadEnvironment(job)
	}
	env, err := read(func(*api.Job) {})
	if err != nil {
		t.Fatal(err)
	}
	want := defaultEnvironment("hand")
	want.PoolSize, want.Image, want.Revision, want.RunnerRevision = 7, "alpine:3", 3, 3 // its version is the third
	want.Resources.CPUMHz, want.Resources.MemoryMiB = 100, 64
	if diff := cmp.Diff(want, env); diff != "" {
		t.Error(diff)
	}
	// Its runners have defaults for what its author left open: here no network, and a bounded workspace.
	job := &api.Job{}
	if err := json.Unmarshal([]byte(byHand), job); err != nil {
		t.Fatal(err)
	}
	job, err = c.CompleteTemplate(job, env)
	if err != nil {
		t.Fatal(err)
	}
	if config := job.TaskGroups[0].Tasks[0].Config; config["network_mode"] != "none" || config["pids_limit"] == nil || config["mount"] == nil || config["image"] != "alpine:3" {
		t.Errorf("%v", config)
	}
	job.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Unlimited: new(true)}
	_, err = c.CompleteTemplate(job, env)
	refusal.Want(t, err, runtime.CodeInvalidInput, "template", "unlimited placements:")
	for name, test := range map[string]struct {
		change func(*api.Job)
		says   string
	}{
		"no meta":                 {func(j *api.Job) { j.Meta = nil }, "JSON"},
		"another id":              {func(j *api.Job) { j.Meta[metaEnvironment] = `{"id": "x"}` }, `"rockpool-env-x"`},
		"not parameterized":       {func(j *api.Job) { j.ParameterizedJob = nil }, "parameterized"},
		"stopped":                 {func(j *api.Job) { j.Stop = new(true) }, "stopped"},
		"two groups":              {func(j *api.Job) { j.AddTaskGroup(api.NewTaskGroup("h", 1)) }, "has 2"},
		"another driver":          {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "java" }, `not "java"`},
		"another server's prefix": {func(j *api.Job) { j.Meta[metaPrefix] = "rockpool-env" }, "another server"},
		"memory out of range":     {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = new(1) }, "resources.memoryMiB"},
		"a count of two":          {func(j *api.Job) { j.TaskGroups[0].Count = new(2) }, "count"},
		"two unnamed tasks":       {func(j *api.Job) { j.TaskGroups[0].AddTask(api.NewTask("u", "docker")) }, `named "runner"`},
	} {
		if _, err := read(test.change); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want %q in it", name, err, test.says)
		}
	}
}

func TestUnsupportedSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		driver Driver
		change func(*runtime.Environment)
		field  string
	}{
		"docker without an image":   {Docker, func(e *runtime.Environment) { e.Image = runtime.DefaultImage }, "image"},
		"docker without isolation":  {Docker, func(e *runtime.Environment) { e.Isolation = runtime.IsolationNone }, "isolation"},
		"networks that narrow":      {Docker, func(e *runtime.Environment) { e.Network.Allow = []string{"192.0.2.0/24"} }, "network.allow"},
		"names that narrow":         {Docker, func(e *runtime.Environment) { e.Network.AllowNames = []string{"pypi.org"} }, "network.allowNames"},
		"a bandwidth":               {Docker, func(e *runtime.Environment) { e.Network.BandwidthMbit = 10 }, "network.bandwidthMbit"},
		"ports without access":      {Podman, func(e *runtime.Environment) { e.Network.Access = false }, "network.exposedPorts"},
		"an image with exec":        {Exec, func(*runtime.Environment) {}, "image"},
		"gVisor with exec":          {Exec, func(e *runtime.Environment) { e.Image, e.Isolation = "host", runtime.IsolationGVisor }, "isolation"},
		"raw_exec isn't namespaces": {RawExec, func(e *runtime.Environment) { e.Image, e.Isolation = "host", runtime.IsolationNamespaces }, "isolation"},
		"raw_exec has no ports":     {RawExec, func(e *runtime.Environment) { e.Image = "host" }, "network.exposedPorts"},
		"a warm interpreter": {Docker, func(e *runtime.Environment) {
			e.Warm = &runtime.Warm{Interpreter: runtime.InterpreterPython}
		}, "warm"},
		"too many variables": {Docker, func(e *runtime.Environment) {
			for _, name := range []string{"A", "B", "C"} {
				e.Variables = append(e.Variables, runtime.Variable{Name: name, Value: strings.Repeat("x", runtime.MaxValueBytes)})
			}
		}, "variables"},
	} {
		c := completed(t, Config{Driver: test.driver})
		env := sample()
		test.change(&env)
		_, err := c.RenderTemplate(baseOf(t, c), env, 0)
		refusal.Want(t, err, runtime.CodeInvalidInput, test.field, name)
	}
}
