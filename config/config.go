// Package config has a server's settings: their flags, variables and keys in the settings file, their
// defaults, and their checks. No other package has a default of a setting. The flags' help is the text of
// docs/reference/settings.md and docs/config.example.yaml; "Allowed: …." comes last in it.
package config

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// Config are a server's settings. Each is a flag of rockpool serve, a variable,
// or a key of the settings file.
type Config struct {
	Listen           string        `env:"ROCKPOOL_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address and port of the API, the dashboard and the metrics. Port 0: any free port. An address beyond loopback needs --token-file, and --tls-cert or --behind-proxy. (${default}; $$${env})"`
	Data             string        `env:"ROCKPOOL_DATA" placeholder:"DIR" help:"Directory for everything that the server keeps. ($$XDG_STATE_HOME/rockpool, as root /var/lib/rockpool, else ~/.local/state/rockpool; $$${env})"`
	TokenFile        string        `env:"ROCKPOOL_TOKEN_FILE" placeholder:"FILE" complete:"file" help:"File with the first administrator's token: 16 to 4096 visible ASCII characters. Callers send it as Authorization: Bearer TOKEN. Make other tokens with rockpool token create. Empty: the server listens on loopback only, and callers need no token until the first one is made or --oidc-issuer is set. ($$${env})"`
	Cluster          string        `env:"ROCKPOOL_CLUSTER" default:"local" placeholder:"KIND" help:"Where runners run. Allowed: local (on this machine), nomad. (${default}; $$${env})"`
	AdvertiseURL     string        `env:"ROCKPOOL_ADVERTISE_URL" placeholder:"URL" help:"This server's address as Nomad's clients reach it, for example http://rockpool.example.org:8080. They fetch the agent from /agent/ below it. ($$${env})"`
	Database         string        `env:"ROCKPOOL_DATABASE" placeholder:"URL" help:"PostgreSQL database that all servers on one Nomad cluster share, for example postgres://rockpool@db/rockpool. Each leader finds the executions and output of earlier leaders there. Put the password into ~/.pgpass. Empty: each server keeps what it ran in its own --data. ($$${env})"`
	PeerListen       string        `env:"ROCKPOOL_PEER_LISTEN" placeholder:"ADDRESS" help:"IP address of this machine and port, for example 10.0.0.5:8081. Other servers on the same Nomad cluster forward their requests there while this server leads. Let only servers reach it. Empty: servers forward nothing, and a standby waits until it leads. ($$${env})"`
	AllowedHosts     []string      `env:"ROCKPOOL_ALLOWED_HOSTS" placeholder:"NAME,…" help:"Further names that requests may have in the Host header, for example pool.example.org. localhost and the address in --listen are always allowed. ($$${env})"`
	AllowedOrigins   []string      `env:"ROCKPOOL_ALLOWED_ORIGINS" placeholder:"ORIGIN,…" help:"Further origins of web pages that may use the API, for example https://admin.example.org. The server's own origin is always allowed. ($$${env})"`
	NoIntrospection  bool          `env:"ROCKPOOL_NO_INTROSPECTION" help:"Refuse introspection of the schema, and suggest no names of it in errors. ($$${env})"`
	MaxBody          int64         `env:"ROCKPOOL_MAX_BODY" default:"32MiB" type:"size" placeholder:"SIZE" help:"Largest body of a request. Uploaded files don't count. Allowed: 1KiB to 1GiB. (${default}; $$${env})"`
	Parallel         int           `env:"ROCKPOOL_PARALLEL" default:"0" placeholder:"N" help:"Runners that start concurrently. Allowed: 1 to 64; 0: as many as the machine has CPUs. (${default}; $$${env})"`
	CPUOvercommit    float64       `name:"cpu-overcommit" env:"ROCKPOOL_CPU_OVERCOMMIT" default:"250" placeholder:"FACTOR" help:"How many times the machine's CPU is promised to runners. Runners that don't fit wait in the queue, and the pool's reason says why. Allowed: 0.1 to 1000. (${default}; $$${env})"`
	MemoryOvercommit float64       `env:"ROCKPOOL_MEMORY_OVERCOMMIT" default:"8" placeholder:"FACTOR" help:"How many times the machine's memory is promised to runners. All runners together still can't use more memory than the machine has. Allowed: 0.1 to 1000. (${default}; $$${env})"`
	AlertThreshold   float64       `env:"ROCKPOOL_ALERT_THRESHOLD" default:"0.5" placeholder:"SHARE" help:"Share of a pool's size. If fewer runners are idle, the pool has too few. Allowed: 0 to 1. (${default}; $$${env})"`
	AlertTimeout     int           `env:"ROCKPOOL_ALERT_TIMEOUT" default:"1m" type:"time" placeholder:"TIME" help:"How long a pool can have too few idle runners before it raises an alert and lists the cluster's runners again. Allowed: 1s to 1d; 0: no alerts. (${default}; $$${env})"`
	KeepExecutions   int           `env:"ROCKPOOL_KEEP_EXECUTIONS" default:"7d" type:"time" placeholder:"TIME" help:"How long finished executions and their output are kept. Allowed: 1s to 3650d; 0: forever. (${default}; $$${env})"`
	KeepBytes        int64         `env:"ROCKPOOL_KEEP_BYTES" default:"10GiB" type:"size" placeholder:"SIZE" help:"Disk space for executions and their output. If it is full, the oldest finished executions are deleted. If none is left to delete, output is lost, and the execution reports that. Allowed: 16MiB to 1PiB; 0: no limit. (${default}; $$${env})"`
	AuditLog         string        `env:"ROCKPOOL_AUDIT_LOG" default:"off" placeholder:"FILE" complete:"file" help:"File for a copy of the audit log, as lines of JSON. The audit log itself is in the database. If you rename the file, the server starts a new one. Allowed: off, a file, - for stdout. (${default}; $$${env})"`
	KeepAudit        int           `env:"ROCKPOOL_KEEP_AUDIT" default:"365d" type:"time" placeholder:"TIME" help:"How long entries of the audit log are kept. Allowed: 1s to 3650d; 0: forever. (${default}; $$${env})"`
	KeepEvaluations  int           `env:"ROCKPOOL_KEEP_EVALUATIONS" default:"5m" type:"time" placeholder:"TIME" help:"How long the scheduler's evaluations stay visible after they ended. Allowed: 1s to 1d. (${default}; $$${env})"`
	KeepAllocations  int           `env:"ROCKPOOL_KEEP_ALLOCATIONS" default:"5m" type:"time" placeholder:"TIME" help:"How long ended allocations, and the requests for them, stay visible. Each ended runner takes about 1.4 KB of memory. Allowed: 1s to 1d. (${default}; $$${env})"`
	CgroupParent     string        `env:"ROCKPOOL_CGROUP_PARENT" default:"rockpool" placeholder:"PATH" help:"Cgroup that contains the cgroups of the runners. Allowed: rockpool, or a path below it, for example rockpool/test. (${default}; $$${env})"`
	SandboxHelper    string        `env:"ROCKPOOL_SANDBOX_HELPER" placeholder:"PATH" help:"Socket of a rockpool helper, for example /run/rockpool/sandbox.sock. The helper runs as root and makes the sandboxes; the server doesn't need root. Empty: the server makes the sandboxes, and needs root for all limits. ($$${env})"`
	Network          bool          `env:"ROCKPOOL_NETWORK" help:"Let environments on this machine have a network: access to public addresses, and exposed ports. The machine must forward packets (sysctl net.ipv4.ip_forward, for IPv6 net.ipv6.conf.all.forwarding). ($$${env})"`
	AcceptMissing    bool          `name:"accept-missing-limits" env:"ROCKPOOL_ACCEPT_MISSING_LIMITS" help:"Let a server without root start runners without those limits of memory, processes or CPU time that it can't set, because it has no control group. Otherwise such a server reports this and doesn't start. ($$${env})"`
	OnStop           string        `env:"ROCKPOOL_ON_STOP" default:"keep" placeholder:"WHAT" help:"Whether runners keep running when the server stops. Allowed: keep (the next start on the same data takes them over), remove (they end). (${default}; $$${env})"`
	StopWithin       time.Duration `env:"ROCKPOOL_STOP_WITHIN" default:"4500ms" placeholder:"TIME" help:"How long a stop may take. After that the server exits with 125, and the next start takes over or cleans up the rest. Removing many runners may take longer. 0s: the server exits immediately and stops nothing. Allowed: 0s to 1h. (4500ms; $$${env})"`
	LogLevel         string        `env:"ROCKPOOL_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Lowest level to log. Allowed: debug, info, warn, error. (${default}; $$${env})"`
	LogFormat        string        `env:"ROCKPOOL_LOG_FORMAT" default:"console" placeholder:"FORMAT" help:"Format of the log, which goes to stderr. Allowed: console, json. (${default}; $$${env})"`
	AccessLog        string        `env:"ROCKPOOL_ACCESS_LOG" default:"off" placeholder:"FILE" help:"File for the access log, which has a line of JSON for each request. If you rename the file, the server starts a new one. Allowed: off, a file, - for stdout. (${default}; $$${env})"`
	Compat           []string      `env:"ROCKPOOL_COMPAT" placeholder:"API,…" help:"APIs of other systems to serve in addition to GraphQL. Allowed: poseidon (CodeOcean), jobe (Moodle CodeRunner), mcp (AI agents). ($$${env})"`
	Languages        string        `env:"ROCKPOOL_LANGUAGES" placeholder:"FILE" complete:"file" help:"YAML file that adds languages or changes Rockpool's own: how programs are built and run, and in which environments. See docs/guides/languages.md. ($$${env})"`
	DebugAddress     string        `env:"ROCKPOOL_DEBUG_ADDRESS" placeholder:"ADDRESS" help:"Loopback address and port for Go's profiles, which are at /debug/pprof/. Empty: they aren't served. ($$${env})"`

	TLS      TLS      `embed:"" prefix:"tls-"`
	Proxies  Proxies  `embed:""`
	Disk     Disk     `embed:"" prefix:"disk-"`
	Bounds   Bounds   `embed:""`
	Runtimes Runtimes `embed:""`
	Images   Images   `embed:"" prefix:"image-"`
	Networks Network  `embed:"" prefix:"network-"`
	Nomad    Nomad    `embed:"" prefix:"nomad-"`
	OIDC     OIDC     `embed:"" prefix:"oidc-"`

	Token   string        `kong:"-"` // Check reads it from TokenFile
	Caches  string        `kong:"-"` // directory of the languages' caches; empty for one in Data
	Recipes *language.Set `kong:"-"` // Check reads them from Languages
}

