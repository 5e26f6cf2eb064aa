// Package job renders environments and runners as Nomad jobs, and parses jobs. It has no side
// effects and doesn't call Nomad.
package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/runtime"
)

// TaskName is the name of the task whose command is the agent. A template's only task may have another.
const TaskName = "runner"

// agentDir begins the name of the directory, in the task's directory, of an agent that is fetched
// or streamed. The runner's id follows. With a fixed name, a volume of the image could cover the
// directory, and its program would run as the agent.
const agentDir = "rockpool"

func (c Config) builtIn() (*api.Job, error) {
	task := api.NewTask(TaskName, string(c.Driver))
	task.Config = map[string]any{}
	group := api.NewTaskGroup(TaskName, 1).AddTask(task)
	job := api.NewBatchJob("", "", "", c.Priority)
	job.Region = nil // the region of Nomad's client
	job.Datacenters = c.Datacenters
	if len(job.Datacenters) == 0 {
		job.Datacenters = []string{"*"}
	}
	job.AddTaskGroup(group)
	if c.NodePool != "" {
		job.NodePool = &c.NodePool
	}
	for i, text := range c.Constraints {
		constraint, err := parseConstraint(text)
		if err != nil {
			return nil, runtime.Invalid(fmt.Sprintf("constraints.%d", i), "%v", err)
		}
		job.Constrain(constraint)
	}
	return job, nil
}

// parseConstraint parses "attribute operator value". Operators such as is_set have no value.
func parseConstraint(text string) (*api.Constraint, error) {
	fields := strings.Fields(text)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "${") {
		return nil, fmt.Errorf(`must be like "${attr.kernel.name} = linux", not %q`, text)
	}
	return api.NewConstraint(fields[0], fields[1], strings.Join(fields[2:], " ")), nil
}

// render returns base with the settings of env and what every runner has: no collected logs, a
// small disk, an agent, and bounded restarts. It doesn't modify base.
func (c Config) render(base *api.Job, env runtime.Environment) (*api.Job, error) {
	job, err := copyJob(base)
	if err != nil {
		return nil, err
	}
	group, task, err := runnerTask(job)
	if err != nil {
		return nil, err
	}
	if task.Config == nil {
		task.Config = map[string]any{}
	}
	if image, ok := task.Config["image"].(string); ok && env.Image == runtime.DefaultImage {
		env.Image = image // of a configured template
	}
	d := drivers[Driver(task.Driver)]
	if env.Runtime != "" {
		return nil, runtime.Invalid("runtime", "must be empty on Nomad: there the driver's configuration chooses the container runtime")
	}
	if env.Warm != nil {
		return nil, runtime.Invalid("warm", "must be empty on Nomad, whose runners can't preload an interpreter")
	}
	if err := d.supports(env); err != nil {
		return nil, err
	}
	if err := rejectNarrowing(env.Network); err != nil {
		return nil, err
	}
	task.Resources = c.resources(task.Resources, env.Resources)
	c.setLimits(group, task)
	// A network in the template takes precedence over the settings.
	if len(group.Networks) == 0 {
		group.Networks = c.network(env, Driver(task.Driver))
	}
	if group.EphemeralDisk == nil {
		group.EphemeralDisk = &api.EphemeralDisk{SizeMB: new(smallDisk)}
		if Driver(task.Driver) == RawExec { // with other drivers the workspace is in memory
			*group.EphemeralDisk.SizeMB += env.Resources.WorkspaceMiB
		}
	}
	if task.User == "" {
		task.User = c.User
		task.User = cmp.Or(task.User, d.user)
	}
	if d.configure != nil { // the agent itself applies the settings that its command names
		d.configure(c, env, task.Config)
	}
	return job, nil
}

// smallDisk is enough for the agent, in MiB. Nomad's minimum is 10.
const smallDisk = 20

