// Package nomadtest runs a real Nomad for tests: a server and a client, on
// loopback, with data, ports, drivers and users of their own. Whatever it started
// is gone after Close, also what its tasks started. It needs root.
//
// They are two processes, as in a cluster, and the client's begins when the
// server leads and can sign: in one, the client's first registration mostly
// comes too early, and its next 15 to 30 s later.
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

// patience is how long each of them may take to be ready: together it is 3 s on a
// quiet machine.
const patience = 2 * time.Minute

// Image is what Docker knows where the driver "docker" is on: the programs that
// the tasks of the driver "exec" find, too.
const Image = "rockpool-test:1"

// BareImage is Image without /bin/sh.
const BareImage = "rockpool-test-bare:1"

// ConfiguredImage is Image with variables, a PATH, a working directory, a user and a volume of its own.
const ConfiguredImage = "rockpool-test-configured:1"

// Options say how a Nomad is set up. The zero value has the driver raw_exec, and
// neither users nor certificates.
type Options struct {
	// Drivers are those that are on: raw_exec, exec, docker. Default: raw_exec.
	Drivers []string
	// ACL has Nomad demand tokens; Token is one with the policy of docs/guides/nomad.md.
	ACL bool
	// TLS has Nomad demand certificates, of an authority of its own.
	TLS bool
	// Namespace is made, and what the policy is about. Default: default.
	Namespace string
	// Connections is http_max_conns_per_client. Default: 2000; Nomad's own is 100.
	Connections int
	// Programs are more of the machine's programs that tasks of the drivers exec
	// and docker find.
	Programs []string
	// Files are more of the machine's files, absolute paths, that these tasks find
	// at the same place.
	Files []string

	// Networks are CNI's configurations by the names of their files; with any, the
	// client has bridges and CNI's plugins of Debian's package containernetworking-plugins.
	Networks map[string]string

	// Volumes lets jobs of docker mount volumes.
	Volumes bool
}

// A Nomad is one that runs. Its methods are for one goroutine at a time.
type Nomad struct {
	options    Options
	dir        string // everything of it is below
	slot       *slot
	files      *files   // certificates, where there are any
	server     *process // these three may be nil, or not have been started
	client     *process
	second     *process // another client
	docker     *process
	api        *api.Client
	management string
	token      string
}

// Start starts a Nomad for one test, and ends it with the test. What it logged
// is shown where the test fails.
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

// A Shared starts a Nomad when the first test of a package asks for it: a
// variable of the package, closed by its TestMain.
type Shared struct {
	Options Options

	once  sync.Once
	nomad *Nomad
	err   error
}

// Nomad returns the one that the package's tests share.
func (s *Shared) Nomad(t testing.TB) *Nomad {
	t.Helper()
	need.Nomad(t)
	s.once.Do(func() { s.nomad, s.err = Open(context.Background(), s.Options) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.nomad
}

// Close ends it, if it was started.
func (s *Shared) Close() error {
	if s.nomad == nil {
		return nil
	}
	return s.nomad.Close()
}

// Open starts a Nomad, and waits until it takes jobs for each of its drivers.
// Whoever calls it must call Close.
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
	// Tasks are below, and those of unprivileged users come through.
	if err := os.Chmod(n.dir, 0o711); err != nil {
		return err
	}
	// So do commands of raw_exec tasks, to their own directories.
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

// build returns Nomad's binary.
func build(ctx context.Context) (string, error) {
	here, err := source()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(here, "../../scripts/nomad"))
	cmd.Stderr = os.Stderr // it may take minutes, and says so
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// Address is the URL of its API.
func (n *Nomad) Address() string {
	scheme := "http"
	if n.options.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, n.slot.ports.server.http)
}

// Spare is an address for a server that has to say where it is before it listens:
// nobody else takes it until Close.
func (n *Nomad) Spare() string { return address(n.slot.ports.spare) }

// Dir has everything of it: what its tasks are is in client/alloc below.
func (n *Nomad) Dir() string { return n.dir }

// Namespace is the one that its policy is about.
func (n *Nomad) Namespace() string { return n.options.Namespace }

// Token is the secret of a token that has Policy only; empty without ACL.
func (n *Nomad) Token() string { return n.token }

// ManagementToken is the secret of one that may do anything; empty without ACL.
func (n *Nomad) ManagementToken() string { return n.management }

// TLS names the files for a client: the authority's certificate, its own, its
// key; empty without TLS.
func (n *Nomad) TLS() (ca, cert, key string) {
	if n.files == nil {
		return "", "", ""
	}
	return n.files.ca, n.files.clientCert, n.files.clientKey
}

// Config returns what a client of this Nomad needs, with this token.
func (n *Nomad) Config(token string) *api.Config {
	ca, cert, key := n.TLS()
	return &api.Config{
		Address: n.Address(), Namespace: n.options.Namespace, SecretID: token,
		TLSConfig: &api.TLSConfig{CACert: ca, ClientCert: cert, ClientKey: key},
	}
}

// API is a client that may do anything.
func (n *Nomad) API() *api.Client { return n.api }

// tail is how many bytes of a log are shown.
const tail = 16 << 10

// Log returns the end of what the server and the client logged.
func (n *Nomad) Log() string {
	var text strings.Builder
	for _, name := range []string{"server.log", "client.log"} {
		log, _ := os.ReadFile(n.path(name))
		fmt.Fprintf(&text, "%s:\n%s\n", name, log[max(0, len(log)-tail):])
	}
	return text.String()
}

// Close ends it with everything that it started.
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

func (n *Nomad) has(driver string) bool { return slices.Contains(n.options.Drivers, driver) }

func (n *Nomad) path(name string) string { return filepath.Join(n.dir, name) }

func (n *Nomad) root() string { return n.path("root") }
