package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/server/connections"
)

// openNomad opens the Nomad cluster. It doesn't wait for Nomad: Run does.
func (s *Server) openNomad(ctx context.Context) (err error) {
	if s.agents, err = embedded.NewFiles(); err != nil {
		return err
	}
	dir := filepath.Join(s.config.Data, "nomad")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	settings := nomadConfig(s.config, dir, s.agents.ArchiveSum(s.config.Nomad.Arch), s.logger.Named("nomad"))
	if settings.Resolve, err = resolveImages(s.config); err != nil {
		return err
	}
	if s.peers != nil {
		settings.AwaitEnd = func(ctx context.Context, address, secret string) (string, error) {
			return connections.AwaitEnd(ctx, connections.Leader{Address: address, Secret: secret})
		}
	}
	opened, err := nomad.New(ctx, settings)
	if err != nil {
		return nomadSetting(err)
	}
	s.cluster, s.nomad = opened, opened
	return nil
}

// resolveImages returns the function that resolves images in registries; nil if nodes resolve them.
func resolveImages(c config.Config) (func(context.Context, string) (runtime.ImagePin, error), error) {
	if driver := job.Driver(c.Nomad.Driver); c.Nomad.NodeImages || driver != job.Docker && driver != job.Podman {
		return nil, nil
	}
	settings := imageCache(c.Images)
	settings.Dir = c.Data // notes which registries asked for a pause
	settings.Skeleton.Home, settings.Skeleton.Directories = runtime.Home, []string{"/tmp"}
	resolver, err := image.NewResolver(settings, c.Nomad.Arch)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, reference string) (runtime.ImagePin, error) {
		pin, err := resolver.Resolve(ctx, reference)
		if errors.Is(err, image.ErrUnknown) { // nodes may have the image anyway
			return runtime.ImagePin{Unpinned: err.Error()}, nil
		}
		return pin, err
	}, nil
}

// checkNomad returns an error for a job template that Nomad refuses. It only logs other problems:
// they may go away.
func (s *Server) checkNomad(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nomadPatience)
	defer cancel()
	err := s.cluster.Check(ctx)
	if runtime.CodeOf(err) == runtime.CodeInvalidInput {
		return nomadSetting(err)
	}
	if err != nil {
		s.logger.Warn("Nomad isn't ready; rockpool doctor shows why", zap.Error(err))
	}
	return nil
}

// nomadPatience is how long a start waits for Nomad. After that, the server starts without it.
const nomadPatience = 3 * time.Second

// ExamineNomad checks the Nomad cluster of checked settings without changing it. An error names the
// invalid setting.
func ExamineNomad(ctx context.Context, c config.Config) ([]health.Finding, error) {
	files, err := embedded.NewFiles()
	if err != nil {
		return nil, err
	}
	found, err := nomad.Examine(ctx, nomadConfig(c, "", files.ArchiveSum(c.Nomad.Arch), zap.NewNop()))
	return found, nomadSetting(err)
}

// nomadConfig converts settings. dir is the cluster's data directory, sum the checksum of the
// agent's archive.
func nomadConfig(c config.Config, dir, sum string, logger *zap.Logger) nomad.Config {
	n := c.Nomad
	agent := job.Agent{Arch: n.Arch, Path: n.AgentPath, Stream: n.StreamAgent}
	if agent.Path == "" && !agent.Stream {
		agent.URL, agent.SHA256 = strings.TrimSuffix(c.AdvertiseURL, "/")+embedded.Prefix+sum, sum
	}
	return nomad.Config{
		Connection: connection.Config{
			Address: n.Address, Region: n.Region, Namespace: n.Namespace, Token: n.Token,
			CACert: n.CACert, ClientCert: n.ClientCert, ClientKey: n.ClientKey, TLSServerName: n.TLSServerName,
			UIURL: n.UIURL, Calls: n.Calls, DirectTimeout: time.Duration(n.DirectTimeout) * time.Millisecond,
		},
		Jobs: job.Config{
			Prefix: n.Prefix, Agent: agent,
			Driver: job.Driver(n.Driver), User: n.User, Datacenters: n.Datacenters, NodePool: n.NodePool, Constraints: n.Constraints,
			NetworkMode: n.NetworkMode, NoNetworkMode: n.NoNetworkMode, Workspace: n.Workspace, ForcePull: n.ForcePull, MemoryReserve: n.MemoryReserve, Priority: n.Priority,
			Restarts: n.Restarts, Reschedules: n.Reschedules, Template: n.Job,
		},
		Logger: logger, Dir: dir, Peer: c.PeerListen, Remove: c.OnStop == config.StopRemoves,
		Parallel: c.Parallel, Bridges: n.Bridges, LockTTL: time.Duration(n.LockTTL) * time.Second,
	}
}

// nomadSetting adds the flag's name to an error of package nomad about a setting.
func nomadSetting(err error) error {
	wrong, ok := errors.AsType[*runtime.Error](err)
	if !ok || wrong.Code != runtime.CodeInvalidInput || wrong.Field == "" {
		return err
	}
	var flag strings.Builder
	for _, r := range strings.ReplaceAll(wrong.Field, ".", "-") {
		if unicode.IsUpper(r) {
			flag.WriteByte('-')
		}
		flag.WriteRune(unicode.ToLower(r))
	}
	return fmt.Errorf("--nomad-%s %s", flag.String(), wrong.Message)
}
