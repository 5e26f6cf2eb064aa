package job

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// maxRecord bounds an environment's record, in bytes. A task gets its job's meta as variables, each
// of which Linux limits to 128 KiB, and every list contains the record.
const maxRecord = 64 << 10

// RenderTemplate returns the job that stores env as this version, and from which its runners are
// made. The job is parameterized, so that Nomad neither runs nor garbage-collects it.
func (c Config) RenderTemplate(base *api.Job, env runtime.Environment, version uint64) (*api.Job, error) {
	job, err := c.render(base, env)
	if err != nil {
		return nil, err
	}
	if err := c.addAgent(job, env, agentDir); err != nil {
		return nil, err
	}
	record, err := json.Marshal(env)
	if err != nil {
		return nil, err
	}
	if len(record) > maxRecord {
		return nil, runtime.Invalid("variables", "must be smaller: an environment may take at most %d bytes on Nomad, not %d", maxRecord, len(record))
	}
	id := c.Names().Environment(env.ID)
	job.ID, job.Name = &id, &id
	job.Type = new(api.JobTypeBatch)
	job.ParameterizedJob = &api.ParameterizedJobConfig{Payload: "forbidden"}
	setMeta(job, metaPrefix, c.Prefix)
	setMeta(job, metaEnvironment, string(record))
	setMeta(job, metaVersion, strconv.FormatUint(version, 10))
	return job, nil
}

func setMeta(job *api.Job, key, value string) {
	if job.Meta == nil {
		job.Meta = map[string]string{}
	}
	job.Meta[key] = value
}

var errStopped = errors.New("its job was stopped")

// ErrForeign says that a job belongs to another server, whose prefix begins with this server's.
var ErrForeign = errors.New("it belongs to another server")

// ReadEnvironment returns the environment that a template job stores. The job's meta has its
// fields, except those that a person may have changed in the job itself: image, resources, and
// exposed ports. Each version that this server didn't write counts as a revision that changed
// runners. For a job that was registered by hand the first version doesn't.
func (c Config) ReadEnvironment(job *api.Job) (runtime.Environment, error) {
	n := c.Names()
	if owner := job.Meta[metaPrefix]; owner != "" && owner != c.Prefix {
		return runtime.Environment{}, ErrForeign
	}
	if job.Stop != nil && *job.Stop {
		return runtime.Environment{}, errStopped
	}
	env := defaultEnvironment(runtime.EnvironmentID(strings.TrimPrefix(*job.ID, n.Environments())))
	if err := json.Unmarshal([]byte(job.Meta[metaEnvironment]), &env); err != nil {
		return env, fmt.Errorf("the job's meta %s isn't an environment in JSON: %w", metaEnvironment, err)
	}
	if n.Environment(env.ID) != *job.ID {
		return env, fmt.Errorf("the job's meta names the environment %q, which must be in a job named %q", env.ID, n.Environment(env.ID))
	}
	if job.ParameterizedJob == nil {
		return env, errors.New("the job isn't parameterized, so Nomad would run it")
	}
	group, task, err := runnerTask(job)
	if err != nil {
		return env, err
	}
	// The job itself takes precedence over the record, since a person may have changed it.
	c.adoptResources(&env.Resources, task.Resources)
	if image, ok := task.Config["image"].(string); ok && env.Image != runtime.DefaultImage && image != imageOf(env) { // DefaultImage means a configured template's
		env.Image, env.Pin = image, runtime.ImagePin{}
	}
	if c.Pins && drivers[Driver(task.Driver)].contained && env.Image != runtime.DefaultImage && env.Pin.Digest == "" && env.Pin.Unpinned == "" {
		env.Pin.Unpinned = "its job was written by hand: name a digest there, or put the image"
	}
	env.Image = cmp.Or(env.Image, runtime.DefaultImage)
	env.Network.ExposedPorts = adoptPorts(env.Network.ExposedPorts, group.Networks)
	env.Revision, env.RunnerRevision = max(env.Revision, 1), max(env.RunnerRevision, 1)
	if changes := changesByHand(job); changes > 0 {
		env.Revision += changes
		env.RunnerRevision = env.Revision
	}
	return env, env.Validate()
}

