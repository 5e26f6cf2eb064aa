package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// Check tests whether this machine can isolate programs: it makes one sandbox, starts the agent in
// it and removes it. The sandbox appears in no list. The error names everything that is missing,
// one per line, with what to do. STORAGE_FULL: only disk space is missing, so nothing new can be
// created.
func (c *Cluster) Check(ctx context.Context) error {
	missing := c.host.Missing()
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	err := c.trySandbox(ctx)
	if host.IsFull(err) {
		return runtime.Wrap(runtime.CodeStorageFull, err, "no runner can start because the server's disk is full: free some space in its data directory")
	}
	if err != nil {
		return errors.Join(append([]error{fmt.Errorf("a sandbox can't be made on this machine: %w", err)}, c.host.Suspects()...)...)
	}
	return nil
}

// trySandbox starts a runner as its task would, waits for its agent, and removes it. If the removal
// fails, the next server removes what is left.
func (c *Cluster) trySandbox(ctx context.Context) error {
	env := runtime.Environment{
		ID: "check", Revision: 1, RunnerRevision: 1,
		Image: runtime.DefaultImage, Isolation: runtime.IsolationNamespaces, Resources: runtime.DefaultResources(),
	}
	r := runtime.Runner{ID: runtime.NewRunnerID(), Environment: env, State: runtime.RunnerStarting}
	// The entry isn't added to the cluster's entries, so no list shows it.
	d := c.newEntry(r, runtime.PriorityRefill, private{}).driver
	values, err := d.Place()
	if err == nil {
		err = c.host.BuildRoot(ctx)
	}
	if err == nil {
		var h taskrunner.Handle
		if h, err = d.Start(ctx, taskrunner.StartRequest{Values: values}); err == nil {
			err = d.Ping(ctx)
			h.Close()
		}
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	if left := d.Destroy(clean); left != nil {
		return errors.Join(err, left) // the next server finds the directory, which keeps the user ids reserved
	}
	return errors.Join(err, d.Unplace(values))
}
