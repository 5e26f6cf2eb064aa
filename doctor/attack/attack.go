// Package attack has a corpus of attacks on a server's isolation, and runs them. The directory corpus
// has them as data; layers.go and interfaces.go have those that send images and invalid bytes. It uses
// the API like any client, in runners of its own environments, and uploads a small hostile program,
// the prober.
//
// An attack says what runs in the runner, which output shows that it was stopped, and which defence
// stops it. After every attack, the package also checks the outside. The server and a neighbour must
// respond. No output may contain the machine's secret, and the files around it must be unchanged.
// Nothing of the runner may remain.
package attack

import (
	"cmp"
	"embed"
	"errors"
	"io/fs"
	"slices"

	"github.com/rockpool/rockpool/runtime"
)

//go:embed bin
var embedded embed.FS

// Prober returns the embedded hostile program. If this program was built without it, the error says
// what to do.
func Prober() ([]byte, error) {
	data, err := embedded.ReadFile("bin/prober")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(`this program was built without the prober: run "make build"`)
	}
	return data, err
}

// A Class is the kind of an attack's goal.
type Class string

// The classes.
const (
	Resources Class = "resources" // to exceed the runner's resources
	Accounts  Class = "accounts"  // to exhaust resources that the kernel counts for the whole machine
	Processes Class = "processes" // to outlive, fake or delay its own end
	Escapes   Class = "escapes"   // to reach the machine's files, or the agent
	Kernel    Class = "kernel"    // to use system calls with a history of vulnerabilities
	Network   Class = "network"   // to reach other machines or runners
	Residue   Class = "residue"   // to find data of other runners
	Interface Class = "interface" // to misuse the API or the agent's protocol
)

// Classes returns all classes, in the order of the corpus.
func Classes() []Class {
	return []Class{Interface, Escapes, Kernel, Network, Residue, Processes, Resources, Accounts}
}

// A Defence is the mechanism that stops an attack. Other defences may also stop it.
type Defence string

// The defences. A test removes each one and checks that an attack then succeeds, or says why that
// is impossible.
const (
	Filter       Defence = "the system call filter"
	Capabilities Defence = "an empty bounding set"
	NoPrivileges Defence = "no new privileges"
	OtherUser    Defence = "commands run as another user than the agent"
	HiddenAgent  Defence = "the agent can't be read"
	Descriptors  Defence = "no inherited descriptors"
	Marked       Defence = "processes have a group that they can't leave"
	Frames       Defence = "frames have a maximum size"

	OwnUsers   Defence = "its own users"
	OwnNetwork Defence = "its own network"
	OwnIPC     Defence = "its own shared memory"
	OwnName    Defence = "its own host name"
	OwnGroups  Defence = "its own cgroup root"
	OwnClock   Defence = "its own clocks"
	OwnFiles   Defence = "no files of the machine"
	Masked     Defence = "hidden files of /proc"
	Mounts     Defence = "mounts without set-user-id programs and devices"
	UserLimits Defence = "limits per user"
	Terminals  Defence = "the number of terminals"
	Watchers   Defence = "the inotify limit"
	Buffers    Defence = "the limit of network buffers"
	DiskReads  Defence = "the disk read limit"
	OpenFiles  Defence = "the limit of open files"
	Uncounted  Defence = "the agent checks memory that no control group counts"
	Netlink    Defence = "netlink sockets are counted"
	Ended      Defence = "System V objects are removed after the last command"

	MemoryLimit  Defence = "the memory limit"
	ProcessLimit Defence = "the process limit"
	CPULimit     Defence = "the CPU share"
	Room         Defence = "the sizes of file systems"
	OutputLimit  Defence = "the output limit"
	TimeLimit    Defence = "the time limit"
	FileLimits   Defence = "limits of open files and file sizes"

	Denied       Defence = "networks that no runner can reach"
	Machine      Defence = "no address of the machine is reachable"
	Runners      Defence = "runners can't reach each other"
	OwnAddress   Defence = "only packets from its own address"
	Protocols    Defence = "only TCP, UDP and ICMP echo"
	Answers      Defence = "exposed ports can't open connections"
	Narrowed     Defence = "only addresses that the environment allows"
	Rebinding    Defence = "names don't resolve to denied addresses"
	Connections  Defence = "the connection limit"
	NoNeighbours Defence = "no other addresses on its link"
	Bandwidth    Defence = "the bandwidth limit"

	ZygoteUser Defence = "a loaded interpreter runs as another user than commands"
	Checked    Defence = "programs from a loaded interpreter are checked before they run"
	Fallback   Defence = "without a working loaded interpreter, programs start normally"
	Forked     Defence = "a loaded interpreter forks for each command, with a new random state"

	Inputs Defence = "input checks of the API"
	Layers Defence = "images are unpacked only inside their directory"
)

// An Attack is one row of the corpus.
type Attack struct {
	Name     string // unique
	Class    Class
	Tries    string // the goal: "to …"
	Steps    []Step
	Held     string // regular expression that the output matches if the attack was stopped
	Never    string // regular expression that it then doesn't match, if there is one
	GVisor   string // Held for gVisor, if it differs
	Distinct bool   // the outputs of all steps must differ
	Defence  Defence

	// Tiers are the isolation tiers to which Defence and Held apply, nil for all. In other tiers the
	// attack is skipped, and the report says so.
	Tiers []runtime.Isolation

	// Anywhere marks attacks that the agent and the API stop with any cluster, also
	// [runtime.IsolationCluster].
	Anywhere bool

	Reach Reach // network access of its runners
	Warm  bool  // its runners have Python loaded (warm.go)

	// Bomb marks attacks that could harm the machine if a limit didn't hold. They run only after
	// the runner's limits have been read back.
	Bomb bool

	// Disk marks attacks that only a machine with limits on disk reads stops. On other machines
	// they are skipped.
	Disk bool

	// Gentle marks attacks that leave nothing in their runner, even if they succeed. They share a
	// runner, one after the other.
	Gentle bool
}

// In reports whether the attack applies to a tier.
func (a Attack) In(tier runtime.Isolation) bool {
	if tier == runtime.IsolationCluster {
		return a.Anywhere
	}
	return a.Tiers == nil || slices.Contains(a.Tiers, tier)
}

// Harmless reports whether the attack changes only its runner, even if it succeeds and the runner has
// the machine's own files. A harmless attack doesn't run as root and doesn't upload to such files.
func (a Attack) Harmless() bool {
	return !slices.ContainsFunc(a.Steps, func(s Step) bool {
		return s.root || s.kind == images || s.kind == uploads && a.Name != uploadThroughLink
	})
}

// heldIn returns the output pattern of the stopped attack in a tier.
func (a Attack) heldIn(tier runtime.Isolation) string {
	if tier == runtime.IsolationGVisor && a.GVisor != "" {
		return a.GVisor
	}
	return a.Held
}

// uploadThroughLink writes only next to the bait, even if it succeeds.
const uploadThroughLink = "an upload through a link"

// Segments has the keys of the System V shared memory that attacks use.
var Segments = []int{77007, 77008}

// Corpus returns all attacks, class by class.
func Corpus() []Attack {
	all := interfaces()
	for _, topic := range []string{"escapes", "files"} {
		all = append(all, load(topic)...)
	}
	all = append(all, layers()...)
	for _, topic := range []string{"kernel", "networks", "online", "residue", "warm", "processes", "resources", "accounts"} {
		all = append(all, load(topic)...)
	}
	slices.SortStableFunc(all, func(a, b Attack) int {
		return cmp.Compare(slices.Index(Classes(), a.Class), slices.Index(Classes(), b.Class))
	})
	return all
}
