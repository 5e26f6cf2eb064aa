package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/runtime"
)

// Check tests whether this machine can isolate programs: it makes one sandbox, starts the agent in
// it and removes it. The sandbox appears in no list. The error names everything that is missing,
// one per line, with what to do. STORAGE_FULL: only disk space is missing, so nothing new can be
// created.
func (c *Cluster) Check(ctx context.Context) error {
	if err := errors.Join(c.host.Missing()...); err != nil {
		return err
	}
	err := c.tryRunner(ctx)
	if host.IsFull(err) {
		return runtime.Wrap(runtime.CodeStorageFull, err, "no runner can start because the server's disk is full: free some space in its data directory")
	}
	if err != nil {
		return errors.Join(append([]error{fmt.Errorf("a sandbox can't be made on this machine: %w", err)}, c.host.Suspects()...)...)
	}
	return nil
}

func (c *Cluster) tryRunner(ctx context.Context) error {
	env := runtime.Environment{
		ID: "check", Revision: 1, RunnerRevision: 1,
		Image: runtime.DefaultImage, Isolation: runtime.IsolationNamespaces, Resources: runtime.DefaultResources(),
	}
	r := runtime.Runner{ID: runtime.NewRunnerID(), Environment: env, State: runtime.RunnerStarting}
	// The entry isn't added to the cluster's entries, so no list shows it.
	return c.newEntry(r, runtime.PriorityRefill, runner.Record{}).runner.Try(ctx)
}
