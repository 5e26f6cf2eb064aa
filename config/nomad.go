package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/rockpool/rockpool/agent/embedded"
)

// The values of Config.Cluster.
const (
	ClusterLocal = "local"
	ClusterNomad = "nomad"
)

// Nomad are the settings of a server whose runners are on Nomad. Nomad's own variables (NOMAD_ADDR and so on)
// replace empty settings.
type Nomad struct {
	Address       string   `env:"ROCKPOOL_NOMAD_ADDRESS" placeholder:"URL" help:"Nomad's address. Set a user and password with NOMAD_HTTP_AUTH, not here. ($$NOMAD_ADDR, else http://127.0.0.1:4646; $$${env})"`
	Namespace     string   `env:"ROCKPOOL_NOMAD_NAMESPACE" placeholder:"NAME" help:"Namespace of the runners' jobs. ($$NOMAD_NAMESPACE, else default; $$${env})"`
	Region        string   `env:"ROCKPOOL_NOMAD_REGION" placeholder:"NAME" help:"Region of the runners' jobs. ($$NOMAD_REGION, else the server's own; $$${env})"`
	TokenFile     string   `env:"ROCKPOOL_NOMAD_TOKEN_FILE" placeholder:"FILE" complete:"file" help:"File with the ACL token. docs/guides/nomad.md has its policy. (the token in $$NOMAD_TOKEN; $$${env})"`
	CACert        string   `name:"ca-cert" env:"ROCKPOOL_NOMAD_CA_CERT" placeholder:"FILE" complete:"file" help:"PEM file with the authority that signed Nomad's certificate. ($$NOMAD_CACERT; $$${env})"`
	ClientCert    string   `env:"ROCKPOOL_NOMAD_CLIENT_CERT" placeholder:"FILE" complete:"file" help:"PEM file with the certificate that the server shows to Nomad. ($$NOMAD_CLIENT_CERT; $$${env})"`
	ClientKey     string   `env:"ROCKPOOL_NOMAD_CLIENT_KEY" placeholder:"FILE" complete:"file" help:"PEM file with the private key of --nomad-client-cert. ($$NOMAD_CLIENT_KEY; $$${env})"`
	TLSServerName string   `name:"tls-server-name" env:"ROCKPOOL_NOMAD_TLS_SERVER_NAME" placeholder:"NAME" help:"Name that Nomad's certificate must have. ($$NOMAD_TLS_SERVER_NAME; $$${env})"`
	UIURL         string   `name:"ui-url" env:"ROCKPOOL_NOMAD_UI_URL" placeholder:"URL" help:"Address of Nomad's web UI as browsers reach it, for links from the dashboard, for example https://nomad.example.org. (Nomad's address; $$${env})"`
	Prefix        string   `env:"ROCKPOOL_NOMAD_PREFIX" default:"rockpool" placeholder:"NAME" help:"Prefix of the names of jobs and variables. One server at a time works with one prefix and namespace. Further servers wait until it is gone, or forward their requests to it (--peer-listen). (${default}; $$${env})"`
	Driver        string   `env:"ROCKPOOL_NOMAD_DRIVER" default:"docker" placeholder:"NAME" help:"Task driver. Allowed: docker, podman, exec, raw_exec (unsafe). (${default}; $$${env})"`
	User          string   `env:"ROCKPOOL_NOMAD_USER" placeholder:"NAME" help:"User of the task. The agent needs root, or the rights to become root, to give programs their own user. (root for docker and podman, else the driver's own; $$${env})"`
	Datacenters   []string `env:"ROCKPOOL_NOMAD_DATACENTERS" placeholder:"NAME,…" help:"Datacenters to run in. (all; $$${env})"`
	NodePool      string   `env:"ROCKPOOL_NOMAD_NODE_POOL" placeholder:"NAME" help:"Node pool to run in. (Nomad's default; $$${env})"`
	Constraints   []string `sep:";" env:"ROCKPOOL_NOMAD_CONSTRAINTS" placeholder:"TEXT;…" help:"Constraints on nodes, each an attribute, an operator and a value, as in Nomad's jobs. ($$${env})"`
	NetworkMode   string   `env:"ROCKPOOL_NOMAD_NETWORK_MODE" placeholder:"MODE" help:"Network of runners with network access. Allowed: bridge, host, cni/NAME. (the driver's own; $$${env})"`
	NoNetworkMode string   `env:"ROCKPOOL_NOMAD_NO_NETWORK_MODE" default:"none" placeholder:"MODE" help:"Network of runners without network access, for the driver exec only. Allowed: none (fails on Nomad 1.11), cni/NAME (of a network with only a loopback interface), host (runners keep the machine's network). (${default}; $$${env})"`
	Workspace     string   `env:"ROCKPOOL_NOMAD_WORKSPACE" default:"tmpfs" placeholder:"KIND" help:"Kind of /workspace and /tmp with the driver docker. Allowed: tmpfs (files in it can't be executed by their own name), volume (they can; Nomad's clients must allow volumes). (${default}; $$${env})"`
	NodeImages    bool     `env:"ROCKPOOL_NOMAD_NODE_IMAGES" help:"Let each node run the image that it has under the image's name. Otherwise the server looks the image up at its registry when an environment is put, and pins it for all nodes. ($$${env})"`
	ForcePull     bool     `env:"ROCKPOOL_NOMAD_FORCE_PULL" help:"Pull the image again for each runner. ($$${env})"`
	MemoryReserve float64  `env:"ROCKPOOL_NOMAD_MEMORY_RESERVE" default:"1" placeholder:"SHARE" help:"Share of its memory limit that a runner reserves. Less than 1 needs Nomad's memory oversubscription. Allowed: 0.01 to 1. (${default}; $$${env})"`
	Priority      int      `env:"ROCKPOOL_NOMAD_PRIORITY" default:"50" placeholder:"N" help:"Priority of jobs that refill a pool. Jobs for waiting claims have 10 more. Allowed: 1 to 90. (${default}; $$${env})"`
	Restarts      int      `env:"ROCKPOOL_NOMAD_RESTARTS" default:"0" placeholder:"N" help:"Restarts of a task before it is given up. Allowed: 0 to 10. (${default}; $$${env})"`
	Reschedules   int      `env:"ROCKPOOL_NOMAD_RESCHEDULES" default:"0" placeholder:"N" help:"Reschedules of a runner before it is given up. Allowed: 0 to 10. (${default}; $$${env})"`
	Template      string   `env:"ROCKPOOL_NOMAD_TEMPLATE" placeholder:"FILE" complete:"file" help:"File with a job, in HCL or JSON, that replaces the built-in job of runners. ($$${env})"`
	AgentPath     string   `env:"ROCKPOOL_NOMAD_AGENT_PATH" placeholder:"PATH" help:"Path of the agent in images that already have it. Empty: Nomad fetches the agent from --advertise-url. ($$${env})"`
	StreamAgent   bool     `env:"ROCKPOOL_NOMAD_STREAM_AGENT" help:"Stream the agent into runners with alloc exec, if Nomad's clients can't reach --advertise-url. ($$${env})"`
	Arch          string   `env:"ROCKPOOL_NOMAD_ARCH" placeholder:"NAME" help:"Architecture of the nodes. Allowed: amd64, arm64. (the server's own; $$${env})"`
	Bridges       int      `env:"ROCKPOOL_NOMAD_BRIDGES" default:"80" placeholder:"N" help:"Connections to Nomad for runners; claimed runners go first. Keep it below Nomad's http_max_conns_per_client, which is 100 by default. Allowed: 1 to 100000. (${default}; $$${env})"`
	Calls         int      `env:"ROCKPOOL_NOMAD_CALLS" default:"16" placeholder:"N" help:"Other concurrent calls to Nomad. Allowed: 4 to 256. (${default}; $$${env})"`
	DirectTimeout int      `env:"ROCKPOOL_NOMAD_DIRECT_TIMEOUT" default:"0" type:"time" unit:"ms" placeholder:"TIME" help:"How long to try to reach a node directly, before all traffic goes through Nomad's servers. Allowed: 1ms to 60s; 0: never directly. (${default}; $$${env})"`
	LockTTL       int      `name:"lock-ttl" env:"ROCKPOOL_NOMAD_LOCK_TTL" default:"10s" type:"time" placeholder:"TIME" help:"Time to live of the server's lock. A server that can't renew it for this long exits. A standby takes over from a dead server after twice this time, because Nomad doubles it. Allowed: 10s to 1h. (${default}; $$${env})"`

	Token string `kong:"-"` // Check reads it from TokenFile
	Job   []byte `kong:"-"` // Check reads it from Template
}

