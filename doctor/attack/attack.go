// Package attack has a corpus of attacks on a server's isolation, and runs them. The directory corpus
// has them as data. It uses the API like any client, in runners of its own environments, and uploads a
// small hostile program, the prober.
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
	Defence  string // the mechanism that stops it; others may stop it, too

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

// Corpus returns all attacks, class by class.
func Corpus() []Attack {
	var all []Attack
	for _, topic := range []string{
		"interfaces", "escapes", "files", "layers", "kernel", "networks", "online", "residue", "warm", "processes", "resources", "accounts",
	} {
		all = append(all, load(topic)...)
	}
	slices.SortStableFunc(all, func(a, b Attack) int {
		return cmp.Compare(slices.Index(Classes(), a.Class), slices.Index(Classes(), b.Class))
	})
	return all
}
