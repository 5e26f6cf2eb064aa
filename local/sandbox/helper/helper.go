// Package helper defines the protocol of rockpool-sandbox. A helper gets its Config from the
// privileged process that started it, and one Request from the program that wants a sandbox; it
// returns one Answer.
//
// A Request consists of names, digests and numbers, each of which is checked. It contains no path
// and no part of a spec: only the helper decides what a sandbox is (package spec).
package helper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// Once is the first argument of a helper that serves one request, read from stdin. Its Config is
// the second argument.
const Once = "once"

// Wait is the first argument of a helper that first waits for its user ids, until a byte arrives on
// descriptor 4. Then it works as with Once.
const Wait = "wait"

// Listen is the first argument of a helper that serves requests on a socket. Its daemon.Config is
// the second.
const Listen = "listen"

// WorkerArgument is the argument of a program that works on an image (image.Work). Its stdin is the
// connection, and descriptor 3 is the directory.
const WorkerArgument = "image-worker"

// AwaitUsers follows WorkerArgument if the program must first wait for its user ids; see
// launch.BecomeOwner.
const AwaitUsers = "--await-users"

// Protocol is the version of this protocol. Both sides must have the same.
const Protocol = 2

// The values of Request.Command.
const (
	Create = "create" // make a sandbox and start its first process
	Remove = "remove" // kill and remove one, in whatever state it is
	Lease  = "lease"  // let a sandbox reach addresses that a name resolved to
	Verify = "verify" // check that a sandbox's network rules are still those that it was made with

	// Only for a maker. ID is a slot's. With Cell comes a plan (maker.NewPlan); the answer has the agent's descriptors.
	Cell    = "cell"    // make a cell in a slot
	EndCell = "endCell" // end it, and prove its slot empty

	// Only for a listening helper, without an id:
	Hello = "hello" // return where sandboxes are made
	Probe = "probe" // return whether the named runtime is available
	Work  = "work"  // work on the directory that comes with it, as the owner of images' files (see image.Work)
)

// MaxMessage is the largest size of a request or answer, in bytes.
const MaxMessage = 64 << 10

// A Config is where and with what a helper works. It isn't part of a request, so the requesting
// program can't choose it.
type Config struct {
	State   string       `json:"state"`            // directory of libcontainer's state, one directory per sandbox
	Root    string       `json:"root"`             // root directory that spec.BuildRoot made
	Images  string       `json:"images,omitempty"` // directory of unpacked images
	Owners  int          `json:"owners,omitempty"` // uid of root among the owners of images' files
	Parent  string       `json:"parent"`           // cgroup of the sandboxes' cgroups
	Machine spec.Machine `json:"machine"`

	Runtimes oci.Runtimes `json:"runtimes,omitempty"` // available besides libcontainer
	DiskRead int64        `json:"diskRead,omitempty"` // bytes/s that a sandbox may read from each disk, 0 for no limit
	// Network is what sandboxes may have of the network, nil for nothing.
	Network       *network.Offer `json:"network,omitempty"`
	Rootless      *Rootless      `json:"rootless,omitempty"`      // nil if the helper runs as root
	AcceptMissing bool           `json:"acceptMissing,omitempty"` // make sandboxes without limits that can't be set
}

// Rootless is what a helper without root has for sandboxes.
type Rootless struct {
	Base  string `json:"base,omitempty"`  // path of the delegated cgroup, "" if there is none
	Users int    `json:"users,omitempty"` // number of subordinate ids, 0 if there is none
}

// Slots returns how many sandboxes can have users of their own.
func (r Rootless) Slots() int { return max(1, r.Users/spec.UIDs) }

// Users returns the users of the requested sandbox, as ids of the helper's user namespace; nil:
// root gives the slot's range. In that namespace the helper's own user is 0. Files of images belong
// to the first range, so runners made from images share it: only root could map the files' owners
// for each sandbox.
func (c Config) Users(q *Request) *spec.Users {
	switch r := c.Rootless; {
	case r == nil:
		return nil
	case r.Users == 0:
		return &spec.Users{First: 0, Count: 1}
	case q.Image != "":
		return &spec.Users{First: 1, Count: min(r.Users, spec.UIDs)}
	default:
		return &spec.Users{First: 1 + q.Slot%r.Slots()*spec.UIDs, Count: min(r.Users, spec.UIDs)}
	}
}

// KernelGroup returns the kernel's path of a sandbox's cgroup, "" if it has none.
func (c Config) KernelGroup(id string) string {
	switch r := c.Rootless; {
	case r == nil:
		return c.Group(id)
	case r.Base == "":
		return ""
	default:
		return path.Join(r.Base, c.Group(id))
	}
}