// setLimits sets fields that a template leaves open and whose defaults cost resources or never end.
func (c Config) setLimits(group *api.TaskGroup, task *api.Task) {
	if task.LogConfig == nil {
		// The logs aren't used, and each collector takes 13 MB. Nomad counts their maximum sizes as
		// disk all the same.
		task.LogConfig = &api.LogConfig{Disabled: new(true), MaxFiles: new(1), MaxFileSizeMB: new(1)}
	}
	if task.KillTimeout == nil {
		task.KillTimeout = new(2 * time.Second)
	}
	if group.RestartPolicy == nil {
		group.RestartPolicy = &api.RestartPolicy{
			Attempts: &c.Restarts, Interval: new(10 * time.Minute), Delay: new(time.Second), Mode: new(api.RestartPolicyModeFail),
		}
	}
	if group.ReschedulePolicy == nil {
		group.ReschedulePolicy = &api.ReschedulePolicy{
			Attempts: &c.Reschedules, Interval: new(time.Hour), Delay: new(5 * time.Second),
			DelayFunction: new("constant"), Unlimited: new(false),
		}
	}
}

func (c Config) resources(have *api.Resources, env runtime.Resources) *api.Resources {
	r := &api.Resources{}
	if have != nil {
		*r = *have
	}
	if r.Cores == nil {
		r.CPU = &env.CPUMHz
	}
	r.MemoryMB = new(max(int(float64(env.MemoryMiB)*c.MemoryReserve), 10)) // Nomad's minimum
	r.MemoryMaxMB = nil
	if *r.MemoryMB < env.MemoryMiB {
		r.MemoryMaxMB = &env.MemoryMiB
	}
	return r
}

// network returns the group's network, unless the driver provides or disables it.
func (c Config) network(env runtime.Environment, driver Driver) []*api.NetworkResource {
	n := &api.NetworkResource{Mode: c.NetworkMode}
	for _, port := range env.Network.ExposedPorts {
		n.DynamicPorts = append(n.DynamicPorts, api.Port{Label: portLabel(port), To: port})
	}
	switch {
	case driver == RawExec:
		return nil // the task uses the machine's network
	case !env.Network.Access && driver == Exec && c.NoNetworkMode != "host":
		return []*api.NetworkResource{{Mode: c.NoNetworkMode}}
	case !env.Network.Access:
		return nil
	case n.Mode == "" && len(n.DynamicPorts) == 0:
		return nil
	}
	return []*api.NetworkResource{n}
}

func portLabel(port int) string { return "p" + strconv.Itoa(port) }

// addAgent gives a task the server's current agent, since a template may be older than the server.
func (c Config) addAgent(job *api.Job, env runtime.Environment, dir string) error {
	_, task, err := runnerTask(job)
	if err != nil {
		return err
	}
	if task.Config == nil {
		task.Config = map[string]any{}
	}
	if c.Agent.Path == "" {
		// A template has the artifact of the server that stored it. It is replaced, so that
		// the task doesn't get two agents.
		own := func(a *api.TaskArtifact) bool {
			return a.RelativeDest != nil && strings.HasPrefix(*a.RelativeDest, "local/"+agentDir)
		}
		task.Artifacts = slices.DeleteFunc(task.Artifacts, own)
		if !c.Agent.Stream {
			task.Artifacts = append(task.Artifacts, &api.TaskArtifact{
				GetterSource:  &c.Agent.URL,
				GetterOptions: map[string]string{"checksum": "sha256:" + c.Agent.SHA256, "archive": "tar"},
				GetterMode:    new("dir"),
				RelativeDest:  new("local/" + dir),
			})
		}
		if c.Agent.Arch != "" {
			// A node of another architecture couldn't execute the agent. A constraint of the
			// template's own is kept.
			const arch = "${attr.cpu.arch}"
			if !slices.ContainsFunc(task.Constraints, func(c *api.Constraint) bool { return c.LTarget == arch }) {
				task.Constrain(api.NewConstraint(arch, "=", c.Agent.Arch))
			}
		}
	}
	drivers[Driver(task.Driver)].command(c.agentPath("${NOMAD_TASK_DIR}", dir), c.Agent.Stream, env, task)
	return nil
}