// checkCluster checks the settings of the cluster.
func (c *Config) checkCluster() error {
	switch c.Cluster {
	case ClusterLocal, ClusterNomad:
	default:
		return &Error{"cluster", c.Cluster, "local or nomad"}
	}
	if c.Cluster == ClusterLocal {
		for _, s := range []struct{ flag, value string }{
			{"nomad-address", c.Nomad.Address}, {"nomad-token-file", c.Nomad.TokenFile}, {"nomad-template", c.Nomad.Template}, {"advertise-url", c.AdvertiseURL}, {"peer-listen", c.PeerListen},
			{"database", redacted(c.Database)},
		} {
			if s.value != "" {
				return &Error{s.flag, s.value, "left out unless --cluster is nomad"}
			}
		}
		return nil
	}
	if c.PeerListen != "" {
		host, err := splitAddress("peer-listen", c.PeerListen)
		if ip := net.ParseIP(host); err == nil && (ip == nil || ip.IsUnspecified() || strings.HasSuffix(c.PeerListen, ":0")) {
			err = &Error{"peer-listen", c.PeerListen, `an IP address of this machine alone and a port, for example "10.0.0.5:8081"`}
		}
		if err != nil {
			return err
		}
	}
	if u, err := url.Parse(c.Database); c.Database != "" && (err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "") {
		return &Error{"database", redacted(c.Database), "a URL of PostgreSQL, for example postgres://rockpool@db.example.org/rockpool"}
	}
	if c.SandboxHelper != "" {
		return &Error{"sandbox-helper", c.SandboxHelper, "left out unless --cluster is local"}
	}
	if err := c.checkAdvertised(); err != nil {
		return err
	}
	return c.Nomad.check()
}