// The values of Config.OnStop.
const (
	StopKeeps   = "keep"
	StopRemoves = "remove"
)

// The values of Config.Compat.
const (
	CompatJobe     = "jobe"
	CompatMCP      = "mcp"
	CompatPoseidon = "poseidon"
)

// AllCompat returns the allowed values of Config.Compat.
func AllCompat() []string { return []string{CompatPoseidon, CompatJobe, CompatMCP} }

// Check completes the configuration. It returns an [Error] for the first setting that is invalid.
func (c *Config) Check() error {
	host, err := c.checkListen()
	if err != nil {
		return err
	}
	if c.DebugAddress != "" {
		if _, err := Loopback("debug-address", c.DebugAddress, ": profiles tell much of what the server does"); err != nil {
			return err
		}
	}
	err = cmp.Or(
		within("max-body", c.MaxBody, 1<<10, 1<<30, " bytes"),
		within("alert-timeout", c.AlertTimeout, 0, 86400, " seconds"),
		within("parallel", c.Parallel, 0, 64, " runners"),
		within("keep-executions", c.KeepExecutions, 0, 315360000, " seconds"),
		within("keep-audit", c.KeepAudit, 0, 315360000, " seconds"),
		within("keep-evaluations", c.KeepEvaluations, 1, 86400, " seconds"),
		within("keep-allocations", c.KeepAllocations, 1, 86400, " seconds"),
		zeroOr("keep-bytes", c.KeepBytes, runtime.DefaultOutputLimit, 1<<50, " bytes, or 0 for no limit"), // at least the output of one execution
		within("cpu-overcommit", c.CPUOvercommit, 0.1, 1000, ", a factor"),
		within("memory-overcommit", c.MemoryOvercommit, 0.1, 1000, ", a factor"),
		within("alert-threshold", c.AlertThreshold, 0, 1, ", a share of the pool's size"),
	)
	if err != nil {
		return err
	}
	if c.CgroupParent != "rockpool" && !strings.HasPrefix(c.CgroupParent, "rockpool/") {
		return &Error{"cgroup-parent", c.CgroupParent, "rockpool, or a path below it, for example rockpool/test"}
	}
	if c.SandboxHelper != "" && (!filepath.IsAbs(c.SandboxHelper) || len(c.SandboxHelper) > 107) {
		return &Error{"sandbox-helper", c.SandboxHelper, "an absolute path of at most 107 bytes, for example /run/rockpool/sandbox.sock"}
	}
	if err := c.checkCluster(); err != nil {
		return err
	}
	public, err := c.OIDC.check()
	if err != nil {
		return err
	}
	if public != "" {
		c.AllowedHosts = append(c.AllowedHosts, public)
	}
	switch c.OnStop {
	case StopKeeps, StopRemoves:
	default:
		return &Error{"on-stop", c.OnStop, "keep or remove"}
	}
	if c.StopWithin < 0 || c.StopWithin > time.Hour {
		return &Error{"stop-within", c.StopWithin.String(), "0s to 1h"}
	}
	for _, origin := range c.AllowedOrigins {
		if u, err := url.Parse(origin); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			return &Error{"allowed-origins", origin, "origins: a scheme and a host, without a path or *, for example https://admin.example.org"}
		}
	}
	for i, api := range c.Compat {
		if !slices.Contains(AllCompat(), api) || slices.Contains(c.Compat[:i], api) {
			return &Error{"compat", api, strings.Join(AllCompat(), ", ") + ", each at most once"}
		}
	}
	if err := c.readLanguages(); err != nil {
		return err
	}
	for _, name := range c.AllowedHosts {
		if name == "" || strings.ContainsAny(name, "/:*[] ") && net.ParseIP(name) == nil {
			return &Error{"allowed-hosts", name, "names or addresses without a port or *, for example pool.example.org"}
		}
	}
	if level, err := zapcore.ParseLevel(c.LogLevel); err != nil || level > zap.ErrorLevel {
		return &Error{"log-level", c.LogLevel, "debug, info, warn or error"}
	}
	if c.LogFormat != "console" && c.LogFormat != "json" {
		return &Error{"log-format", c.LogFormat, "console or json"}
	}
	if err := cmp.Or(c.checkLogs(), c.Disk.Check(), c.Bounds.check(c.MaxBody)); err != nil {
		return err
	}
	if _, err := c.Runtimes.Parse(); err != nil {
		return err
	}
	// The server's own names are always allowed.
	c.AllowedHosts = append(c.AllowedHosts, "localhost", "127.0.0.1", "::1", host)
	if err := c.Locate(); err != nil {
		return err
	}
	if _, _, err := c.Networks.Parse(); err != nil {
		return err
	}
	if c.Cluster == ClusterNomad && len(c.Images.Registries) > 0 {
		return &Error{"image-registries", strings.Join(c.Images.Registries, ","), "left out with --cluster nomad: its nodes fetch the images"}
	}
	return c.Images.check(c.Data)
}

