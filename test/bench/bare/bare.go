// Package bare uses Nomad without Rockpool, as the floor of the bench's rows on Nomad. The
// variables NOMAD_ADDR, NOMAD_TOKEN and so on name the Nomad.
//
// All that the package makes in Nomad has names with one prefix. End removes everything with that
// prefix.
package bare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// A Nomad is one that already runs. Its methods are safe for concurrent use.
type Nomad struct {
	client   *api.Client
	settings *api.Config
	prefix   string
	image    string // for tasks of the driver docker
}

// Open returns the Nomad of the environment's variables. It sends no request yet.
func Open(prefix, image string) (*Nomad, error) {
	settings := api.DefaultConfig()
	client, err := api.NewClient(settings)
	if err != nil {
		return nil, err
	}
	return &Nomad{client: client, settings: settings, prefix: prefix, image: image}, nil
}

// Close closes idle connections.
func (n *Nomad) Close() { n.client.Close() }

// Prefix is the beginning of all names.
func (n *Nomad) Prefix() string { return n.prefix }

func query(ctx context.Context) *api.QueryOptions   { return (&api.QueryOptions{}).WithContext(ctx) }
func writing(ctx context.Context) *api.WriteOptions { return (&api.WriteOptions{}).WithContext(ctx) }

// Drivers returns the drivers that at least one node can run tasks with, sorted.
func (n *Nomad) Drivers(ctx context.Context) ([]string, error) {
	nodes, _, err := n.client.Nodes().List(query(ctx))
	if err != nil {
		return nil, fmt.Errorf("list the nodes of the Nomad at %s ($NOMAD_ADDR): %w", n.settings.Address, err)
	}
	var all []string
	for _, node := range nodes {
		for name, driver := range node.Drivers {
			if node.Status == api.NodeStatusReady && driver.Detected && driver.Healthy && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// Write prepares a compare-and-set write of a variable, the least work that a claim needs. Each
// call of the returned function writes once.
func (n *Nomad) Write(ctx context.Context) (func(context.Context) error, error) {
	v := &api.Variable{Path: n.prefix + "/floor", Items: api.VariableItems{"claim": strings.Repeat("x", 200)}}
	write := func(ctx context.Context) error {
		stored, _, err := n.client.Variables().CheckedUpdate(v, writing(ctx))
		if err == nil {
			v.ModifyIndex = stored.ModifyIndex
		}
		return err
	}
	return write, write(ctx)
}

// End stops all jobs whose names have the prefix, purges them once their tasks have ended, and
// deletes all variables with the prefix.
func (n *Nomad) End(ctx context.Context, prefix string) error {
	if err := n.deregister(ctx, prefix, false); err != nil { // before the purge: no list shows when a purged job has ended
		return err
	}
	err := until(ctx, func() (bool, error) {
		all, err := n.allocations(ctx, prefix)
		for _, a := range all {
			if a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning {
				return false, err
			}
		}
		return true, err
	})
	return errors.Join(err, n.deregister(ctx, prefix, true), n.deleteVariables(ctx, prefix))
}

// deregister stops all jobs whose names have the prefix. With purge, Nomad also forgets them.
func (n *Nomad) deregister(ctx context.Context, prefix string, purge bool) error {
	q := query(ctx)
	q.Prefix = prefix
	jobs, _, err := n.client.Jobs().List(q)
	errs := []error{err}
	for _, job := range jobs {
		_, _, err := n.client.Jobs().Deregister(job.ID, purge, writing(ctx))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// deleteVariables deletes all variables whose paths have the prefix.
func (n *Nomad) deleteVariables(ctx context.Context, prefix string) error {
	all, _, err := n.client.Variables().PrefixList(prefix, query(ctx))
	errs := []error{err}
	for _, v := range all {
		_, err := n.client.Variables().Delete(v.Path, writing(ctx))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