// A Request asks a helper for one command.
type Request struct {
	Protocol int    `json:"protocol"`
	Command  string `json:"command"`
	ID       string `json:"id,omitempty"`

	// For Create only. With the request comes a listening socket, which the sandbox's first process
	// gets as descriptor 3.
	Slot      int             `json:"slot,omitempty"`  // number of its range of user ids; a listening helper requires 0
	Image     string          `json:"image,omitempty"` // digest of its image, "" for the image "host"
	Resources *spec.Resources `json:"resources,omitempty"`

	Zygote bool `json:"zygote,omitempty"` // its agent can preload an interpreter

	// Runtime is the name of a configured runtime, "" for libcontainer. With oci.GVisor an empty
	// directory comes instead of the socket, and the first process makes its socket there.
	Runtime string `json:"runtime,omitempty"`

	// For Create, and for Verify, which otherwise has only Slot: what the sandbox may reach; nil:
	// nothing.
	Network *network.Request `json:"network,omitempty"`

	Lease *network.Lease `json:"lease,omitempty"` // for Lease only

	Stdin bool `json:"stdin,omitempty"` // for Cell only: the command has one
}

// An Answer is the result of a Request.
type Answer struct {
	Error   string        `json:"error,omitempty"`
	Final   bool          `json:"final,omitempty"`   // with Error: the same request will never succeed
	Changed bool          `json:"changed,omitempty"` // with Error: the sandbox's packet filter was changed
	PID     int           `json:"pid,omitempty"`     // of the sandbox's first process, in this machine's pid namespace
	Start   uint64        `json:"start,omitempty"`
	Groups  cgroup.Groups `json:"groups"`           // read back after the process has joined
	Address netip.Addr    `json:"address,omitzero"` // address of a sandbox with a network, on the machine's side

	// For Hello: the cgroup of the sandboxes' cgroups, the network that is offered, and the names
	// of the configured runtimes.
	Parent   string         `json:"parent,omitempty"`
	Network  *network.Offer `json:"network,omitempty"`
	Runtimes []string       `json:"runtimes,omitempty"`

	Cell *CellEnd `json:"cell,omitempty"` // for EndCell

	// For Probe; see oci.Runtimes.Probe.
	Version string `json:"version,omitempty"`
	NoTime  bool   `json:"noTime,omitempty"`
}

// A CellEnd is what init reported to the maker, and what the kernel counted in the cell's slot.
type CellEnd struct {
	Ended  bool   `json:"ended,omitempty"`  // the command was started and has ended, with Status
	Status uint32 `json:"status,omitempty"` // of wait4(2)
	Failed uint32 `json:"failed,omitempty"` // an agent.CellReportKind: the plan failed, at Step with Errno
	Step   uint32 `json:"step,omitempty"`
	Errno  uint32 `json:"errno,omitempty"`

	OOMKills   int64         `json:"oomKills,omitempty"`
	Refused    int64         `json:"refused,omitempty"` // forks
	CPU        time.Duration `json:"cpu,omitempty"`
	PeakMemory int64         `json:"peakMemory,omitempty"` // bytes
}

// ValidID reports whether id can name a sandbox: 1 to 64 letters, digits, '_' and '-', starting
// with a letter or digit. It uses no regular expression, which took 0.4 ms of each start of the
// helper.
func ValidID(id string) bool {
	for i := range len(id) {
		c := id[i]
		word := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !word && (i == 0 || c != '_' && c != '-') {
			return false
		}
	}
	return 1 <= len(id) && len(id) <= 64
}

// ValidParent reports whether a cgroup can be the parent of sandboxes' cgroups: /rockpool, or one
// at most four levels below it.
func ValidParent(group string) bool {
	names := strings.Split(group, "/")
	if len(names) < 2 || len(names) > 6 || names[0] != "" || names[1] != "rockpool" {
		return false
	}
	return !slices.ContainsFunc(names[2:], func(name string) bool { return !ValidID(name) })
}

// validDigest reports whether digest is "sha256:" and 64 lower-case hexadecimal digits, and so is
// safe as the name of an image's directory.
func validDigest(digest string) bool {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// Read reads one request, and checks it.
func Read(r io.Reader) (*Request, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxMessage+1))
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	return Parse(text)
}

// Parse parses one request, and checks it. It checks the version first, because another version may
// have other fields.
func Parse(text []byte) (*Request, error) {
	if len(text) > MaxMessage {
		return nil, fmt.Errorf("the request is larger than %d bytes", MaxMessage)
	}
	var version struct{ Protocol int }
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if version.Protocol != Protocol {
		return nil, fmt.Errorf("this rockpool-sandbox has protocol version %d, and the request has version %d: install the same version of the server and its helper, and restart both", Protocol, version.Protocol)
	}
	var q Request
	if err := decode(bytes.NewReader(text), &q); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if err := q.Check(); err != nil {
		return nil, err
	}
	return &q, nil
}

// ReadConfig parses a Config, and checks it.
func ReadConfig(text string) (Config, error) {
	var c Config
	if err := decode(strings.NewReader(text), &c); err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return c, c.check()
}

// decode parses exactly one JSON value without unknown fields.
func decode(r io.Reader, into any) error {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more data follows")
	}
	return nil
}

