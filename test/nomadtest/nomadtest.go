// Package nomadtest runs a real Nomad for tests: a server and a client on loopback, with their own
// data, ports, drivers and users. Close removes everything that they and their tasks started. It
// needs root.
//
// Server and client are two processes, as in a cluster. The client starts when the server is the
// leader and can sign. In one process, the client's first registration mostly comes too early, and
// the next one 15 to 30 s later.
package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/test/need"
)

// patience is the time in which each process must be ready. Together they take 3 s on a quiet
// machine.
const patience = 2 * time.Minute

// Image is an image that Docker has if the driver "docker" is enabled. It has the same programs as
// tasks of the driver "exec".
const Image = "rockpool-test:1"

// BareImage is Image without /bin/sh.
const BareImage = "rockpool-test-bare:1"

// ConfiguredImage is Image with its own variables, PATH, working directory, user and volume.
const ConfiguredImage = "rockpool-test-configured:1"

// Options configure a Nomad. The zero value has the driver raw_exec, and neither users nor
// certificates.
type Options struct {
	// Drivers are the enabled drivers: raw_exec, exec, docker. Default: raw_exec.
	Drivers []string
	// ACL makes Nomad require tokens. Token returns one with the policy of docs/guides/nomad.md.
	ACL bool
	// TLS makes Nomad require certificates of its own authority.
	TLS bool
	// Namespace is created, and the policy is for it. Default: default.
	Namespace string
	// Connections is http_max_conns_per_client. Default: 2000; Nomad's own is 100.
	Connections int
	// Programs are additional programs of this machine for tasks of the drivers exec and docker.
	Programs []string
	// Files are additional files of this machine, as absolute paths, for these tasks.
	Files []string

	// Networks are CNI configurations by file name. With any, the client has bridges, and CNI's plugins
	// of Debian's package containernetworking-plugins.
	Networks map[string]string

	// Volumes allows jobs of the driver docker to mount volumes.
	Volumes bool
}

// A Nomad is a running Nomad. Its methods aren't safe for concurrent use.
type Nomad struct {
	options    Options
	dir        string // parent of all its files
	slot       *slot
	files      *files   // certificates, if there are any
	server     *process // these three may be nil, or not started
	client     *process
	second     *process // another client
	docker     *process
	api        *api.Client
	management string
	token      string
}

// Start starts a Nomad for one test, and stops it at the test's end. If the test fails, it prints
// Nomad's log.
func Start(t testing.TB, o Options) *Nomad {
	t.Helper()
	need.Nomad(t)
	n, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Nomad's log:\n%s", n.Log())
		}
		if err := n.Close(); err != nil {
			t.Errorf("end Nomad: %v", err)
		}
	})
	return n
}

// A Shared starts a Nomad for the first test of a package that uses it. It is a variable of the
// package; the package's TestMain closes it.
type Shared struct {
	Options Options

	once  sync.Once
	nomad *Nomad
	err   error
}

