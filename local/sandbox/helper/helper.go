// Package helper is what the server and rockpool-sandbox say to each other:
// one JSON request on the helper's stdin, one JSON answer on its stdout.
package helper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
)

// The helper's commands, its first argument.
const (
	Create = "create" // make a sandbox and start its first process
	Remove = "remove" // kill and remove one, in whatever state it is
)

// AgentPath is where the agent is inside a sandbox.
const AgentPath = "/.rockpool/agent"

// MaxMessage is how many bytes a request or an answer may have.
const MaxMessage = 1 << 20

// A Request asks for a sandbox to be made or removed.
type Request struct {
	ID       string      `json:"id"`
	StateDir string      `json:"stateDir"`          // where the helper keeps a directory per sandbox
	Cgroup   string      `json:"cgroup"`            // the sandbox's group, below /rockpool
	MapRoot  bool        `json:"mapRoot,omitempty"` // Create only: the owners of the root's files are users of the sandbox
	Spec     *specs.Spec `json:"spec,omitempty"`    // Create only; descriptor 3 is the socket that the first process gets as its own 3

	// Create only: commands get groups of their own below the sandbox's, with
	// these limits of memory and processes together; the first process is told by
	// the argument --groups, and gets their directories from descriptor 4 on. Nil:
	// the sandbox's group isn't divided.
	Commands *cgroup.Limits `json:"commands,omitempty"`

	// Create only: the name of the runtime that makes it, "" for libcontainer. With
	// gVisor the descriptor 3 is an empty directory instead, in which the sandbox's
	// first process makes its socket.
	Runtime string `json:"runtime,omitempty"`
}

// An Answer tells what became of a Request.
type Answer struct {
	Error  string        `json:"error,omitempty"`
	Final  bool          `json:"final,omitempty"` // with Error: trying again can't help
	PID    int           `json:"pid,omitempty"`   // of the sandbox's first process, as this machine counts
	Start  uint64        `json:"start,omitempty"`
	Groups cgroup.Groups `json:"groups"` // read back after the process joined
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

// Read returns the one request that r holds, checked.
func Read(r io.Reader) (*Request, error) {
	decoder := json.NewDecoder(io.LimitReader(r, MaxMessage))
	decoder.DisallowUnknownFields()
	var q Request
	if err := decoder.Decode(&q); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read request: something follows it")
	}
	switch {
	case !ValidID(q.ID):
		return nil, fmt.Errorf("id %q isn't 1 to 64 letters, digits, '_' and '-'", q.ID)
	case !filepath.IsAbs(q.StateDir) || filepath.Clean(q.StateDir) != q.StateDir || q.StateDir == "/":
		return nil, fmt.Errorf("state directory %q isn't an absolute, clean path", q.StateDir)
	case q.Runtime != "" && !ValidID(q.Runtime):
		return nil, fmt.Errorf("runtime %q isn't 1 to 64 letters, digits, '_' and '-'", q.Runtime)
	case path.Base(q.Cgroup) != q.ID || !ValidParent(path.Dir(q.Cgroup)):
		return nil, fmt.Errorf("group %q isn't one for %s below /rockpool", q.Cgroup, q.ID)
	}
	return &q, nil
}

// Limits returns those that a spec asks for, and an error unless it sets all.
func Limits(spec *specs.Spec) (cgroup.Limits, error) {
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return cgroup.Limits{}, errors.New("the spec has no limits")
	}
	r := spec.Linux.Resources
	if r.Memory == nil || r.Memory.Limit == nil || *r.Memory.Limit <= 0 ||
		r.Pids == nil || r.Pids.Limit == nil || *r.Pids.Limit <= 0 ||
		r.CPU == nil || r.CPU.Quota == nil || *r.CPU.Quota <= 0 || r.CPU.Period == nil || *r.CPU.Period == 0 {
		return cgroup.Limits{}, errors.New("the spec doesn't limit memory, processes and CPU time")
	}
	return cgroup.Limits{
		Memory:    *r.Memory.Limit,
		Processes: *r.Pids.Limit,
		CPUQuota:  *r.CPU.Quota,
		CPUPeriod: int64(*r.CPU.Period),
	}, nil
}
