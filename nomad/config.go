package nomad

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// Config says which Nomad is used, and how runners are made there. What isn't
// set has the default that is told.
type Config struct {
	API    API
	Logger *zap.Logger
	Dir    string // where the ownership lock's id is kept, so that a restarted server goes on at once; "": nowhere
	Prefix string // of the names of all that is ours in Nomad: "rockpool"
	Remove bool   // the end of Run ends all runners

	UIURL string // of Nomad's own pages as browsers reach them: the API's address

	Agent Agent // what runs in the runners

	// How the built-in template makes runners. An environment that is stored keeps
	// what it was stored with.
	Driver      Driver   // docker
	User        string   // that the task runs as; "": root on docker and podman, else the driver's default
	Datacenters []string // every one
	NodePool    string   // Nomad's default
	Constraints []string // such as "${attr.kernel.name} = linux"
	NetworkMode string   // of runners with network access: "bridge", "cni/NAME" or "host"; "": the driver's own
	// NoNetworkMode is the mode of the group's network of runners without network
	// access, with the driver exec alone, which can't keep them from it itself: "none".
	// Nomad 1.11 fails on that; there it is "cni/NAME" of one that has but a loopback
	// interface, or "host", which leaves them the machine's.
	NoNetworkMode string
	ForcePull     bool // images are pulled anew for each runner
	// MemoryReserve is the share of its memory limit that a runner reserves; the
	// rest is memory_max, for clusters that allow oversubscription. 1
	MemoryReserve float64
	Priority      int    // of jobs that refill a pool, 1 to 90: 50; a claim's are 10 above
	Restarts      int    // of a task before it is given up: 0
	Reschedules   int    // of an allocation before it is given up: 0
	Template      []byte // an own job, in HCL or JSON, in place of the built-in template

	Parallel      int           // registrations at once: 8
	Calls         int           // other calls at once: 16
	Bridges       int           // connections for bridges: 80
	DirectTimeout time.Duration // for a connection to a client node itself; 0: none is tried, all goes through the servers
	Patience      time.Duration // how long a call is tried again while Nomad doesn't answer: 10 s
	Relist        time.Duration // between looks without a hint: 30 s
	LockTTL       time.Duration // after which a standby takes over from a server that is dead: 10 s

	// Of tests, whose Nomad isn't real.
	dial   dialer
	bridge func(ctx context.Context, allocation string) (session, error)
}

// API says how Nomad is reached. Fields that are empty are taken from the
// variables NOMAD_ADDR, NOMAD_TOKEN and so on, as Nomad's own command does.
type API struct {
	Address       string // "http://127.0.0.1:4646"
	Region        string
	Namespace     string
	Token         string
	CACert        string // paths of PEM files
	ClientCert    string
	ClientKey     string
	TLSServerName string
}

// An Agent says how a task gets its agent: fetched by Nomad, there already, or
// not at all.
type Agent struct {
	URL    string // of its archive, permanent, without a query: Nomad's clients fetch it, hours later too
	SHA256 string // of the archive, in hex
	Arch   string // that it runs on, as Nomad names it: "amd64"
	Path   string // in the image, in place of URL
	// None says that it can't be there: then commands run through Nomad's own exec
	// (package plain), which is slower, and can do less. The task needs a command of
	// its own that lasts; where the template has none it sleeps.
	None bool
}

// A Driver is one of Nomad's task drivers.
type Driver string

// The drivers. RawExec is unsafe: it keeps runners apart neither from each
// other nor from the machine.
const (
	Docker  Driver = "docker"
	Podman  Driver = "podman"
	Exec    Driver = "exec"
	RawExec Driver = "raw_exec"
)

var prefixes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

// complete returns c with its defaults, or INVALID_INPUT with the first field
// that can't be used.
func (c Config) complete() (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, "rockpool")
	c.Driver = cmp.Or(c.Driver, Docker)
	c.MemoryReserve = cmp.Or(c.MemoryReserve, 1)
	c.NoNetworkMode = cmp.Or(c.NoNetworkMode, "none")
	c.Priority = cmp.Or(c.Priority, 50)
	c.Parallel = cmp.Or(c.Parallel, 8)
	c.Calls = cmp.Or(c.Calls, 16)
	c.Bridges = cmp.Or(c.Bridges, 80)
	c.Patience = cmp.Or(c.Patience, 10*time.Second)
	c.Relist = cmp.Or(c.Relist, 30*time.Second)
	c.LockTTL = cmp.Or(c.LockTTL, 10*time.Second)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if len(c.Datacenters) == 0 {
		c.Datacenters = []string{"*"}
	}
	switch c.Driver {
	case Docker, Podman, Exec, RawExec:
	default:
		return c, runtime.Invalid("driver", "must be docker, podman, exec or raw_exec, not %q", c.Driver)
	}
	if !prefixes.MatchString(c.Prefix) {
		return c, runtime.Invalid("prefix", "must be 1 to 32 letters, digits, '_' and '-', beginning with a letter or a digit")
	}
	for _, b := range []struct {
		field            string
		value, low, high int64
		unit             string
	}{
		{"priority", int64(c.Priority), 1, 90, "(jobs of claims that wait have 10 more)"},
		{"restarts", int64(c.Restarts), 0, 10, "restarts"},
		{"reschedules", int64(c.Reschedules), 0, 10, "reschedules"},
		{"parallel", int64(c.Parallel), 1, 64, "registrations"},
		{"calls", int64(c.Calls), 4, 256, "calls"},
		{"bridges", int64(c.Bridges), 1, 100_000, "connections"},
		{"directTimeout", c.DirectTimeout.Milliseconds(), 0, 60_000, "milliseconds"},
		{"patience", c.Patience.Milliseconds(), 100, 600_000, "milliseconds"},
		{"relist", c.Relist.Milliseconds(), 100, 600_000, "milliseconds"},
		{"lockTTL", int64(c.LockTTL / time.Second), 10, 3600, "seconds"}, // Nomad takes no less
	} {
		if err := runtime.Between(b.field, b.value, b.low, b.high, b.unit); err != nil {
			return c, err
		}
	}
	if !(c.MemoryReserve >= 0.01 && c.MemoryReserve <= 1) { // not a number is neither
		return c, runtime.Invalid("memoryReserve", "must be 0.01 to 1, a share of the memory limit, not %g", c.MemoryReserve)
	}
	if err := checkUI(c.UIURL); err != nil {
		return c, err
	}
	return c, c.Agent.check()
}

var sums = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (a Agent) check() error {
	if a.Path != "" || a.None {
		return nil
	}
	u, err := url.Parse(a.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return runtime.Invalid("agent.url", "must be an http or https address without a query or a password, which Nomad's clients reach")
	}
	if !sums.MatchString(a.SHA256) {
		return runtime.Invalid("agent.sha256", "must be 64 hexadecimal digits, the checksum of the agent")
	}
	return nil
}

// String leaves secrets out, wherever a Config is printed.
func (a API) String() string {
	if u, err := url.Parse(a.Address); err == nil {
		u.User = nil
		return fmt.Sprintf("Nomad at %s", u)
	}
	return "Nomad"
}

// GoString is String.
func (a API) GoString() string { return a.String() }