// agentPath returns the path of the agent in a task with the given directory. It has no variables:
// alloc exec doesn't resolve them, unlike a task's command.
func (c Config) agentPath(local, dir string) string {
	return cmp.Or(c.Agent.Path, local+"/"+dir+"/"+embedded.ArchivedName)
}

func runnerTask(job *api.Job) (*api.TaskGroup, *api.Task, error) {
	if len(job.TaskGroups) != 1 {
		return nil, nil, fmt.Errorf("the job must have one group, but it has %d", len(job.TaskGroups))
	}
	group := job.TaskGroups[0]
	var found *api.Task
	for _, task := range group.Tasks {
		if task.Name == TaskName || len(group.Tasks) == 1 {
			found = task
		}
	}
	switch {
	case found == nil:
		return nil, nil, fmt.Errorf("the job must have one task, or one that is named %q", TaskName)
	case group.Count != nil && *group.Count != 1:
		return nil, nil, fmt.Errorf("the group's count must be 1, not %d", *group.Count)
	}
	if _, known := drivers[Driver(found.Driver)]; !known {
		return nil, nil, fmt.Errorf("the task's driver must be docker, podman, exec or raw_exec, not %q", found.Driver)
	}
	return group, found, nil
}

// Base returns the job that templates are made from: the configured one or, without one, the
// built-in one. Parse lets Nomad parse HCL. INVALID_INPUT says what is wrong with a configured job.
func (c Config) Base(parse func(hcl string) (*api.Job, error)) (*api.Job, error) {
	if len(c.Template) == 0 {
		return c.builtIn()
	}
	job, err := readTemplate(c.Template, parse)
	if err != nil {
		return nil, runtime.Invalid("template", "must be a job in HCL or JSON: %v", err)
	}
	if job.Type != nil && *job.Type != api.JobTypeBatch {
		return nil, runtime.Invalid("template", "must be a batch job, not of type %q: Nomad would start a service's task again when it ends, without its files", *job.Type)
	}
	if job.ParameterizedJob != nil || job.Periodic != nil {
		return nil, runtime.Invalid("template", "must be neither parameterized nor periodic: each runner is a job of its own")
	}
	group, task, err := runnerTask(job)
	if err != nil {
		return nil, runtime.Invalid("template", "can't be used: %v", err)
	}
	if err := rejectUnlimited(group, task); err != nil {
		return nil, err
	}
	group.Count = cmp.Or(group.Count, new(1))
	job.Type = cmp.Or(job.Type, new(api.JobTypeBatch))
	clearServerFields(job)
	return job, nil
}

// readTemplate parses a job: JSON as printed by "nomad job run -output" or as in the API, or HCL.
func readTemplate(text []byte, parse func(hcl string) (*api.Job, error)) (*api.Job, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return parse(string(text))
	}
	var wrapped struct{ Job json.RawMessage }
	if err := json.Unmarshal(text, &wrapped); err != nil {
		return nil, err
	}
	if wrapped.Job != nil {
		text = wrapped.Job
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	// A misspelt field must not be ignored.
	decoder.DisallowUnknownFields()
	job := &api.Job{}
	if err := decoder.Decode(job); err != nil {
		return nil, err
	}
	if len(job.TaskGroups) == 0 {
		return nil, fmt.Errorf(`the job has no "TaskGroups"`)
	}
	return job, nil
}

// rejectUnlimited rejects unlimited restarts: a runner that can't start must be reported, not retried forever.
func rejectUnlimited(group *api.TaskGroup, task *api.Task) error {
	for _, policy := range []*api.RestartPolicy{group.RestartPolicy, task.RestartPolicy} {
		if policy != nil && policy.Mode != nil && *policy.Mode != api.RestartPolicyModeFail {
			return runtime.Invalid("template", `must have restart { mode = "fail" }, not %q: a runner that can't start would be restarted forever`, *policy.Mode)
		}
	}
	if policy := group.ReschedulePolicy; policy != nil && policy.Unlimited != nil && *policy.Unlimited {
		return runtime.Invalid("template", "must have reschedule { unlimited = false } and attempts: a runner that can't start would be placed again forever")
	}
	return nil
}
