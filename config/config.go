// Package config has a server's settings: their flags, variables and keys in the
// settings file, their defaults, and their checks. No other package knows a default.
package config

import (
	"fmt"
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

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// Config are a server's settings. Each is a flag of rockpool serve, a variable,
// or a key of the settings file.
type Config struct {
	Listen           string        `env:"ROCKPOOL_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address and port to serve on, on loopback unless --token-file is set, and --tls-cert or --behind-proxy. Port 0: any free port. (${default}; $$${env})"`
	Data             string        `env:"ROCKPOOL_DATA" placeholder:"DIR" help:"Directory for everything that is kept. ($$XDG_STATE_HOME/rockpool, as root /var/lib/rockpool, else ~/.local/state/rockpool; $$${env})"`
	TokenFile        string        `env:"ROCKPOOL_TOKEN_FILE" placeholder:"FILE" complete:"file" help:"File with the first administrator's token, at least 16 characters; needed to serve beyond loopback. Other tokens: rockpool token create. ($$${env})"`
	Cluster          string        `env:"ROCKPOOL_CLUSTER" default:"local" placeholder:"KIND" help:"Where runners are: local, on this machine, or nomad. (${default}; $$${env})"`
	AdvertiseURL     string        `env:"ROCKPOOL_ADVERTISE_URL" placeholder:"URL" help:"This server's address as Nomad's clients reach it, to fetch the agent. ($$${env})"`
	Database         string        `env:"ROCKPOOL_DATABASE" placeholder:"URL" help:"PostgreSQL database that the servers on one Nomad share, for example postgres://rockpool@db/rockpool: each that leads has the executions and output of those before it. A password is best in ~/.pgpass. Empty: what a server ran is in its --data. ($$${env})"`
	PeerListen       string        `env:"ROCKPOOL_PEER_LISTEN" placeholder:"ADDRESS" help:"IP address of this machine and port for other servers on the same Nomad: they pass their requests on to the server that leads. Only servers should reach it. Empty: nothing is passed on, and a server waits until it leads. ($$${env})"`
	AllowedHosts     []string      `env:"ROCKPOOL_ALLOWED_HOSTS" placeholder:"NAME,…" help:"Names that requests may have in the Host header, beside localhost and the address itself. ($$${env})"`
	AllowedOrigins   []string      `env:"ROCKPOOL_ALLOWED_ORIGINS" placeholder:"ORIGIN,…" help:"Origins of web pages that may use the API, beside the server's own, for example https://admin.example.org. ($$${env})"`
	NoIntrospection  bool          `env:"ROCKPOOL_NO_INTROSPECTION" help:"Don't show the schema, and suggest no names of it. ($$${env})"`
	MaxBody          int64         `env:"ROCKPOOL_MAX_BODY" default:"33554432" type:"size" placeholder:"SIZE" help:"Bytes of a request at most, 1024 to 1073741824; uploaded files don't count. (${default}; $$${env})"`
	Parallel         int           `env:"ROCKPOOL_PARALLEL" default:"0" placeholder:"N" help:"Runners started at once, 1 to 64; 0: as many as there are CPUs. (${default}; $$${env})"`
	CPUOvercommit    float64       `name:"cpu-overcommit" env:"ROCKPOOL_CPU_OVERCOMMIT" default:"250" placeholder:"FACTOR" help:"How often the machine's CPU is promised to runners, 0.1 to 1000. What has no room waits, and says so. (${default}; $$${env})"`
	MemoryOvercommit float64       `env:"ROCKPOOL_MEMORY_OVERCOMMIT" default:"8" placeholder:"FACTOR" help:"How often its memory is, 0.1 to 1000; what runners use together must fit in it all the same. (${default}; $$${env})"`
	AlertThreshold   float64       `env:"ROCKPOOL_ALERT_THRESHOLD" default:"0.5" placeholder:"SHARE" help:"Share of a pool's size, 0 to 1, under which its idle runners are too few. (${default}; $$${env})"`
	AlertTimeout     int           `env:"ROCKPOOL_ALERT_TIMEOUT" default:"60" type:"time" placeholder:"TIME" help:"How long they must be too few until the pool alerts, and the cluster is asked again, 0 to 86400; 0: no alerts. (${default}; $$${env})"`
	KeepExecutions   int           `env:"ROCKPOOL_KEEP_EXECUTIONS" default:"604800" type:"time" placeholder:"TIME" help:"How long finished executions and their output are kept, 0 to 315360000; 0: for ever. (${default}; $$${env})"`
	KeepBytes        int64         `env:"ROCKPOOL_KEEP_BYTES" default:"10737418240" type:"size" placeholder:"SIZE" help:"Bytes that executions and their output may take, 16777216 to 1125899906842624: the oldest finished ones go first; where none is left, output is lost and says so. 0: any. (${default}; $$${env})"`
	AuditLog         string        `env:"ROCKPOOL_AUDIT_LOG" default:"off" placeholder:"FILE" complete:"file" help:"Where lines of JSON copy the audit log, which is in the database: off, a file, or - for stdout. Renaming the file starts a new one. (${default}; $$${env})"`
	KeepAudit        int           `env:"ROCKPOOL_KEEP_AUDIT" default:"31536000" type:"time" placeholder:"TIME" help:"How long entries of the audit log are kept, 0 to 315360000; 0: for ever. (${default}; $$${env})"`
	KeepEvaluations  int           `env:"ROCKPOOL_KEEP_EVALUATIONS" default:"300" type:"time" placeholder:"TIME" help:"How long the scheduler's evaluations can be looked at after they ended, 1 to 86400. (${default}; $$${env})"`
	KeepAllocations  int           `env:"ROCKPOOL_KEEP_ALLOCATIONS" default:"300" type:"time" placeholder:"TIME" help:"How long places that runners had, and the wishes for them, can be, 1 to 86400: some 5.5 KB of memory for each runner that came and went. (${default}; $$${env})"`
	CgroupParent     string        `env:"ROCKPOOL_CGROUP_PARENT" default:"rockpool" placeholder:"PATH" help:"Cgroup below which runners get theirs: rockpool, or one below it. (${default}; $$${env})"`
	SandboxHelper    string        `env:"ROCKPOOL_SANDBOX_HELPER" placeholder:"PATH" help:"Socket of a rockpool helper, which makes the sandboxes of a server that isn't root. Else the server makes them, and must be root. ($$${env})"`
	Network          bool          `env:"ROCKPOOL_NETWORK" help:"Let environments of this machine have a network: egress to what is public, and exposed ports. ($$${env})"`
	AcceptMissing    bool          `name:"accept-missing-limits" env:"ROCKPOOL_ACCEPT_MISSING_LIMITS" help:"Let a server that isn't root start runners without the limits of memory, processes or CPU time that it can't set, for want of a control group. Else it says so, and doesn't start. ($$${env})"`
	OnStop           string        `env:"ROCKPOOL_ON_STOP" default:"keep" placeholder:"WHAT" help:"What becomes of runners when the server stops: keep leaves them running for the next start on the same data, remove ends them. (${default}; $$${env})"`
	StopWithin       time.Duration `env:"ROCKPOOL_STOP_WITHIN" default:"4500ms" placeholder:"TIME" help:"How long a stop may take, 0s to 1h. After that the server exits with 125, and the next start takes over, or cleans up, what is left. Removing many runners may take longer. (4500ms; $$${env})"`
	LogLevel         string        `env:"ROCKPOOL_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Least level to log: debug, info, warn or error. (${default}; $$${env})"`
	LogFormat        string        `env:"ROCKPOOL_LOG_FORMAT" default:"console" placeholder:"FORMAT" help:"How to log, to stderr: console or json. (${default}; $$${env})"`
	AccessLog        string        `env:"ROCKPOOL_ACCESS_LOG" default:"off" placeholder:"FILE" help:"Where each request is logged as a line of JSON: off, a file, or - for stdout. Renaming the file starts a new one. (${default}; $$${env})"`
	Doors            []string      `env:"ROCKPOOL_DOORS" placeholder:"DOOR,…" help:"APIs of other systems to serve beside the own one: poseidon (for CodeOcean), jobe (for Moodle CodeRunner), mcp (for AI agents). ($$${env})"`
	Languages        string        `env:"ROCKPOOL_LANGUAGES" placeholder:"FILE" complete:"file" help:"YAML file of languages beside those that Rockpool knows, and of changes of those: how programs are built and run, and in which environments. ($$${env})"`
	DebugAddress     string        `env:"ROCKPOOL_DEBUG_ADDRESS" placeholder:"ADDRESS" help:"Loopback address and port to serve Go's profiles on, at /debug/pprof/; else none are. ($$${env})"`

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
	Recipes *language.Set `kong:"-"` // Check reads them from Languages
}

// The values of Config.OnStop.
const (
	StopKeeps   = "keep"
	StopRemoves = "remove"
)

// The values of Config.Doors.
const (
	DoorJobe     = "jobe"
	DoorMCP      = "mcp"
	DoorPoseidon = "poseidon"
)

// AllDoors returns what Config.Doors can have.
func AllDoors() []string { return []string{DoorPoseidon, DoorJobe, DoorMCP} }

// Check completes the configuration, and returns a Error for the
// first setting that can't be used.
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
	for _, b := range []struct {
		flag             string
		value, low, high int64
		unit             string
	}{
		{"max-body", c.MaxBody, 1 << 10, 1 << 30, "bytes"},
		{"alert-timeout", int64(c.AlertTimeout), 0, 86400, "seconds"},
		{"parallel", int64(c.Parallel), 0, 64, "runners"},
		{"keep-executions", int64(c.KeepExecutions), 0, 315360000, "seconds"},
		{"keep-audit", int64(c.KeepAudit), 0, 315360000, "seconds"},
		{"keep-evaluations", int64(c.KeepEvaluations), 1, 86400, "seconds"},
		{"keep-allocations", int64(c.KeepAllocations), 1, 86400, "seconds"},
	} {
		if b.value < b.low || b.value > b.high {
			return &Error{b.flag, strconv.FormatInt(b.value, 10), fmt.Sprintf("%d to %d %s", b.low, b.high, b.unit)}
		}
	}
	if c.KeepBytes != 0 && (c.KeepBytes < minKeepBytes || c.KeepBytes > maxKeepBytes) {
		return &Error{"keep-bytes", strconv.FormatInt(c.KeepBytes, 10), fmt.Sprintf("%d to %d bytes, or 0 for any", minKeepBytes, int64(maxKeepBytes))}
	}
	for _, factor := range []struct {
		flag  string
		value float64
	}{{"cpu-overcommit", c.CPUOvercommit}, {"memory-overcommit", c.MemoryOvercommit}} {
		if !(factor.value >= 0.1 && factor.value <= 1000) { // not a number is neither
			return &Error{factor.flag, strconv.FormatFloat(factor.value, 'g', -1, 64), "0.1 to 1000, a factor"}
		}
	}
	if !(c.AlertThreshold >= 0 && c.AlertThreshold <= 1) { // not a number is neither
		return &Error{"alert-threshold", strconv.FormatFloat(c.AlertThreshold, 'g', -1, 64), "0 to 1, a share of the pool's size"}
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
	for i, door := range c.Doors {
		if !slices.Contains(AllDoors(), door) || slices.Contains(c.Doors[:i], door) {
			return &Error{"doors", door, strings.Join(AllDoors(), ", ") + ", each at most once"}
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
	if err := c.checkLogs(); err != nil {
		return err
	}
	if err := c.Disk.Check(); err != nil {
		return err
	}
	if _, err := c.Runtimes.Programs(); err != nil {
		return err
	}
	if err := c.Bounds.check(c.MaxBody); err != nil {
		return err
	}
	c.AllowedHosts = append(c.AllowedHosts, "localhost", "127.0.0.1", "::1", host)
	if err := c.Locate(); err != nil {
		return err
	}
	if _, _, err := c.Networks.Parse(); err != nil {
		return err
	}
	if c.Cluster == ClusterNomad && len(c.Images.Registries) > 0 {
		return &Error{"image-registries", strings.Join(c.Images.Registries, ","), "left out with --cluster nomad, whose nodes fetch images by themselves"}
	}
	return c.Images.check(c.Data)
}

// LocalURL returns where a server with these settings is reached on its own machine; "" if
// the kernel chooses its port.
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

// Loopback checks an address and a port, and returns the address.
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

// Bounds of Config.KeepBytes: the least is what one execution may print by
// default.
const (
	minKeepBytes = runtime.DefaultOutputLimit
	maxKeepBytes = 1 << 50
)

// Locate makes Data absolute. Where it is empty, Locate chooses the directory. Check calls it.
func (c *Config) Locate() error {
	if c.Data == "" {
		state := os.Getenv("XDG_STATE_HOME")
		switch home := os.Getenv("HOME"); {
		case state != "":
		case os.Geteuid() == 0:
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