// LocalURL returns the server's URL on its own machine, or "" if the kernel chooses its port.
func (c *Config) LocalURL() string {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "0" {
		return ""
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	return c.TLS.Scheme() + "://" + net.JoinHostPort(host, port)
}

// Loopback checks that an address with a port is a loopback address, and returns it without the port. An
// error ends with why.
func Loopback(flag, address, why string) (string, error) {
	host, err := splitAddress(flag, address)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", &Error{flag, address, "a loopback address (localhost, 127.0.0.1 or [::1])" + why}
	}
	return host, nil
}

// splitAddress returns an address without its port.
func splitAddress(flag, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", &Error{flag, address, `an address and a port, for example "127.0.0.1:8080"`}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", &Error{flag, address, "an address and a port from 0 to 65535"}
	}
	return host, nil
}

// Locate makes Data absolute. If Data is empty, Locate chooses the directory. Check calls Locate.
func (c *Config) Locate() error {
	if c.Data == "" {
		state := os.Getenv("XDG_STATE_HOME")
		switch home := os.Getenv("HOME"); {
		case state != "":
		case uids.Root():
			state = "/var/lib"
		case home != "":
			state = filepath.Join(home, ".local/state")
		}
		if !filepath.IsAbs(state) {
			return &Error{"data", c.Data, "a directory, since neither $XDG_STATE_HOME nor $HOME names one"}
		}
		c.Data = filepath.Join(state, "rockpool")
	}
	dir, err := filepath.Abs(c.Data)
	if err != nil {
		return &Error{"data", c.Data, "a directory: " + err.Error()}
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return &Error{"data", c.Data, "a directory, or a path where one can be made"}
	}
	c.Data = dir
	return nil
}
