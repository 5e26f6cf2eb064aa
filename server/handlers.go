package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/compat/jobe"
	"github.com/rockpool/rockpool/compat/mcp"
	"github.com/rockpool/rockpool/compat/poseidon"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/graph"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/versions"
	"github.com/rockpool/rockpool/server/metrics"
	"github.com/rockpool/rockpool/server/routes"
	"github.com/rockpool/rockpool/web"
)

// handlers returns the server's handler. docs/architecture.md lists those that a request passes, under "The path
// of a request". Compatible APIs and downloads authenticate their callers themselves.
func (s *Server) handlers(streams context.Context, known *clients.Limiter, requests requests) http.Handler {
	people := s.signIn()
	gate := &routes.Gate{
		Hosts: s.config.AllowedHosts, Origins: s.config.AllowedOrigins, Open: s.registry.Open, Logger: s.logger.Named("graph"),
		Pages: web.New().Serve, SignIn: people, Next: s.routes(known, people.Secret),
	}
	return known.Handler(s.access.Handler(requests.handler(streams, gate)))
}

// routes returns the handler of all addresses except those of the dashboard and sign-in. session returns
// the session in a request's cookie.
func (s *Server) routes(known *clients.Limiter, session func(r *http.Request) (secret string, ok bool)) http.Handler {
	c, logger := s.config, s.logger.Named("graph")
	languages := c.Recipes
	if languages == nil {
		languages = language.Default()
	}
	measured, links := versions.New(&s.Engine.Services, languages), download.NewLinks(s.key)
	admission := &routes.Admission{Registry: s.registry, Session: session, Failed: s.Engine.FailureRecorder()}
	settings := transport.Settings{MaxBody: c.MaxBody, Peers: known, Operation: routes.Operation, Admit: admission.Admit}.WithDefaults()
	starting := transport.Starting{Over: s.Engine.Restored()}
	o := routes.Options{
		Admission: admission, Origins: c.AllowedOrigins, Starting: starting, Health: s.Engine.Health,
		API: graph.Handler(graph.Options{
			Engine: &s.Engine.Services, Links: links, Languages: languages, Versions: measured, Version: Version(), NoIntrospection: c.NoIntrospection, Starting: starting, Logger: logger, Settings: settings,
		}),
		Downloads: download.Handler{Links: links, Files: s.Engine.Files, Outputs: s.Engine.Executions, Callers: admission, Refuse: transport.Presenter{Logger: logger, Hints: !c.NoIntrospection}.Refuse},
		Services: compat.Services{
			Engine: &s.Engine.Services, Capacity: s.Engine.Capacity, Early: settings.Early, Languages: languages, Versions: measured, Version: Version(), MaxBody: settings.MaxBody, Peers: known, Memory: s.memory, Logger: logger,
		},
	}
	if len(c.Compat) > 0 {
		o.Compat, o.Counts = compatAPIs(c.Compat, c.Cluster), new(compat.Counts)
	}
	// The paths of disabled compatible APIs say how to enable them.
	closed := slices.DeleteFunc(config.AllCompat(), func(name string) bool { return slices.Contains(c.Compat, name) })
	o.DisabledCompat = compatAPIs(closed, c.Cluster)
	if s.agents != nil {
		o.Agents = s.agents
	}
	sources := metrics.Sources{Compat: o.Counts, Version: Version(), Engine: s.Engine.Stats, Peers: known.Usage, Logger: s.logger.Named("metrics")}
	if s.local != nil {
		sources.Local = s.local.Stats
	}
	if s.nomad != nil {
		sources.Nomad = s.nomad.Stats
	}
	o.Metrics = metrics.Handler(sources)
	return routes.New(o)
}

// compatAPIs returns the compatible APIs with these names. config has checked the names.
func compatAPIs(names []string, cluster string) []compat.API {
	made := map[string]func() compat.API{
		config.CompatPoseidon: func() compat.API { return poseidon.New(forCodeOcean(cluster)) },
		config.CompatJobe:     jobe.New,
		config.CompatMCP:      func() compat.API { return mcp.New() },
	}
	var all []compat.API
	for _, name := range names {
		all = append(all, made[name]())
	}
	return all
}

// forCodeOcean returns how the Poseidon API changes the environments that CodeOcean puts. They
// have few MHz, because Nomad treats MHz as shares. On this machine MHz are limits, and a program
// with so few would take minutes to start.
func forCodeOcean(cluster string) poseidon.Options {
	if cluster == config.ClusterNomad {
		return poseidon.Options{Isolation: runtime.IsolationCluster}
	}
	return poseidon.Options{LeastCPUMHz: runtime.DefaultResources().CPUMHz}
}