// redacted returns a URL without the part that can have a password.
func redacted(url string) string {
	if at := strings.LastIndexByte(url, '@'); at >= 0 {
		return "…" + url[at:]
	}
	return url
}

// checkAdvertised checks the URL from which Nomad's clients fetch the agent.
func (c *Config) checkAdvertised() error {
	if c.Nomad.StreamAgent && c.Nomad.AgentPath != "" {
		return &Error{"nomad-agent-path", c.Nomad.AgentPath, "left out with --nomad-stream-agent"}
	}
	if c.AdvertiseURL == "" && (c.Nomad.AgentPath != "" || c.Nomad.StreamAgent) {
		return nil
	}
	u, err := url.Parse(c.AdvertiseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return &Error{"advertise-url", redacted(c.AdvertiseURL), "this server's URL for Nomad's clients, for example http://rockpool.example.org:8080; or set --nomad-agent-path, if images contain the agent, or --nomad-stream-agent"}
	}
	// Nomad's clients send this host when they fetch the agent.
	c.AllowedHosts = append(c.AllowedHosts, u.Hostname())
	return nil
}

// check checks the settings. It reads Token and Job from their files, and sets the default of Arch.
func (n *Nomad) check() (err error) {
	if n.Address != "" {
		if at := strings.LastIndexByte(n.Address, '@'); at >= 0 {
			return &Error{"nomad-address", "…" + n.Address[at:], "without a user or password, which everybody on the machine could see: set NOMAD_HTTP_AUTH"}
		}
		u, err := url.Parse(n.Address)
		if err != nil || !slices.Contains([]string{"http", "https", "unix"}, u.Scheme) {
			return &Error{"nomad-address", n.Address, "a URL, for example http://127.0.0.1:4646"}
		}
	}
	for _, file := range []struct{ flag, path string }{
		{"nomad-ca-cert", n.CACert}, {"nomad-client-cert", n.ClientCert}, {"nomad-client-key", n.ClientKey},
	} {
		if file.path == "" {
			continue
		}
		if _, err := os.ReadFile(file.path); err != nil {
			return &Error{file.flag, file.path, "a file that can be read: " + reason(err)}
		}
	}
	if (n.ClientCert == "") != (n.ClientKey == "") {
		return &Error{"nomad-client-key", n.ClientKey, "given with --nomad-client-cert, and only then"}
	}
	if n.TokenFile != "" {
		if n.Token, err = readToken("nomad-token-file", n.TokenFile, 1); err != nil {
			return err
		}
	}
	if n.Template != "" {
		if n.Job, err = os.ReadFile(n.Template); err != nil {
			return &Error{"nomad-template", n.Template, "a file that can be read: " + reason(err)}
		}
	}
	if n.Arch == "" {
		n.Arch = goruntime.GOARCH
	}
	if !slices.Contains(embedded.Arches, n.Arch) {
		return &Error{"nomad-arch", n.Arch, strings.Join(embedded.Arches, " or ")}
	}
	return cmp.Or(
		within("nomad-lock-ttl", n.LockTTL, 10, 3600, " seconds"),
		within("nomad-priority", n.Priority, 1, 90, ""), // 0 would select a default of package nomad
		within("nomad-bridges", n.Bridges, 1, 100_000, ""),
		within("nomad-calls", n.Calls, 4, 256, ""),
	)
}

// readToken reads a secret of at least this many characters from a file. An error never has any part of the
// secret.
func readToken(flag, path string, least int) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", &Error{flag, path, "a file that can be read: " + reason(err)}
	}
	token := strings.TrimSpace(string(text))
	odd := strings.ContainsFunc(token, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' })
	if len(token) < least || len(token) > 4096 || odd {
		return "", &Error{flag, path, fmt.Sprintf("a file with a token of %d to 4096 visible ASCII characters", least)}
	}
	return token, nil
}

// reason returns an error's text without the path, which the caller has already named.
func reason(err error) string {
	if at, ok := errors.AsType[*os.PathError](err); ok {
		return at.Err.Error()
	}
	return err.Error()
}
