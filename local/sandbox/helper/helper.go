// Package helper is what rockpool-sandbox is told, and what it answers: its
// Config comes from whoever started it with its privileges, one Request from
// whoever wants a sandbox, and one Answer goes back.
//
// A Request is made of names, digests and numbers that are checked one by one.
// It has no path, and nothing of a spec: what a sandbox is, is the helper's to
// say (package spec).
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

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// Once is the helper's first argument where it serves one request, which it has
// from stdin; its Config is the second.
const Once = "once"

// Wait is the first argument of a helper that waits until it has its users: a
// byte on descriptor 4. Then it does what it does with Once.
const Wait = "wait"

// Listen is its first argument where it serves many, of a socket; the second says
// which.
const Listen = "listen"

// WorkerArgument is that of a program that works on an image (image.Work): its
// stdin is the connection, and descriptor 3 the directory.
const WorkerArgument = "image-worker"

// AwaitUsers follows WorkerArgument where the program has to wait until it has its
// users; see launch.BecomeOwner.
const AwaitUsers = "--await-users"

// Protocol is the version of what is said here. Both sides must have the same.
const Protocol = 2

// The values of Request.Command.
const (
	Create = "create" // make a sandbox and start its first process
	Remove = "remove" // kill and remove one, in whatever state it is
	Lease  = "lease"  // let one reach what a name stands for
	Verify = "verify" // find out whether one's network is kept to what it was made with

	// Of a helper that listens, without an id:
	Hello = "hello" // say where sandboxes are made
	Probe = "probe" // say whether a runtime can be had, by its name alone
	Work  = "work"  // work on the directory that is sent along, as the owner of images' files (see image.Work)
)

// MaxMessage is how many bytes a request or an answer may have.
const MaxMessage = 64 << 10

// A Config says where a helper works. It isn't part of a request: who asks for
// sandboxes doesn't choose it.
type Config struct {
	State   string       `json:"state"`            // where libcontainer has a directory per sandbox
	Root    string       `json:"root"`             // what spec.BuildRoot made
	Images  string       `json:"images,omitempty"` // a directory per image
	Owners  int          `json:"owners,omitempty"` // who root is among the owners of images' files
	Parent  string       `json:"parent"`           // the group that sandboxes' groups are in
	Machine spec.Machine `json:"machine"`

	Runtimes oci.Runtimes `json:"runtimes,omitempty"` // that can be asked for beside libcontainer
	DiskRead int64        `json:"diskRead,omitempty"` // bytes a second that a sandbox reads from each disk at most; 0: any
	// What sandboxes may have of the network; nil: none has any.
	Network       *network.Offer `json:"network,omitempty"`
	Rootless      *Rootless      `json:"rootless,omitempty"`      // of an ordinary user's; nil: it is root's
	AcceptMissing bool           `json:"acceptMissing,omitempty"` // sandboxes are made without the limits that can't be set
}

// Rootless is what an ordinary user has for sandboxes.
type Rootless struct {
	Base  string `json:"base,omitempty"`  // the control group that is the user's; "": none
	Users int    `json:"users,omitempty"` // how many subordinate ids of others; 0: none
}

// Slots is how many sandboxes can have users apart from others'.
func (r Rootless) Slots() int { return max(1, r.Users/spec.UIDs) }

// Users returns the users of the sandbox that q asks for, as the helper's own user
// namespace counts them; nil: what root has for the slot. There the user itself is
// 0. An image's files are the first range's, and only root could have them be
// another's for a sandbox.
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

// KernelGroup returns how the kernel names the group of a sandbox; "": it has none.
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

// A Request asks for a sandbox to be made or removed.
type Request struct {
	Protocol int    `json:"protocol"`
	Command  string `json:"command"`
	ID       string `json:"id,omitempty"`

	// Create only, which has the socket that the sandbox's first process gets as
	// its descriptor 3 with it.
	Slot      int             `json:"slot,omitempty"`  // chooses its users; a helper that listens does, and wants 0
	Image     string          `json:"image,omitempty"` // its digest; "": the machine's own programs
	Resources *spec.Resources `json:"resources,omitempty"`

	Zygote bool `json:"zygote,omitempty"` // its agent can load an interpreter

	// Runtime is the name of one of the configured runtimes; "": libcontainer. With
	// oci.GVisor an empty directory comes in the place of the socket, in which the
	// sandbox's first process makes its own.
	Runtime string `json:"runtime,omitempty"`

	// Create and Verify, which has nothing else of it but Slot: what the sandbox
	// may reach; nil: nothing.
	Network *network.Wish `json:"network,omitempty"`

	Lease *network.Lease `json:"lease,omitempty"` // Lease only
}

// An Answer tells what became of a Request.
type Answer struct {
	Error   string        `json:"error,omitempty"`
	Final   bool          `json:"final,omitempty"`   // with Error: trying again can't help
	Changed bool          `json:"changed,omitempty"` // with Error: the sandbox's packet filter isn't what was made
	PID     int           `json:"pid,omitempty"`     // of the sandbox's first process, as this machine counts
	Start   uint64        `json:"start,omitempty"`
	Groups  cgroup.Groups `json:"groups"`           // read back after the process joined
	Address netip.Addr    `json:"address,omitzero"` // at which the machine reaches a sandbox with a network

	// Of Hello: the group that sandboxes' groups are in, what is offered them, and
	// the names of the runtimes that are configured.
	Parent   string         `json:"parent,omitempty"`
	Network  *network.Offer `json:"network,omitempty"`
	Runtimes []string       `json:"runtimes,omitempty"`

	// Of Probe; see oci.Runtimes.Probe.
	Version string `json:"version,omitempty"`
	NoTime  bool   `json:"noTime,omitempty"`
}