// Nomad returns the Nomad that the package's tests share.
func (s *Shared) Nomad(t testing.TB) *Nomad {
	t.Helper()
	need.Nomad(t)
	s.once.Do(func() { s.nomad, s.err = Open(context.Background(), s.Options) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.nomad
}

// Close stops the Nomad, if it was started.
func (s *Shared) Close() error {
	if s.nomad == nil {
		return nil
	}
	return s.nomad.Close()
}

// Open starts a Nomad, and waits until it accepts jobs for each of its drivers. The caller must
// call Close.
func Open(ctx context.Context, o Options) (*Nomad, error) {
	if len(o.Drivers) == 0 {
		o.Drivers = []string{"raw_exec"}
	}
	if o.Namespace == "" {
		o.Namespace = api.DefaultNamespace
	}
	if o.Connections == 0 {
		o.Connections = 2000
	}
	n := &Nomad{options: o}
	if err := n.open(ctx); err != nil {
		err = fmt.Errorf("start a Nomad: %w\n%s", err, n.Log())
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// open starts everything. After an error, Close removes the parts that were started.
func (n *Nomad) open(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	binary, err := build(ctx)
	if err != nil {
		return err
	}
	if n.dir, err = os.MkdirTemp("", "rockpool-nomad-"); err != nil {
		return err
	}
	// Tasks of unprivileged users pass through this directory.
	if err := os.Chmod(n.dir, 0o711); err != nil {
		return err
	}
	// So do commands of raw_exec tasks.
	if err := os.Mkdir(n.path("client"), 0o711); err != nil {
		return err
	}
	if n.slot, err = takeSlot(n.dir); err != nil {
		return err
	}
	if n.options.TLS {
		if n.files, err = makeCertificates(filepath.Join(n.dir, "tls")); err != nil {
			return err
		}
	}
	if n.has("exec") || n.has("docker") {
		if err := makeRoot(ctx, n.root(), n.options.Programs, n.options.Files); err != nil {
			return err
		}
	}
	if n.has("docker") {
		if err := n.startDocker(ctx); err != nil {
			return fmt.Errorf("docker: %w", err)
		}
	}
	if err := n.writeNetworks(); err != nil {
		return err
	}
	if err := n.writeConfigs(); err != nil {
		return err
	}
	n.server = &process{binary: binary, args: []string{"agent", "-config", n.path("server.json")}, log: n.path("server.log")}
	n.client = &process{binary: binary, args: []string{"agent", "-config", n.path("client.json")}, log: n.path("client.log")}
	if n.options.ACL {
		n.management = uuid.NewString()
	}
	if n.api, err = api.NewClient(n.Config(n.management)); err != nil {
		return err
	}
	if err := n.server.start(); err != nil {
		return err
	}
	if n.options.ACL {
		if err := n.makeToken(ctx); err != nil {
			return err
		}
	}
	if err := n.serverReady(ctx); err != nil {
		return err
	}
	if n.options.Namespace != api.DefaultNamespace {
		if _, err := n.api.Namespaces().Register(&api.Namespace{Name: n.options.Namespace}, nil); err != nil {
			return err
		}
	}
	return n.RestartClient(ctx)
}

// build returns the path of Nomad's binary.
func build(ctx context.Context) (string, error) {
	here, err := source()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(here, "../../scripts/nomad"))
	cmd.Stderr = os.Stderr // it may take minutes, and prints that
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// Address returns the URL of its API.
func (n *Nomad) Address() string {
	scheme := "http"
	if n.options.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, n.slot.ports.server.http)
}

// Spare returns an address for a server that must know its address before it listens. Nothing else
// gets it until Close.
func (n *Nomad) Spare() string { return address(n.slot.ports.spare) }

// Dir returns the parent of all its files. Tasks have theirs in client/alloc below it.
func (n *Nomad) Dir() string { return n.dir }

// Namespace returns the namespace of its policy.
func (n *Nomad) Namespace() string { return n.options.Namespace }

// Token returns the secret of a token with Policy only; empty without ACL.
func (n *Nomad) Token() string { return n.token }

// ManagementToken returns the secret of a token without restrictions; empty without ACL.
func (n *Nomad) ManagementToken() string { return n.management }

// TLS returns a client's files: the authority's certificate, its own, its key; empty without TLS.
func (n *Nomad) TLS() (ca, cert, key string) {
	if n.files == nil {
		return "", "", ""
	}
	return n.files.ca, n.files.clientCert, n.files.clientKey
}

// Config returns the settings of a client of this Nomad with a token.
func (n *Nomad) Config(token string) *api.Config {
	ca, cert, key := n.TLS()
	return &api.Config{
		Address: n.Address(), Namespace: n.options.Namespace, SecretID: token,
		TLSConfig: &api.TLSConfig{CACert: ca, ClientCert: cert, ClientKey: key},
	}
}

// API returns a client without restrictions.
func (n *Nomad) API() *api.Client { return n.api }

// tail is how many bytes of a log are printed.
const tail = 16 << 10

// Log returns the end of the logs of server and client.
func (n *Nomad) Log() string {
	var text strings.Builder
	for _, name := range []string{"server.log", "client.log"} {
		log, _ := os.ReadFile(n.path(name))
		fmt.Fprintf(&text, "%s:\n%s\n", name, log[max(0, len(log)-tail):])
	}
	return text.String()
}

// Close stops Nomad and everything that it started.
func (n *Nomad) Close() error {
	var errs []error
	if n.api != nil {
		n.api.Close()
	}
	errs = append(errs, n.Kill())
	if n.docker != nil {
		errs = append(errs, n.stopDocker())
	}
	if n.dir != "" {
		errs = append(errs, sweep(n.dir))
	}
	if n.slot != nil {
		errs = append(errs, n.slot.free())
	}
	return errors.Join(errs...)
}

// has reports whether a driver is enabled.
func (n *Nomad) has(driver string) bool { return slices.Contains(n.options.Drivers, driver) }

// path returns the path of a file in this Nomad's directory.
func (n *Nomad) path(name string) string { return filepath.Join(n.dir, name) }

// root returns the directory that becomes the root of tasks of the drivers exec and docker.
func (n *Nomad) root() string { return n.path("root") }
