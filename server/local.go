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
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
)

// ImageWorker is the path of the program that unpacks images: this one, even if its file has been
// replaced. It must have the command image-worker.
const ImageWorker = "/proc/self/exe"

// Programs has the programs that local runners need.
type Programs struct{ Agent, Helper []byte }

// builtIn returns the programs that are embedded in this one, for this machine's architecture.
func builtIn() (*Programs, error) {
	agent, err := embedded.Binary(goruntime.GOARCH)
	if err != nil {
		return nil, err
	}
	helper, err := sandbox.Binary()
	return &Programs{agent, helper}, err
}

// openLocal opens the cluster of this machine and sets s.cluster. After an error, s.cluster is
// unchanged.
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
		offer, a, err := c.Networks.Parse()
		if err != nil {
			return err
		}
		network = &access.Config{Offer: offer, Upstreams: a.Resolvers, Address: a.Address, First: a.First, Last: a.Last}
	}
	runtimes, err := c.Runtimes.Parse()
	if err != nil {
		return err
	}
	opened, err := local.New(ctx, local.Config{
		Config: host.Config{
			Dir: LocalDir(c.Data), Caches: c.Caches, Logger: s.logger.Named("local"),
			Agent: with.Agent, Helper: with.Helper, ImageWorker: ImageWorker, HelperSocket: c.SandboxHelper, MissingLimits: c.AcceptMissing, CgroupParent: c.CgroupParent,
			Runtimes: runtimes, DiskRead: DiskRead(c.Disk),
		},
		Store: s.store, Network: network, Parallel: c.Parallel,
		Overcommit: scheduler.Overcommit{CPU: c.CPUOvercommit, Memory: c.MemoryOvercommit},
		Collect:    scheduler.Collect{Evaluations: seconds(c.KeepEvaluations), Runners: seconds(c.KeepAllocations)},
		Keep:       c.OnStop == config.StopKeeps,
		Languages:  c.Recipes,
		Images:     imageCache(c.Images),
	})
	if err != nil {
		return err // a nil *local.Cluster in s.cluster wouldn't be nil
	}
	s.cluster, s.local = opened, opened
	return nil
}

// LocalDir returns the directory of this machine's cluster within a data directory.
func LocalDir(data string) string { return filepath.Join(data, "local") }

// checkLocal returns an error if this machine can't run programs. It creates the first environments.
func (s *Server) checkLocal(ctx context.Context) error {
	switch err := s.cluster.Check(ctx); {
	case runtime.CodeOf(err) == runtime.CodeStorageFull: // running programs continue anyway
		s.logger.Warn("the disk is full", zap.Error(err))
	case err != nil:
		return err
	}
	if s.First == nil {
		return nil
	}
	// This happens before the API responds: a client that waits for the address may use them.
	environments, err := s.First()
	if err == nil {
		err = s.local.PutFirst(ctx, environments)
	}
	if err != nil {
		return fmt.Errorf("create the first environments: %w", err)
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

// DiskRead returns the disk read limit of a runner in bytes per second; 0 means unlimited.
func DiskRead(c config.Disk) int64 { return int64(c.Read) << 20 }