// CompleteTemplate returns the stored job as the template of env's runners, with defaults for the
// fields that a person who registered it by hand left open. The error says why no runner can be
// made from it.
func (c Config) CompleteTemplate(stored *api.Job, env runtime.Environment) (*api.Job, error) {
	group, task, err := runnerTask(stored)
	if err != nil {
		return nil, err
	}
	if err := rejectUnlimited(group, task); err != nil {
		return nil, err
	}
	return c.render(stored, env)
}

// defaultEnvironment has the defaults of an environment that is registered by hand.
func defaultEnvironment(id runtime.EnvironmentID) runtime.Environment {
	return runtime.Environment{
		ID: id, PoolSize: runtime.DefaultPoolSize, Resources: runtime.DefaultResources(),
		Isolation: runtime.IsolationCluster, DefaultTimeLimit: runtime.DefaultTimeLimit, OutputLimit: runtime.DefaultOutputLimit,
	}
}

func changesByHand(job *api.Job) int {
	written, err := strconv.ParseUint(cmp.Or(job.Meta[metaVersion], "0"), 10, 32)
	if err != nil || job.Version == nil || *job.Version < written {
		return 0
	}
	return int(*job.Version - written)
}

// adoptResources sets what a person may have changed in the job's resources.
func (c Config) adoptResources(env *runtime.Resources, task *api.Resources) {
	if task == nil {
		return
	}
	if task.CPU != nil && *task.CPU > 0 {
		env.CPUMHz = *task.CPU
	}
	limit := task.MemoryMB
	if task.MemoryMaxMB != nil && *task.MemoryMaxMB > 0 {
		limit = task.MemoryMaxMB
	}
	if limit != nil {
		env.MemoryMiB = *limit
	}
}

func adoptPorts(have []int, networks []*api.NetworkResource) []int {
	if len(networks) == 0 {
		return have
	}
	var all []int
	for _, network := range networks {
		for _, port := range network.DynamicPorts {
			if port.To > 0 {
				all = append(all, port.To)
			}
		}
	}
	// Another order of the same ports isn't a change.
	if slices.Equal(slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(have))) {
		return have
	}
	return all
}

// RenderRunner makes the job of one runner from a stored template job. It also returns how to reach its agent.
func (c Config) RenderRunner(template *api.Job, id runtime.RunnerID, env runtime.Environment, priority runtime.Priority, created time.Time) (_ *api.Job, how AgentAccess, err error) {
	job, err := copyJob(template)
	if err != nil {
		return nil, how, err
	}
	record, err := json.Marshal(env)
	if err != nil {
		return nil, how, err
	}
	name := c.Names().Runner(id)
	// A stored job has fields that Nomad set. They belong to the template, not to the runner.
	clearServerFields(job)
	job.ID, job.Name = &name, &name
	job.ParameterizedJob = nil
	job.Priority = new(c.JobPriority(priority))
	delete(job.Meta, metaVersion)
	setMeta(job, metaPrefix, c.Prefix)
	setMeta(job, metaEnvironment, string(record))
	setMeta(job, metaCreated, created.UTC().Format(time.RFC3339Nano))
	dir := agentDir + "-" + string(id)
	if err := c.addAgent(job, env, dir); err != nil {
		return nil, how, err
	}
	_, task, err := runnerTask(job)
	if err != nil {
		return nil, how, err
	}
	d := drivers[Driver(task.Driver)]
	agent := c.agentPath(d.local, dir)
	// The command carries streams to the agent.
	how = AgentAccess{Task: task.Name, Command: []string{agent, "bridge", "--socket", d.socket}}
	if c.Agent.Stream {
		how.Stream = agent
	}
	way, err := json.Marshal(how)
	if err != nil {
		return nil, how, err
	}
	setMeta(job, metaBridge, string(way))
	return job, how, nil
}