// ValidID reports whether id can name a sandbox: 1 to 64 letters, digits,
// '_' and '-', not beginning with one of the latter. (Regular expressions for
// this took 0.4 ms of each start of the helper.)
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

// ValidParent reports whether a group can be the parent of sandboxes' groups:
// /rockpool or one at most four levels below it.
func ValidParent(group string) bool {
	names := strings.Split(group, "/")
	if len(names) < 2 || len(names) > 6 || names[0] != "" || names[1] != "rockpool" {
		return false
	}
	return !slices.ContainsFunc(names[2:], func(name string) bool { return !ValidID(name) })
}

// validDigest reports whether an image can have this digest, and so be the name
// of its directory: "sha256:" and 64 digits, hexadecimal and small.
func validDigest(digest string) bool {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// Read returns the one request that r holds, checked.
func Read(r io.Reader) (*Request, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxMessage+1))
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	return Parse(text)
}

// Parse returns the one request that a text is, checked. The version comes
// first: of another one nothing else is understood.
func Parse(text []byte) (*Request, error) {
	if len(text) > MaxMessage {
		return nil, fmt.Errorf("the request has more than %d bytes", MaxMessage)
	}
	var version struct{ Protocol int }
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if version.Protocol != Protocol {
		return nil, fmt.Errorf("this rockpool-sandbox speaks version %d of its protocol, and was asked in version %d: have the server and its helper be of one version, and restart both", Protocol, version.Protocol)
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

// ReadConfig returns a checked Config.
func ReadConfig(text string) (Config, error) {
	var c Config
	if err := decode(strings.NewReader(text), &c); err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return c, c.check()
}

func decode(r io.Reader, into any) error {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}

func (c Config) check() error {
	for name, dir := range map[string]string{"state": c.State, "root": c.Root, "images": c.Images} {
		optional := name == "images" && dir == ""
		if !optional && (!filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/") {
			return fmt.Errorf("the directory %q (%s) isn't an absolute, clean path", dir, name)
		}
	}
	if !ValidParent(c.Parent) {
		return fmt.Errorf("the group %q isn't /rockpool or below it", c.Parent)
	}
	if c.Machine.CoreMHz < 1 {
		return fmt.Errorf("a core has %d MHz", c.Machine.CoreMHz)
	}
	if c.Network != nil {
		return c.Network.Check()
	}
	return nil
}

// Group returns the group of a sandbox.
func (c Config) Group(id string) string { return path.Join(c.Parent, id) }

// ImageRoot returns where the root directory of an image lies below c.Images.
func ImageRoot(digest string) string {
	return path.Join(strings.Replace(digest, ":", "-", 1), "root")
}

// Check returns an error unless the request is one that a server can make.
func (q Request) Check() error {
	if q.Command == Hello || q.Command == Work {
		if (q != Request{Protocol: q.Protocol, Command: q.Command}) {
			return fmt.Errorf("%s stands alone", q.Command)
		}
		return nil
	}
	if q.Command == Probe {
		if !ValidID(q.Runtime) || (q != Request{Protocol: q.Protocol, Command: Probe, Runtime: q.Runtime}) {
			return errors.New("what is probed is the name of a runtime")
		}
		return nil
	}
	if !ValidID(q.ID) {
		return fmt.Errorf("id %q isn't 1 to 64 letters, digits, '_' and '-'", q.ID)
	}
	switch q.Command {
	case Create:
		return q.checkCreate()
	case Remove:
		if (q != Request{Protocol: q.Protocol, Command: Remove, ID: q.ID}) {
			return errors.New("a sandbox is removed by its id alone")
		}
		return nil
	case Lease:
		if q.Lease == nil || (q != Request{Protocol: q.Protocol, Command: Lease, ID: q.ID, Lease: q.Lease}) {
			return errors.New("a lease is of addresses, to an id")
		}
		return q.Lease.Check()
	case Verify:
		if q.Network == nil || (q != Request{Protocol: q.Protocol, Command: Verify, ID: q.ID, Slot: q.Slot, Network: q.Network}) {
			return errors.New("what is verified is a network of an id and a slot")
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

// Policy returns what a sandbox may reach: what is asked for, as far as the
// operator offers it.
func (c Config) Policy(q *Request) (network.Policy, error) {
	if c.Network == nil {
		return network.Policy{}, errors.New("no network is offered here")
	}
	p := network.Policy{Offer: *c.Network, Wish: *q.Network, Slot: q.Slot}
	return p, p.Check()
}

func (q Request) checkCreate() error {
	if q.Image != "" && !validDigest(q.Image) {
		return fmt.Errorf("image %q isn't a digest", q.Image)
	}
	if q.Runtime != "" && !ValidID(q.Runtime) {
		return fmt.Errorf("runtime %q isn't 1 to 64 letters, digits, '_' and '-'", q.Runtime)
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
		return errors.New("a sandbox that is made has no leases")
	}
	if q.Zygote && q.Runtime != "" {
		return errors.New("a sandbox of a runtime loads no interpreter")
	}
	if q.Network != nil {
		return q.Network.Check()
	}
	return nil
}