func (c Config) check() error {
	for name, dir := range map[string]string{"state": c.State, "root": c.Root, "images": c.Images} {
		optional := name == "images" && dir == ""
		if !optional && (!filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/") {
			return fmt.Errorf("the directory %q (%s) must be an absolute, clean path other than /", dir, name)
		}
	}
	if !ValidParent(c.Parent) {
		return fmt.Errorf("the cgroup %q must be /rockpool or below it", c.Parent)
	}
	if c.Machine.CoreMHz < 1 {
		return fmt.Errorf("the clock of a core must be at least 1 MHz, not %d", c.Machine.CoreMHz)
	}
	if c.Network != nil {
		return c.Network.Check()
	}
	return nil
}

// Group returns the path of a sandbox's cgroup.
func (c Config) Group(id string) string { return path.Join(c.Parent, id) }

// ImageRoot returns the path of an image's root directory, relative to Config.Images.
func ImageRoot(digest string) string {
	return path.Join(strings.Replace(digest, ":", "-", 1), "root")
}

// Check returns an error unless the request is well-formed: it has exactly the fields that its
// command needs, and each is within its range.
func (q Request) Check() error {
	if q.Command == Hello || q.Command == Work {
		if (q != Request{Protocol: q.Protocol, Command: q.Command}) {
			return fmt.Errorf("a %s request must have no other fields", q.Command)
		}
		return nil
	}
	if q.Command == Probe {
		if !ValidID(q.Runtime) || (q != Request{Protocol: q.Protocol, Command: Probe, Runtime: q.Runtime}) {
			return errors.New("a probe request must have only the name of a runtime")
		}
		return nil
	}
	if !ValidID(q.ID) {
		return fmt.Errorf("id %q must be 1 to 64 letters, digits, '_' and '-'", q.ID)
	}
	switch q.Command {
	case EndCell:
		if (q != Request{Protocol: q.Protocol, Command: EndCell, ID: q.ID}) {
			return errors.New("an endCell request must have only an id")
		}
		return nil
	case Create, Cell:
		return q.checkCreate()
	case Remove:
		if (q != Request{Protocol: q.Protocol, Command: Remove, ID: q.ID}) {
			return errors.New("a remove request must have only an id")
		}
		return nil
	case Lease:
		if q.Lease == nil || (q != Request{Protocol: q.Protocol, Command: Lease, ID: q.ID, Lease: q.Lease}) {
			return errors.New("a lease request must have only an id and a lease")
		}
		return q.Lease.Check()
	case Verify:
		if q.Network == nil || (q != Request{Protocol: q.Protocol, Command: Verify, ID: q.ID, Slot: q.Slot, Network: q.Network}) {
			return errors.New("a verify request must have only an id, a slot and a network")
		}
		return q.checkNetwork()
	}
	return fmt.Errorf("unknown command %q", q.Command)
}

func (q Request) checkNetwork() error {
	if q.Slot < 0 || q.Slot >= spec.MaxSlots {
		return fmt.Errorf("slot is %d, but must be 0 to %d", q.Slot, spec.MaxSlots-1)
	}
	return q.Network.Check()
}

// Policy returns what a sandbox may reach: the requested network, checked against what the operator
// offers.
func (c Config) Policy(q *Request) (network.Policy, error) {
	if c.Network == nil {
		return network.Policy{}, errors.New("this helper offers no network")
	}
	p := network.Policy{Offer: *c.Network, Request: *q.Network, Slot: q.Slot}
	return p, p.Check()
}

func (q Request) checkCreate() error {
	if q.Image != "" && !validDigest(q.Image) {
		return fmt.Errorf("image %q must be a digest", q.Image)
	}
	if q.Runtime != "" && !ValidID(q.Runtime) {
		return fmt.Errorf("runtime %q must be 1 to 64 letters, digits, '_' and '-'", q.Runtime)
	}
	if q.Resources == nil {
		return errors.New("resources are missing")
	}
	for _, b := range []struct {
		field            string
		value, low, high int
	}{
		{"slot", q.Slot, 0, spec.MaxSlots - 1},
		{"cpuMHz", q.Resources.CPUMHz, 10, 1 << 20},
		{"memoryMiB", q.Resources.MemoryMiB, 16, 1 << 20},
		{"processes", q.Resources.Processes, 16, 1 << 16},
		{"workspaceMiB", q.Resources.WorkspaceMiB, 1, 1 << 20},
	} {
		if b.value < b.low || b.value > b.high {
			return fmt.Errorf("%s is %d, but must be %d to %d", b.field, b.value, b.low, b.high)
		}
	}
	if q.Lease != nil {
		return errors.New("a create request must have no lease")
	}
	if q.Zygote && q.Runtime != "" {
		return errors.New("a sandbox of an OCI runtime can't preload an interpreter")
	}
	if q.Network != nil {
		return q.Network.Check()
	}
	return nil
}
