package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// valid is a configuration with nothing wrong.
func valid(t *testing.T) Config {
	c := Default()
	c.Listen, c.Data = "127.0.0.1:0", t.TempDir()
	return c
}

// onNomad spoils a configuration for Nomad with nothing else wrong.
func onNomad(spoil func(*Config)) func(*Config) {
	return func(c *Config) {
		c.Cluster, c.AdvertiseURL = ClusterNomad, "http://127.0.0.1:8080"
		spoil(c)
	}
}

// A wrongSetting is one that Check refuses.
type wrongSetting struct {
	name  string
	spoil func(*Config)
	says  string
}

func TestWrongSettingsAreNamed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file, token := write("file", ""), write("token", "1234567890123456")
	for _, test := range append(wrongServers(file, token, write), wrongNomads(file)...) {
		c := valid(t)
		test.spoil(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.says)
		}
	}
}

func wrongServers(file, token string, write func(name, text string) string) []wrongSetting {
	return []wrongSetting{
		{"no port", func(c *Config) { c.Listen = "127.0.0.1" }, "--listen"},
		{"port out of range", func(c *Config) { c.Listen = "127.0.0.1:70000" }, "0 to 65535"},
		{"every address", func(c *Config) { c.Listen = ":8080" }, "--token-file"},
		{"another address", func(c *Config) { c.Listen = "192.0.2.1:8080" }, "--token-file"},
		{"IPv6 any", func(c *Config) { c.Listen = "[::]:8080" }, "--token-file"},
		{"debug without a port", func(c *Config) { c.DebugAddress = "localhost" }, "--debug-address"},
		{"debug port out of range", func(c *Config) { c.DebugAddress = "127.0.0.1:x" }, "0 to 65535"},
		{"debug for all", func(c *Config) { c.DebugAddress = ":6060" }, "profiles tell"},
		{"body too small", func(c *Config) { c.MaxBody = 1 }, "--max-body"},
		{"no memory for one body", func(c *Config) { c.Bounds.BodyMemory = c.MaxBody }, "--body-memory"},
		{"endless memory", func(c *Config) { c.Bounds.BodyMemory = 1<<40 + 1 }, "--body-memory"},
		{"all connections", func(c *Config) { c.Bounds.Connections = 10_000_001 }, "--connections"},
		{"connections", func(c *Config) { c.Bounds.PeerConnections = -1 }, "--peer-connections"},
		{"operations", func(c *Config) { c.Bounds.PeerOperations = 10_000_001 }, "--peer-operations"},
		{"subscriptions", func(c *Config) { c.Bounds.PeerSubscriptions = -1 }, "--peer-subscriptions"},
		{"a token's operations", func(c *Config) { c.Bounds.TokenOperations = -1 }, "--token-operations"},
		{"a token's subscriptions", func(c *Config) { c.Bounds.TokenSubscriptions = -1 }, "--token-subscriptions"},
		{"keep-evaluations", func(c *Config) { c.KeepEvaluations = 0 }, "1 to 86400"},
		{"keep-allocations", func(c *Config) { c.KeepAllocations = 86401 }, "1 to 86400"},
		{"more than a disk gives", func(c *Config) { c.Disk.Read = 1<<20 + 1 }, "--disk-read"},
		{"less than nothing from a disk", func(c *Config) { c.Disk.Read = -1 }, "0 for no limit"},
		{"a relative runtime", func(c *Config) { c.Runtimes.GVisor = "runsc" }, "--gvisor-runtime"},
		{"a runtime's words", func(c *Config) { c.Runtimes.GVisor = "/bin/runsc x" }, "begin with -"},
		{"a runtime without a name", func(c *Config) { c.Runtimes.OCI = []string{"/bin/runc"} }, "--oci-runtimes"},
		{"gVisor by name", func(c *Config) { c.Runtimes.OCI = []string{"gvisor=/bin/runsc"} }, `except "gvisor"`},
		{"a runtime without a path", func(c *Config) { c.Runtimes.OCI = []string{"runc="} }, "absolute path"},
		{"a runtime twice", func(c *Config) { c.Runtimes.OCI = []string{"runc=/a", "runc=/b"} }, "stands twice"},
		{"image-cache-bytes", func(c *Config) { c.Images.CacheBytes = 1 }, "67108864 to"},
		{"image-bytes", func(c *Config) { c.Images.Bytes = -1 }, "1048576 to"},
		{"image-timeout", func(c *Config) { c.Images.Timeout = 86401 }, "1 to 86400"},
		{"image-stall", func(c *Config) { c.Images.Stall = 241 }, "1 to 240"},
		{"image-registries", func(c *Config) { c.Images.Registries = []string{"a.example.org", "https://a.example.org"} }, "without https://"},
		{"image-registries, a path", func(c *Config) { c.Images.Registries = []string{"a.example.org/x"} }, "--image-registries"},
		{"image-registries, all", func(c *Config) { c.Images.Registries = []string{"*"} }, "--image-registries"},
		{"image-registries, a star inside", func(c *Config) { c.Images.Registries = []string{"a.*.example.org"} }, "--image-registries"},
		{"image-ca-cert", func(c *Config) { c.Images.CACert = "/nonesuch" }, "--image-ca-cert"},
		{"image-plain-http", func(c *Config) { c.Images.PlainHTTP = []string{"http://a.example.org:5000"} }, "without http://"},
		{"image-plain-http", func(c *Config) { c.Images.PlainHTTP = []string{"a.example.org"} }, "hosts and ports"},
		{"network-pool4", func(c *Config) { c.Networks.Pool4 = "20.0.0.0/16" }, "--network-pool4"},
		{"small network-pool4", func(c *Config) { c.Networks.Pool4 = "10.213.0.0/24" }, "8 to 16 bits"},
		{"network-pool6", func(c *Config) { c.Networks.Pool6 = "fd00::/120" }, "at most 112 bits"},
		{"network-permit", func(c *Config) { c.Networks.Permit = []string{"169.254.0.0/16"} }, "a private network"},
		{"network-bandwidth", func(c *Config) { c.Networks.Bandwidth = -1 }, "1 to 100000"},
		{"network-resolver", func(c *Config) { c.Networks.Resolver = []string{"dns.example.org"} }, "--network-resolver"},
		{"network-address", func(c *Config) { c.Networks.Address = "here" }, "--network-address"},
		{"network-ports", func(c *Config) { c.Networks.Ports = "30000-20000" }, "20000-29999"},
		{"parallel", func(c *Config) { c.Parallel = 65 }, "0 to 64"},
		{"on stop", func(c *Config) { c.OnStop = "stay" }, "keep or remove"},
		{"CPU promised too often", func(c *Config) { c.CPUOvercommit = 1000.5 }, `--cpu-overcommit is "1000.5", but must be 0.1 to 1000`},
		{"no CPU", func(c *Config) { c.CPUOvercommit = 0 }, "--cpu-overcommit"},
		{"too little memory", func(c *Config) { c.MemoryOvercommit = 0.09 }, `--memory-overcommit is "0.09", but must be 0.1 to 1000`},
		{"no number of memories", func(c *Config) { c.MemoryOvercommit = math.NaN() }, "--memory-overcommit"},
		{"alert threshold", func(c *Config) { c.AlertThreshold = 1.5 }, "0 to 1"},
		{"no alert threshold", func(c *Config) { c.AlertThreshold = math.NaN() }, "--alert-threshold"},
		{"alert timeout", func(c *Config) { c.AlertTimeout = -1 }, "0 to 86400 seconds"},
		{"keep for too long", func(c *Config) { c.KeepExecutions = 315360001 }, "0 to 315360000 seconds"},
		{"keep too little", func(c *Config) { c.KeepBytes = 1 << 20 }, "16777216 to 1125899906842624 bytes, or 0 for no limit"},
		{"cgroup elsewhere", func(c *Config) { c.CgroupParent = "system.slice" }, "--cgroup-parent"},
		{"a helper somewhere", func(c *Config) { c.SandboxHelper = "sandbox.sock" }, `--sandbox-helper is "sandbox.sock", but must be an absolute path`},
		{"a helper far down", func(c *Config) { c.SandboxHelper = "/" + strings.Repeat("x", 107) }, "at most 107 bytes"},
		{"a helper for Nomad", onNomad(func(c *Config) { c.SandboxHelper = "/run/s" }), "--sandbox-helper"},
		{"any origin", func(c *Config) { c.AllowedOrigins = []string{"*"} }, "--allowed-origins"},
		{"origin with a path", func(c *Config) { c.AllowedOrigins = []string{"https://a.example.org/"} }, "--allowed-origins"},
		{"host with a port", func(c *Config) { c.AllowedHosts = []string{"a.example.org:80"} }, "--allowed-hosts"},
		{"log level", func(c *Config) { c.LogLevel = "loud" }, "debug, info, warn or error"},
		{"log level that ends the program", func(c *Config) { c.LogLevel = "panic" }, "debug, info, warn or error"},
		{"log format", func(c *Config) { c.LogFormat = "xml" }, "console or json"},
		{"data is a file", func(c *Config) { c.Data = file }, "--data"},
		{"a token that is short", func(c *Config) { c.TokenFile = write("short", "123456789012345\n") }, "--token-file"},
		{"no languages' file", func(c *Config) { c.Languages = "/nonesuch" }, `--languages is "/nonesuch", but must be a file of languages: is unreadable: no such file`},
		{"a language without a command", func(c *Config) { c.Languages = write("languages", "languages: [{id: zig, fileName: a.zig}]") }, "a file of languages: language zig: run must be a command"},
		{"a token of two words", func(c *Config) { c.TokenFile = write("words", "1234567890 1234567890") }, "--token-file"},
		{"no token's file", func(c *Config) { c.TokenFile = "/nonesuch" }, `--token-file is "/nonesuch", but must be a file that can be read: no such file`},
		{"a port, with a token", func(c *Config) { c.TokenFile, c.Listen = token, ":x" }, "0 to 65535"},
		{"every address, with a token alone", func(c *Config) { c.TokenFile, c.Listen = token, ":8080" }, "--behind-proxy"},
		{"a port, behind a proxy", func(c *Config) { c.TokenFile, c.Listen, c.Proxies.Behind = token, ":x", true }, "0 to 65535"},
		{"every address, with TLS alone", func(c *Config) { c.TLS.Cert, c.TLS.Key, c.Listen = file, file, ":8080" }, "--token-file"},
		{"every address, behind a proxy alone", func(c *Config) { c.Proxies.Behind, c.Listen = true, ":8080" }, "--token-file"},
		{"a certificate without its key", func(c *Config) { c.TLS.Cert = file }, "--tls-key"},
		{"a key without its certificate", func(c *Config) { c.TLS.Key = file }, "--tls-cert"},
		{"an old TLS", func(c *Config) { c.TLS.MinVersion = "1.1" }, `--tls-min-version is "1.1", but must be 1.3 or 1.2`},
		{"clients' authority without TLS", func(c *Config) { c.TLS.ClientCA = file }, "--tls-client-ca"},
		{"clients' certificates", func(c *Config) { c.TLS.ClientAuth = "none" }, "require or optional"},
		{"every proxy", func(c *Config) { c.Proxies.Trusted = []string{"0.0.0.0/0"} }, "--trusted-proxies"},
		{"a proxy's name", func(c *Config) { c.Proxies.Trusted = []string{"proxy.example.org"} }, "--trusted-proxies"},
		{"a network that is none", func(c *Config) { c.Proxies.Trusted = []string{"10.0.0.1/8"} }, `"10.0.0.1/8"`},
		{"an unknown API", func(c *Config) { c.Compat = []string{"window"} }, "--compat"},
		{"an API twice", func(c *Config) { c.Compat = []string{CompatJobe, CompatMCP, CompatJobe} }, "each at most once"},
		{"an access log nowhere", func(c *Config) { c.AccessLog = "/nonesuch/access.log" }, "--access-log"},
		{"no access log", func(c *Config) { c.AccessLog = "" }, "off, a file"},
	}
}

