package bare

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"
)

const taskName = "runner" // the name that the server's jobs use

// A Task is a job's only task, with the times of the steps of its start, by the clocks of Nomad's
// server (Placed) and client (the others).
type Task struct {
	Job, Allocation string
	Placed          time.Time
	Received        time.Time
	Setup           time.Time // its directory exists
	Fetch           time.Time // its artifact is there; the zero time means it has none
	Started         time.Time // the zero time means not yet
}

// registering bounds concurrent registrations, as in the server.
const registering = 8

var jobs atomic.Int64 // named by this process

// Start registers count jobs of a driver, like the server's runners, but their tasks only sleep. It
// returns the tasks when they have started. The caller ends them with end.
func (n *Nomad) Start(ctx context.Context, driver string, count int) (tasks []Task, end func(context.Context) error, err error) {
	prefix := fmt.Sprintf("%s-floor%d-", n.prefix, jobs.Add(1))
	end = func(ctx context.Context) error { return n.End(ctx, prefix) }
	var g errgroup.Group
	g.SetLimit(registering)
	for i := range count {
		g.Go(func() error {
			_, _, err := n.client.Jobs().Register(n.job(fmt.Sprint(prefix, i), driver), writing(ctx))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, end, err
	}
	err = until(ctx, func() (bool, error) {
		tasks, err = n.Tasks(ctx, prefix)
		started := 0
		for _, t := range tasks {
			if !t.Started.IsZero() {
				started++
			}
		}
		return started == count, err
	})
	return tasks, end, err
}

// Tasks returns the tasks of all jobs whose names have the prefix.
func (n *Nomad) Tasks(ctx context.Context, prefix string) ([]Task, error) {
	all, err := n.allocations(ctx, prefix)
	tasks := make([]Task, 0, len(all))
	for _, a := range all {
		t := Task{Job: a.JobID, Allocation: a.ID, Placed: time.Unix(0, a.CreateTime)}
		if state := a.TaskStates[taskName]; state != nil {
			if state.Failed {
				return nil, fmt.Errorf("the task of job %s failed: %s", a.JobID, a.ClientDescription)
			}
			for _, event := range state.Events {
				at := map[string]*time.Time{
					api.TaskReceived: &t.Received, api.TaskSetup: &t.Setup, api.TaskDownloadingArtifacts: &t.Fetch, api.TaskStarted: &t.Started,
				}[event.Type]
				if at != nil {
					*at = time.Unix(0, event.Time)
				}
			}
		}
		tasks = append(tasks, t)
	}
	return tasks, err
}

// allocations returns the allocations of all jobs whose names have the prefix.
func (n *Nomad) allocations(ctx context.Context, prefix string) ([]*api.AllocationListStub, error) {
	q := query(ctx)
	q.Filter = fmt.Sprintf("JobID matches \"^%s\"", prefix)
	all, _, err := n.client.Allocations().List(q)
	return all, err
}

// job is like a runner's job, with a task that only sleeps.
func (n *Nomad) job(id, driver string) *api.Job {
	task := api.NewTask(taskName, driver)
	task.Config = map[string]any{"args": []string{"-c", "sleep 2147483647"}}
	if driver == "docker" {
		task.Config["image"], task.Config["entrypoint"], task.Config["network_mode"] = n.image, []string{"/bin/sh"}, "none"
		task.User = "root"
	} else {
		task.Config["command"] = "/bin/sh"
	}
	task.LogConfig = &api.LogConfig{Disabled: new(true), MaxFiles: new(1), MaxFileSizeMB: new(1)}
	task.KillTimeout = new(10 * time.Millisecond)
	task.Resources = &api.Resources{CPU: new(10), MemoryMB: new(64)}
	group := api.NewTaskGroup(taskName, 1).AddTask(task)
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: new(36)}
	job := api.NewBatchJob(id, id, "", 50)
	job.Region = nil
	job.Datacenters = []string{"*"}
	return job.AddTaskGroup(group)
}

// Exec runs a command in a task by Nomad's own exec and writes its output to out.
func (n *Nomad) Exec(ctx context.Context, allocation string, out io.Writer, argv ...string) error {
	code, err := n.client.Allocations().Exec(ctx, &api.Allocation{ID: allocation}, taskName, false, argv, noInput{}, out, io.Discard, nil, query(ctx))
	if err == nil && code != 0 {
		err = fmt.Errorf("%q ended with %d", argv, code)
	}
	return err
}

// noInput is an empty standard input.
type noInput struct{}

func (noInput) Read([]byte) (int, error) { return 0, io.EOF }

// until polls ok, often enough to measure something that takes a second.
func until(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
