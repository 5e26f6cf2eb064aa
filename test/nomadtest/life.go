package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Kill kills server and client with SIGKILL. Tasks keep running.
func (n *Nomad) Kill() error { return errors.Join(n.KillClient(), n.KillServer()) }

// Restart starts both again with the same data and ports, and waits until they are ready.
func (n *Nomad) Restart(ctx context.Context) error {
	if err := n.RestartServer(ctx); err != nil {
		return err
	}
	return n.RestartClient(ctx)
}

// KillServer kills the server with SIGKILL, and so the API at Address.
func (n *Nomad) KillServer() error { return n.server.kill() }

// RestartServer starts the server again, and waits until it is the leader.
func (n *Nomad) RestartServer(ctx context.Context) error {
	if err := n.server.start(); err != nil {
		return err
	}
	return n.serverReady(ctx)
}

// KillClient kills the client with SIGKILL: the node that runs the tasks.
func (n *Nomad) KillClient() error { return errors.Join(n.client.kill(), n.second.kill()) }

// AddClient starts a second client, another node on the same machine, and waits until it is ready.
// KillClient then kills both; RestartClient starts both.
func (n *Nomad) AddClient(ctx context.Context) error {
	if err := os.Mkdir(n.path("second"), 0o711); err != nil { // see Open
		return err
	}
	n.second = &process{binary: n.client.binary, args: []string{"agent", "-config", n.path("second.json")}, log: n.path("second.log")}
	if err := n.second.start(); err != nil {
		return err
	}
	return n.secondReady(ctx)
}

// secondReady waits until the second client is registered and its first driver is healthy.
func (n *Nomad) secondReady(ctx context.Context) error {
	return try(ctx, n.second, "the second client isn't ready", func() error {
		if !strings.Contains(n.second.said(), "node registration complete") { // a node that was ready before is still listed as ready
			return errors.New("the node isn't registered")
		}
		nodes, _, err := n.api.Nodes().List(nil)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			driver := node.Drivers[n.options.Drivers[0]]
			if node.Name == "second" && node.Status == api.NodeStatusReady && driver != nil && driver.Healthy {
				return nil
			}
		}
		return fmt.Errorf("%d nodes", len(nodes))
	})
}

// RestartClient starts the client again, and waits until its node accepts tasks for each driver.
func (n *Nomad) RestartClient(ctx context.Context) error {
	if err := n.client.start(); err != nil {
		return err
	}
	if n.second == nil {
		return n.clientReady(ctx)
	}
	return errors.Join(n.second.start(), n.clientReady(ctx), n.secondReady(ctx))
}

// KillDocker kills the Docker daemon of both clients with SIGKILL. Containers keep running until it
// is started again.
func (n *Nomad) KillDocker() error { return n.docker.kill() }

// RestartDocker starts the daemon again, and waits until it answers.
func (n *Nomad) RestartDocker(ctx context.Context) error {
	if err := n.docker.start(); err != nil {
		return err
	}
	return n.dockerReady(ctx)
}

// SignalServer sends the server a signal that doesn't end it: SIGSTOP or SIGCONT.
func (n *Nomad) SignalServer(signal syscall.Signal) error { return n.server.send(signal) }

// SignalClient sends the client such a signal.
func (n *Nomad) SignalClient(signal syscall.Signal) error { return n.client.send(signal) }

// serverReady waits until the server is the leader and has its keys.
func (n *Nomad) serverReady(ctx context.Context) error {
	return try(ctx, n.server, "the server isn't ready", func() error {
		keys, _, err := n.api.Keyring().List(nil)
		if err == nil && len(keys) == 0 {
			err = errors.New("no keys")
		}
		return err
	})
}

// clientReady waits until the first client is registered and all its drivers are healthy.
func (n *Nomad) clientReady(ctx context.Context) error {
	return try(ctx, n.client, "the client isn't ready", func() error {
		// A node that was ready before is still listed as ready.
		if !strings.Contains(n.client.said(), "node registration complete") {
			return errors.New("the node isn't registered")
		}
		nodes, _, err := n.api.Nodes().List(nil)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(nodes, func(node *api.NodeListStub) bool { return node.Name != "second" && node.Status == api.NodeStatusReady })
		if at < 0 {
			return fmt.Errorf("%d nodes, of which the first isn't ready", len(nodes))
		}
		node, _, err := n.api.Nodes().Info(nodes[at].ID, nil)
		if err != nil {
			return err
		}
		for _, name := range n.options.Drivers {
			if driver := node.Drivers[name]; driver == nil || !driver.Healthy {
				return fmt.Errorf("driver %s: %+v", name, driver)
			}
		}
		return nil
	})
}

// Unwedge reports whether an exec's error says that the task hasn't started, and then makes Nomad's
// client check again. An exec in the moment in which a task starts can leave the client in that
// belief permanently: see warm.go of package nomad.
func Unwedge(client *api.Client, allocation *api.Allocation, task string, err error) bool {
	if err == nil || !strings.Contains(err.Error(), "not started yet") {
		return false
	}
	_ = client.Allocations().Signal(allocation, nil, task, "SIGCONT") // it may really not have started
	return true
}

// try retries until there is no error, the process ends, or patience is over.
func try(ctx context.Context, p *process, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s: it ended: %w", what, p.err)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-tick.C:
		}
	}
}
