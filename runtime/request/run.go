package request

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
)

// RunLease is the inactivity timeout of a runner that a run claimed. It ends the runner if no server
// is left to release it.
const RunLease = time.Minute

// A Run requests everything in one call: claim, write files, start, feed stdin, release.
type Run struct {
	EnvironmentID    runtime.EnvironmentID
	Tenant           runtime.TenantID `json:"-"` // as in Claim
	Files            []runtime.FileWrite
	Protected        bool `json:",omitempty"` // the files are, as in files.Update
	Command          []string
	Shell            *string
	CommandLine      string          `json:",omitempty"` // as in Start
	Labels           []runtime.Label `json:",omitempty"` // of the claim
	Variables        []runtime.Variable
	Stdin            *string
	TimeLimit        *int // seconds
	Lease            *int `json:",omitempty"` // as in Start
	WaitFor          *int // seconds
	Key              string
	Keys             string `json:"-"`          // as in Claim
	Caller           string `json:"-"`          // as in Claim; a retry with the same key may come from another caller
	WorkingDirectory string `json:",omitempty"` // "": the workspace
}

// Parse checks the whole request, and returns its parts.
func (in Run) Parse() (start Start, x runtime.Execution, claim pool.Claim, err error) {
	start = Start{Command: in.Command, Shell: in.Shell, CommandLine: in.CommandLine, Labels: in.Labels, Variables: in.Variables, WorkingDirectory: in.WorkingDirectory, TimeLimit: in.TimeLimit, Lease: in.Lease, Stdin: in.Stdin != nil, Key: in.Key, Input: in.Stdin}
	if x, err = start.Execution(); err != nil {
		return start, x, claim, err
	}
	if err := files.ValidateUpdate("files", files.Update{Write: in.Files}); err != nil {
		return start, x, claim, err
	}
	claim, err = Claim{EnvironmentID: in.EnvironmentID, Tenant: in.Tenant, WaitFor: in.WaitFor, Key: in.Key, Labels: in.Labels, Caller: in.Caller}.ParsePart()
	claim.Claim.InactivityTimeout = RunLease // renewed while the execution runs
	return start, x, claim, err
}

// Bytes returns the memory of a run, with these cases, that continues without its caller.
func (in Run) Bytes(cases []Case) int64 {
	n := quota.BytesOf(in.Command...) + quota.BytesOfVariables(in.Variables) + quota.BytesOfLabels(in.Labels)
	for _, f := range in.Files {
		n += quota.BytesOf(f.Path) + int64(len(f.Data))
	}
	if in.Stdin != nil {
		n += quota.BytesOf(*in.Stdin)
	}
	for _, c := range cases {
		n += quota.BytesOf(c.Args...) + int64(len(c.Stdin)+len(c.Expected))
	}
	return n
}

// Idempotency returns the stored key of a run with a key, or of its batch, and a fingerprint of the
// request.
func (in Run) Idempotency(of *Batch) (key, input string) {
	key = ScopedKey(in.Keys, "run/"+in.Key)
	in.Key, in.WaitFor = "", nil // a retry may wait longer or shorter
	if of == nil {
		return key, Digest(in)
	}
	return key, Digest([]any{in, *of})
}
