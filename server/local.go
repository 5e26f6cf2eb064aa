package server

import (
	"context"
	"fmt"
	"path/filepath"
	goruntime "runtime"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
)

// ImageWorker is the program that works on images: this one, whatever is in its file by
// now. It has the command image-worker.
const ImageWorker = "/proc/self/exe"

// Programs are what local runners are made with.
type Programs struct{ Agent, Helper []byte }

func builtIn() (*Programs, error) {
	agent, err := embedded.Binary(goruntime.GOARCH)
	if err != nil {
		return nil, err
	}
	helper, err := sandbox.Binary()
	return &Programs{agent, helper}, err
}

func (s *Server) openLocal(ctx context.Context) error {
	c, with := s.config, s.Programs
	if with == nil {
		var err error
		if with, err = builtIn(); err != nil {
			return err
		}
	}
	var network *access.Config
	if c.Network {
		var err error
		if network, err = localNetwork(c.Networks); err != nil {
			return err
		}
	}
	runtimes, err := Runtimes(c.Runtimes)
	if err != nil {
		return err
	}
	opened, err := local.New(ctx, local.Config{
		Config: host.Config{
			Dir: LocalDir(c.Data), Logger: s.logger.Named("local"),
			Agent: with.Agent, Helper: with.Helper, ImageWorker: ImageWorker, HelperSocket: c.SandboxHelper, MissingLimits: c.AcceptMissing, CgroupParent: c.CgroupParent,
			Runtimes: runtimes, DiskRead: DiskRead(c.Disk),
		},
		Store: s.store, Network: network, Parallel: c.Parallel,
		Overcommit: scheduler.Overcommit{CPU: c.CPUOvercommit, Memory: c.MemoryOvercommit},
		Collect:    scheduler.Collect{Evaluations: seconds(c.KeepEvaluations), Runners: seconds(c.KeepAllocations)},
		Keep:       c.OnStop == config.StopKeeps,
		Images:     imageCache(c.Images),
	})
	if err != nil {
		return err // a nil *local.Cluster would be no nil cluster
	}
	s.cluster = opened
	return nil
}

// LocalDir returns the directory of this machine's cluster, in a data directory.
func LocalDir(data string) string { return filepath.Join(data, "local") }

// checkLocal refuses to start on a machine that can't run programs, and makes the first
// environments.
func (s *Server) checkLocal(ctx context.Context) error {
	switch err := s.cluster.Check(ctx); {
	case runtime.CodeOf(err) == runtime.CodeStorageFull: // what runs goes on all the same
		s.logger.Warn("the disk is full", zap.Error(err))
	case err != nil:
		return err
	}
	here, ok := s.cluster.(starter)
	if !ok || s.First == nil {
		return nil
	}
	// Before the API answers: a client that waited for the address may use them.
	environments, err := s.First()
	if err == nil {
		err = here.PutFirst(ctx, environments)
	}
	if err != nil {
		return fmt.Errorf("make the first environments: %w", err)
	}
	return nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func imageCache(c config.Images) image.Config {
	return image.Config{
		Files: c.Files, Image: tree.Limits{Bytes: c.Bytes}, Bytes: c.CacheBytes, Within: seconds(c.Timeout),
		Plain: c.PlainHTTP, Registries: c.Registries, CACert: c.CACert, Stall: seconds(c.Stall),
	}
}

// DiskRead returns how many bytes a second a runner may read from a disk; 0: any.
func DiskRead(c config.Disk) int64 { return int64(c.Read) << 20 }

// Runtimes converts settings.
func Runtimes(c config.Runtimes) (oci.Runtimes, error) {
	programs, err := c.Programs()
	if err != nil {
		return nil, err
	}
	all := oci.Runtimes{}
	for name, text := range programs {
		if all[name], err = oci.Parse(text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Offer converts settings.
func Offer(c config.Offer) (network.Offer, error) {
	r, err := c.Parse()
	return network.Offer{Pool: network.Pool{V4: r.Pool4, V6: r.Pool6}, Permit: r.Permit, Bandwidth: c.Bandwidth}, err
}

func localNetwork(c config.Network) (*access.Config, error) {
	_, a, err := c.Parse()
	if err != nil {
		return nil, err
	}
	offer, err := Offer(c.Offer)
	return &access.Config{Offer: offer, Upstreams: a.Resolvers, Address: a.Address, First: a.First, Last: a.Last}, err
}
