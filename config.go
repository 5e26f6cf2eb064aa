package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rockpool/rockpool/graph"
)

// Config are a server's settings. Each is a flag of rockpool serve, or a
// variable.
type Config struct {
	Listen          string   `env:"ROCKPOOL_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address and port to serve on, a loopback address. Port 0: any that is free. (${default}; $$${env})"`
	Data            string   `env:"ROCKPOOL_DATA" placeholder:"DIR" help:"Directory for everything that is kept. ($$XDG_STATE_HOME/rockpool, as root /var/lib/rockpool; $$${env})"`
	AllowedHosts    []string `env:"ROCKPOOL_ALLOWED_HOSTS" placeholder:"NAME,…" help:"Names in the Host header that are answered beside localhost and the address itself. ($$${env})"`
	AllowedOrigins  []string `env:"ROCKPOOL_ALLOWED_ORIGINS" placeholder:"ORIGIN,…" help:"Web pages that may use the API beside the server's own, for example https://admin.example.org. ($$${env})"`
	NoIntrospection bool     `env:"ROCKPOOL_NO_INTROSPECTION" help:"Don't show the schema, and suggest no names of it. ($$${env})"`
	MaxBody         int64    `env:"ROCKPOOL_MAX_BODY" default:"33554432" placeholder:"BYTES" help:"Bytes of a request at most, 1024 to 1073741824. (${default}; $$${env})"`
	Parallel        int      `env:"ROCKPOOL_PARALLEL" default:"0" placeholder:"N" help:"Runners started at once, 1 to 64; 0: as many as there are CPUs. (${default}; $$${env})"`
	CgroupParent    string   `env:"ROCKPOOL_CGROUP_PARENT" default:"rockpool" placeholder:"PATH" help:"Cgroup below which runners get theirs: rockpool, or one below it. (${default}; $$${env})"`
	LogLevel        string   `env:"ROCKPOOL_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Least level to log: debug, info, warn or error. (${default}; $$${env})"`
	LogFormat       string   `env:"ROCKPOOL_LOG_FORMAT" default:"console" placeholder:"FORMAT" help:"How to log, to stderr: console or json. (${default}; $$${env})"`
}

// A settingError says which setting is wrong, and what is allowed.
type settingError struct {
	flag    string // without dashes
	value   string
	allowed string
}

func (e *settingError) Error() string {
	return fmt.Sprintf("--%s is %q, but must be %s", e.flag, e.value, e.allowed)
}

// at names the place that the wrong value stands in: the flag if it was given,
// else the variable.
func (e *settingError) at(selected *kong.Context) error {
	place := "the default of --" + e.flag
	variable := "ROCKPOOL_" + strings.ToUpper(strings.ReplaceAll(e.flag, "-", "_"))
	if _, set := os.LookupEnv(variable); set {
		place = variable
	}
	for _, part := range selected.Path {
		if part.Flag != nil && part.Flag.Name == e.flag {
			place = "--" + e.flag
		}
	}
	return fmt.Errorf("%s is %q, but must be %s", place, e.value, e.allowed)
}

// Check completes the configuration, and returns a settingError for the
// first setting that can't be used.
func (c *Config) Check() error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return &settingError{"listen", c.Listen, `an address and a port, for example "127.0.0.1:8080"`}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return &settingError{"listen", c.Listen, "an address and a port from 0 to 65535"}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &settingError{"listen", c.Listen,
			"a loopback address (localhost, 127.0.0.1 or [::1]) until there is access control: whoever reaches the server can run programs on it"}
	}
	for _, b := range []struct {
		flag             string
		value, low, high int64
		unit             string
	}{
		{"max-body", c.MaxBody, 1 << 10, 1 << 30, "bytes"},
		{"parallel", int64(c.Parallel), 0, 64, "runners"},
	} {
		if b.value < b.low || b.value > b.high {
			return &settingError{b.flag, strconv.FormatInt(b.value, 10), fmt.Sprintf("%d to %d %s", b.low, b.high, b.unit)}
		}
	}
	if c.CgroupParent != "rockpool" && !strings.HasPrefix(c.CgroupParent, "rockpool/") {
		return &settingError{"cgroup-parent", c.CgroupParent, "rockpool, or a path below it, for example rockpool/test"}
	}
	for _, origin := range c.AllowedOrigins {
		if u, err := url.Parse(origin); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			return &settingError{"allowed-origins", origin, "origins: a scheme and a host, without a path or *, for example https://admin.example.org"}
		}
	}
	for _, name := range c.AllowedHosts {
		if name == "" || strings.ContainsAny(name, "/:*[] ") && net.ParseIP(name) == nil {
			return &settingError{"allowed-hosts", name, "names or addresses without a port or *, for example pool.example.org"}
		}
	}
	if level, err := zapcore.ParseLevel(c.LogLevel); err != nil || level > zap.ErrorLevel {
		return &settingError{"log-level", c.LogLevel, "debug, info, warn or error"}
	}
	if c.LogFormat != "console" && c.LogFormat != "json" {
		return &settingError{"log-format", c.LogFormat, "console or json"}
	}
	c.AllowedHosts = append(c.AllowedHosts, "localhost", "127.0.0.1", "::1", host)
	return c.locate()
}

// locate chooses the data directory where none is named.
func (c *Config) locate() error {
	if c.Data == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" && os.Geteuid() == 0 {
			state = "/var/lib"
		}
		if !filepath.IsAbs(state) {
			return &settingError{"data", c.Data, "a directory, since $XDG_STATE_HOME names none"}
		}
		c.Data = filepath.Join(state, "rockpool")
	}
	dir, err := filepath.Abs(c.Data)
	if err != nil {
		return &settingError{"data", c.Data, "a directory: " + err.Error()}
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return &settingError{"data", c.Data, "a directory, or a path where one can be made"}
	}
	c.Data = dir
	return nil
}

func (c *Config) logger() (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(level)
	config.DisableStacktrace = true
	config.Sampling = nil // an error's id must be found
	config.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	if config.Encoding = c.LogFormat; config.Encoding == "console" {
		config.DisableCaller = true
	}
	return config.Build()
}

func (c *Config) graphOptions(logger *zap.Logger) graph.Options {
	return graph.Options{
		Version: version(), AllowedHosts: c.AllowedHosts, AllowedOrigins: c.AllowedOrigins, NoIntrospection: c.NoIntrospection, Logger: logger,
		Settings: graph.Settings{MaxBody: c.MaxBody},
	}
}