func wrongNomads(file string) []wrongSetting {
	return []wrongSetting{
		{"another cluster", func(c *Config) { c.Cluster = "kubernetes" }, "--cluster"},
		{"Nomad's address for no Nomad", func(c *Config) { c.Nomad.Address = "http://127.0.0.1:4646" }, "--nomad-address"},
		{"an address for no Nomad", func(c *Config) { c.AdvertiseURL = "http://127.0.0.1:8080" }, "--advertise-url"},
		{"nothing advertised", onNomad(func(c *Config) { c.AdvertiseURL = "" }), "--advertise-url"},
		{"advertised without a scheme", onNomad(func(c *Config) { c.AdvertiseURL = "pool.example.org:8080" }), "--advertise-url"},
		{"advertised with a password", onNomad(func(c *Config) { c.AdvertiseURL = "http://a:b@pool.example.org" }), "--advertise-url"},
		{"Nomad nowhere", onNomad(func(c *Config) { c.Nomad.Address = "127.0.0.1:4646" }), "--nomad-address"},
		{"another database", onNomad(func(c *Config) { c.Database = "mysql://u:secret@db/x" }), `--database is "…@db/x"`},
		{"a database for this machine", func(c *Config) { c.Database = "postgres://u:secret@db/x" }, "--cluster is nomad"},
		{"Nomad's password", onNomad(func(c *Config) { c.Nomad.Address = "http://u:secret@n" }), "NOMAD_HTTP_AUTH"},
		{"no CA", onNomad(func(c *Config) { c.Nomad.CACert = "/nonesuch" }), "--nomad-ca-cert"},
		{"a certificate without its key", onNomad(func(c *Config) { c.Nomad.ClientCert = file }), "--nomad-client-key"},
		{"an empty token's file", onNomad(func(c *Config) { c.Nomad.TokenFile = file }), "--nomad-token-file"},
		{"no template", onNomad(func(c *Config) { c.Nomad.Template = "/nonesuch" }), "--nomad-template"},
		{"architecture", onNomad(func(c *Config) { c.Nomad.Arch = "riscv64" }), "amd64 or arm64"},
		{"priority", onNomad(func(c *Config) { c.Nomad.Priority = 91 }), `--nomad-priority is "91", but must be 1 to 90`},
		{"no bridges", onNomad(func(c *Config) { c.Nomad.Bridges = 0 }), "--nomad-bridges"},
		{"registries", onNomad(func(c *Config) { c.Images.Registries = []string{"a.example.org"} }), "--cluster nomad"},
		{"few calls", onNomad(func(c *Config) { c.Nomad.Calls = 3 }), "--nomad-calls"},
		{"a short lock", onNomad(func(c *Config) { c.Nomad.LockTTL = 5 }), "--nomad-lock-ttl"},
	}
}