// An AgentAccess says how to reach a runner's agent. It is stored with the runner, since the server's
// settings may change later.
type AgentAccess struct {
	Task    string   `json:"task"`
	Command []string `json:"command"`
	Stream  string   `json:"stream,omitempty"` // the path to which the agent must be streamed, if the task doesn't get it otherwise
}

// waitingPriority is how much higher the priority of a job is for a waiting claim.
const waitingPriority = 10

// JobPriority returns the priority of the job for a start with priority p.
func (c Config) JobPriority(p runtime.Priority) int {
	if p >= runtime.PriorityWaiting {
		return c.Priority + waitingPriority
	}
	return c.Priority
}

// StartPriority returns the start's priority for the priority of a job.
func (c Config) StartPriority(job int) runtime.Priority {
	if job >= c.Priority+waitingPriority {
		return runtime.PriorityWaiting
	}
	return runtime.PriorityRefill
}

func clearServerFields(job *api.Job) {
	job.Stop, job.ParentID, job.Status, job.StatusDescription, job.Stable, job.Version, job.SubmitTime = nil, nil, nil, nil, nil, nil, nil
	job.CreateIndex, job.ModifyIndex, job.JobModifyIndex, job.NomadTokenID, job.VersionTag = nil, nil, nil, nil, nil
	job.Payload, job.Dispatched, job.DispatchIdempotencyToken = nil, false, nil
}

// ReadRunner returns the runner that a job's meta describes, and how to reach its agent.
func ReadRunner(id runtime.RunnerID, meta map[string]string) (r runtime.Runner, way AgentAccess, err error) {
	r = runtime.Runner{ID: id, State: runtime.RunnerStarting}
	if err := json.Unmarshal([]byte(meta[metaEnvironment]), &r.Environment); err != nil {
		return r, way, fmt.Errorf("the job's meta %s isn't an environment in JSON: %w", metaEnvironment, err)
	}
	if err := json.Unmarshal([]byte(meta[metaBridge]), &way); err != nil {
		return r, way, fmt.Errorf("the job's meta %s isn't a task and a command in JSON: %w", metaBridge, err)
	}
	if len(way.Command) == 0 {
		return r, way, fmt.Errorf("the job's meta %s has no command", metaBridge)
	}
	created, err := time.Parse(time.RFC3339Nano, meta[metaCreated])
	if err != nil {
		return r, way, fmt.Errorf("the job's meta %s isn't a time: %w", metaCreated, err)
	}
	r.CreatedAt = created
	return r, way, nil
}

// SameTemplate reports whether two template jobs have the same environment, written as the same version.
func SameTemplate(stored, wanted *api.Job) bool {
	return stored.Meta[metaEnvironment] == wanted.Meta[metaEnvironment] && stored.Meta[metaVersion] == wanted.Meta[metaVersion]
}

// SameRunner reports whether a stored job is the wanted runner's, not another one's of that name.
func SameRunner(stored, wanted *api.Job) bool {
	return stored.Meta[metaCreated] == wanted.Meta[metaCreated]
}

// Sample returns a template job for Nomad to validate, and the driver that it needs.
func (c Config) Sample(base *api.Job) (*api.Job, Driver, error) {
	_, task, err := runnerTask(base)
	if err != nil {
		return nil, "", err
	}
	driver := Driver(task.Driver)
	env := defaultEnvironment("check")
	env.Revision, env.RunnerRevision = 1, 1
	env.Image = runtime.DefaultImage
	if drivers[driver].contained && task.Config["image"] == nil {
		env.Image = "check:1"
	}
	job, err := c.RenderTemplate(base, env, 0)
	return job, driver, err
}

func copyJob(job *api.Job) (*api.Job, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	out := &api.Job{}
	return out, json.Unmarshal(text, out)
}
