// Package attack is a corpus of attacks on a server's isolation, as data, and
// what carries them out: through the API, as any client would, in runners of
// environments of its own, with a small hostile program that it puts there.
//
// An attack says what runs inside, what must be seen of it if it was held off,
// and which defence holds it. What must not have happened outside is looked at
// after every attack: the server and a neighbour answer, a secret of the
// machine's was nowhere seen, what lies beside it is as it was, and nothing is
// left of the runner.
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

// Prober returns the hostile program that was built into this one, and an error
// that says what to do if it wasn't.
func Prober() ([]byte, error) {
	data, err := embedded.ReadFile("bin/prober")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(`the prober isn't built in: run "make build"`)
	}
	return data, err
}

// A Class is what an attack is after.
type Class string

// The classes.
const (
	Resources Class = "resources" // to take more than there is for one
	Accounts  Class = "accounts"  // to take what the machine has once for all
	Processes Class = "processes" // to outlive, fake or hold up its own end
	Escapes   Class = "escapes"   // to reach the machine's files, or the agent
	Kernel    Class = "kernel"    // to use calls that have been the way into kernels
	Network   Class = "network"   // to reach somebody
	Residue   Class = "residue"   // to find what others left
	Interface Class = "interface" // to have the server do what it shouldn't
)

// Classes returns all of them, in the order in which they are tried.
func Classes() []Class {
	return []Class{Interface, Escapes, Kernel, Network, Residue, Processes, Resources, Accounts}
}

// A Defence is what holds an attack off. Others may stand behind it.
type Defence string

// The defences. A test takes each away, and sees an attack succeed, or says why it
// can't.
const (
	Filter       Defence = "the filter of system calls"
	Capabilities Defence = "an empty bounding set"
	NoPrivileges Defence = "no new privileges"
	OtherUser    Defence = "commands are another user than the agent"
	HiddenAgent  Defence = "the agent can't be read"
	Descriptors  Defence = "no inherited descriptors"
	Marked       Defence = "processes are known by a group that they can't leave"
	Frames       Defence = "frames have a largest size"

	OwnUsers   Defence = "users of its own"
	OwnNetwork Defence = "a network of its own"
	OwnIPC     Defence = "shared memory of its own"
	OwnName    Defence = "a host name of its own"
	OwnGroups  Defence = "control groups are its own root"
	OwnClock   Defence = "clocks of its own"
	OwnFiles   Defence = "no files of the machine"
	Masked     Defence = "hidden files of /proc"
	Mounts     Defence = "mounts without set-user-id programs and devices"
	UserLimits Defence = "limits of what is charged to a user"
	Terminals  Defence = "the number of terminals"
	Watchers   Defence = "the limit of inotify"
	Buffers    Defence = "the limit of network buffers"
	DiskReads  Defence = "the limit of reads from disks"
	OpenFiles  Defence = "the limit of open files"
	Uncounted  Defence = "the agent looks at what no control group counts"
	Netlink    Defence = "netlink sockets are counted"
	Ended      Defence = "what System V has ends with the last command"

	MemoryLimit  Defence = "the memory limit"
	ProcessLimit Defence = "the process limit"
	CPULimit     Defence = "the CPU share"
	Room         Defence = "sizes of file systems"
	OutputLimit  Defence = "the output limit"
	TimeLimit    Defence = "the time limit"
	FileLimits   Defence = "limits of open files and file sizes"

	Denied       Defence = "networks that no runner reaches"
	Machine      Defence = "the machine isn't reached at any address"
	Runners      Defence = "runners don't reach each other"
	OwnAddress   Defence = "packets from its own address only"
	Protocols    Defence = "TCP, UDP and echoes only"
	Answers      Defence = "exposed ports answer, and begin nothing"
	Narrowed     Defence = "what the environment allows, and no more"
	Rebinding    Defence = "names don't lead where no runner goes"
	Connections  Defence = "the limit of connections"
	NoNeighbours Defence = "no way to places beside its own"
	Bandwidth    Defence = "the bandwidth"

	ZygoteUser Defence = "a loaded interpreter is another user than commands"
	Checked    Defence = "what starts from a loaded interpreter is checked before it runs"
	Fallback   Defence = "what can't start from a loaded interpreter is executed"
	Forked     Defence = "a loaded interpreter forks for each command, with new random state"

	Inputs Defence = "checks of what the API takes"
	Layers Defence = "images are unpacked beneath their directory"
)

// An Attack is one row of the corpus.
type Attack struct {
	Name    string // unique
	Class   Class
	Tries   string // what it is about: "to …"
	Steps   []Step
	Held    string // a regular expression, which what is seen matches if it was held off
	Never   string // likewise, which it doesn't match; "": anything
	GVisor  string // what Held is with gVisor, where something else may be seen; "": the same
	Apart   bool   // what is seen of each step must differ from that of the others
	Defence Defence

	// Tiers are those in which the defence is this one and what is seen is this;
	// nil: all. In others the attack isn't tried, and the report says so.
	Tiers []runtime.Isolation

	// Anywhere is for attacks that the agent and the API hold off, whatever makes the
	// runners: another cluster's, too ([runtime.IsolationCluster]).
	Anywhere bool

	Reach Reach // what its runners have of the network
	Warm  bool  // its runners have python loaded (warm.go)

	// Bomb is an attack that could harm the machine if a limit didn't hold: it is
	// tried only after the limits were read back, from a runner that is in them.
	Bomb bool

	// Disk is an attack that a machine holds off where it can limit what is read from its
	// disks. On others it isn't tried.
	Disk bool

	// Gentle is an attack that leaves nothing in its runner, even if it succeeds:
	// those are tried in the same one, one after the other.
	Gentle bool
}

// In reports whether an attack is for a tier.
func (a Attack) In(tier runtime.Isolation) bool {
	if tier == runtime.IsolationCluster {
		return a.Anywhere
	}
	return a.Tiers == nil || slices.Contains(a.Tiers, tier)
}

// Harmless reports whether an attack, should it succeed, changes nothing but its
// runner where that has the machine's own files: it is no root's, and uploads
// nothing to where that could be.
func (a Attack) Harmless() bool {
	return !slices.ContainsFunc(a.Steps, func(s Step) bool {
		return s.root || s.kind == images || s.kind == uploads && a.Name != uploadThroughLink
	})
}

// heldIn is what is seen in a tier if it was held off.
func (a Attack) heldIn(tier runtime.Isolation) string {
	if tier == runtime.IsolationGVisor && a.GVisor != "" {
		return a.GVisor
	}
	return a.Held
}

// Corpus returns all attacks, class by class.
func Corpus() []Attack {
	var all []Attack
	for _, rows := range [][]Attack{interfaces(), escapes(), files(), kernel(), networks(), online(), residue(), warm(), processes(), resources(), accounts()} {
		all = append(all, rows...)
	}
	slices.SortStableFunc(all, func(a, b Attack) int {
		return cmp.Compare(slices.Index(Classes(), a.Class), slices.Index(Classes(), b.Class))
	})
	return all
}