func TestValidSettingsPass(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "localhost:8080", "[::1]:8080", "127.8.9.10:80"} {
		c := valid(t)
		c.Listen = listen
		c.DebugAddress = listen
		c.AllowedOrigins = []string{"https://admin.example.org", "http://[::1]:3000"}
		c.AllowedHosts = []string{"pool.example.org", "::1"}
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

// TestATokenAndTLSLetTheServerListenAnywhere: a proxy in front may speak TLS instead.
func TestATokenAndTLSLetTheServerListenAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("  correct-horse-battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{":8080", "0.0.0.0:8080", "[::]:0", "192.0.2.1:80", "pool.example.org:80"} {
		for _, encrypt := range []func(c *Config){
			func(c *Config) { c.TLS.Cert, c.TLS.Key = "server.pem", "server.key" },
			func(c *Config) { c.Proxies.Behind = true },
		} {
			c := valid(t)
			c.Listen, c.TokenFile = listen, path
			encrypt(&c)
			if err := c.Check(); err != nil || c.Token != "correct-horse-battery" {
				t.Errorf("%s: %q, %v", listen, c.Token, err)
			}
		}
	}
}

func TestTrustedProxiesAreNetworks(t *testing.T) {
	p := Proxies{Trusted: []string{"127.0.0.1", "::ffff:10.0.0.7", "10.1.0.0/16", "fd00::/8", "2001:db8::1"}}
	networks, err := p.Networks()
	if got := fmt.Sprint(networks); err != nil || got != "[127.0.0.1/32 10.0.0.7/32 10.1.0.0/16 fd00::/8 2001:db8::1/128]" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestDataDirectoryFollowsXDG(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	c := valid(t)
	c.Data = ""
	if err := c.Check(); err != nil || c.Data != "/state/rockpool" {
		t.Errorf("%q %v", c.Data, err)
	}
}

func TestPeerListenIsAnAddressThatOthersReach(t *testing.T) {
	for _, address := range []string{"0.0.0.0:8081", ":8081", "[::]:8081", "10.0.0.5:0", "10.0.0.5", "10.0.0.5:http", "server-1.example.org:8081"} {
		c := valid(t)
		onNomad(func(c *Config) { c.PeerListen = address })(&c)
		var wrong *Error
		if err := c.Check(); !errors.As(err, &wrong) || wrong.Flag != "peer-listen" {
			t.Errorf("%s: %v", address, err)
		}
	}
	c := valid(t)
	c.PeerListen = "10.0.0.5:8081"
	var wrong *Error
	if err := c.Check(); !errors.As(err, &wrong) || wrong.Flag != "peer-listen" {
		t.Errorf("on one machine: %v", err)
	}
}

func TestValidNomadSettingsPass(t *testing.T) {
	c := valid(t)
	onNomad(func(c *Config) { c.AdvertiseURL = "https://pool.example.org:8443/" })(&c)
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.AllowedHosts, "pool.example.org") {
		t.Errorf("hosts %q", c.AllowedHosts)
	}
	for _, settings := range []func(*Config){
		func(c *Config) { c.OnStop = StopRemoves },
		func(c *Config) { c.AdvertiseURL, c.Nomad.AgentPath = "", "/agent" },
		func(c *Config) { c.AdvertiseURL, c.Nomad.StreamAgent, c.Nomad.NoNetworkMode = "", true, "host" },
		func(c *Config) { c.PeerListen = "10.0.0.5:8081" },
		func(c *Config) { c.Database = "postgres://rockpool:secret@a,b:5433/pool?sslmode=require" },
	} {
		c := valid(t)
		onNomad(settings)(&c)
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}
	onNomad(func(c *Config) { c.Nomad.StreamAgent, c.Nomad.AgentPath = true, "/agent" })(&c)
	var wrong *Error
	if err := c.Check(); !errors.As(err, &wrong) || wrong.Flag != "nomad-agent-path" {
		t.Errorf("an agent's path without an agent: %v", err)
	}
}

func TestPrivateReadsTheSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "data: /srv/pool\ncgroup-parent: rockpool/mine\nlisten: 0.0.0.0:80\ntls-cert: /nonesuch\naccess-log: /nonesuch/log\ntls-min-version: 1.3\non-stop: keep\nparallel: 3\nlog-level: warn\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ROCKPOOL_DATA", "ROCKPOOL_CGROUP_PARENT", "ROCKPOOL_LOG_LEVEL"} {
		t.Setenv(name, "")
		_ = os.Unsetenv(name)
	}
	t.Setenv("ROCKPOOL_CONFIG", file)
	c, err := Private("")
	if err != nil || c.Data != "/srv/pool" || c.CgroupParent != "rockpool/mine" || c.Parallel != 3 || c.LogLevel != "warn" || c.Listen != "127.0.0.1:0" || c.OnStop != StopRemoves {
		t.Errorf("%+v %v", c, err)
	}
	if err := os.WriteFile(file, []byte("parallel: 65\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Private(""); err == nil || !strings.Contains(err.Error(), file+":1: parallel") {
		t.Errorf("%v", err)
	}
}

// TestDefault: what a server does for which nobody set anything, whatever the variables say.
func TestDefault(t *testing.T) {
	t.Setenv("ROCKPOOL_PARALLEL", "7")
	c := Default()
	if c.Parallel != 0 || c.Listen != "127.0.0.1:8080" || c.Cluster != ClusterLocal || c.OnStop != StopKeeps || c.Nomad.Bridges != 80 || c.Disk.Read != 128 {
		t.Errorf("%+v", c)
	}
}

func TestLocalURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080", "localhost:81": "http://localhost:81", "192.0.2.1:81": "http://192.0.2.1:81",
		"0.0.0.0:81": "http://127.0.0.1:81", ":81": "http://127.0.0.1:81", "[::]:81": "http://[::1]:81", "[::1]:81": "http://[::1]:81",
		"127.0.0.1:0": "", "nonsense": "",
	} {
		c := Config{Listen: listen}
		if got := c.LocalURL(); got != want {
			t.Errorf("%s: got %q, want %q", listen, got, want)
		}
	}
	c := Config{Listen: ":443", TLS: TLS{Cert: "server.pem"}}
	if got := c.LocalURL(); got != "https://127.0.0.1:443" {
		t.Errorf("with TLS: got %q, want \"https://127.0.0.1:443\"", got)
	}
}

func TestCheckReadsTheLanguages(t *testing.T) {
	c := valid(t)
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	own := len(c.Recipes.All())
	c = valid(t)
	c.Languages = filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(c.Languages, []byte("languages: [{id: zig, fileName: a.zig, run: [zig]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if _, known := c.Recipes.ByID("zig"); !known || len(c.Recipes.All()) != own+1 {
		t.Errorf("%d languages, %d without a file", len(c.Recipes.All()), own)
	}
}
