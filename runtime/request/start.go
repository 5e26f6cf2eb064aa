package request

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
)

// Bounds of commands, below the kernel's (MAX_ARG_STRLEN is 128 KiB).
const (
	maxArgBytes     = 128<<10 - 1 // of one argument
	maxCommandBytes = 1 << 20     // of all arguments
	maxCommandArgs  = 4096
)

const minLease = 10 * time.Second

// A Start requests a command in a claimed runner. Exactly one of Command and Shell is set.
type Start struct {
	RunnerID         runtime.RunnerID
	Tenant           runtime.TenantID `json:"-"` // of the holder
	Command          []string
	Shell            *string
	CommandLine      string          `json:",omitempty"` // for display; "" means derived from the command
	Labels           []runtime.Label `json:",omitempty"` // in addition to those of the claim
	Variables        []runtime.Variable
	WorkingDirectory string
	TimeLimit        *int // seconds; nil means the environment's; 0 means none
	OutputLimit      *int64
	CPUSeconds       *int
	Processes        *int
	OpenFiles        *int
	FileSize         *int64
	Stdin            bool
	Terminal         *runtime.TerminalSize // implies Stdin
	Privileged       bool                  // as root inside the runner
	Lease            *int                  `json:",omitempty"` // seconds; nil means none
	Key              string
	Keys             string `json:"-"` // as in Claim

	Input     *string `json:"-"` // of a run: the whole stdin
	FromShell bool    `json:"-"` // of a case: Command was made from a command line
	Line      string  `json:"-"` // of a case: CommandLine with its arguments
}

// Validate checks what doesn't depend on the runner.
func (in Start) Validate() error {
	_, err := in.Execution()
	return err
}

// Execution checks the request and returns the execution that it describes.
func (in Start) Execution() (runtime.Execution, error) {
	x := runtime.Execution{
		ID: runtime.NewExecutionID(), RunnerID: in.RunnerID, State: runtime.ExecutionPending,
		Shell: in.Shell != nil || in.FromShell, Line: cmp.Or(in.Line, in.CommandLine), Stdin: in.Stdin || in.Terminal != nil, Terminal: in.Terminal, Privileged: in.Privileged,
	}
	var err error
	if x.Command, err = command(in.Command, in.Shell); err != nil {
		return x, err
	}
	if in.WorkingDirectory != "" {
		err = files.ValidatePath("workingDirectory", in.WorkingDirectory)
	}
	// A nil limit is left out. The first error counts.
	const longest = int64(runtime.MaxTimeLimit / time.Second)
	var outputLimit int64
	err = cmp.Or(
		runtime.ValidateCommandLine(in.CommandLine),
		runtime.ValidateLabels(in.Labels),
		runtime.ValidateVariables("variables", in.Variables),
		err,
		bounded(&x.TimeLimit, "timeLimit", in.TimeLimit, time.Second, 0, longest, "seconds"),
		bounded(&x.Lease, "lease", in.Lease, time.Second, int64(minLease/time.Second), longest, "seconds"),
		CheckTerminal("terminal.", in.Terminal),
		bounded(&x.Limits.CPU, "limits.cpuSeconds", in.CPUSeconds, time.Second, 1, longest, "seconds"),
		bounded(&x.Limits.Processes, "limits.processes", in.Processes, 1, 1, runtime.MaxProcesses, "processes"),
		bounded(&x.Limits.OpenFiles, "limits.openFiles", in.OpenFiles, 1, runtime.MinOpenFiles, runtime.MaxOpenFiles, "files"),
		bounded(&x.Limits.FileSize, "limits.fileSize", in.FileSize, 1, 1, runtime.MaxFileSize, "bytes"),
		bounded(&outputLimit, "limits.outputBytes", in.OutputLimit, 1, runtime.MinOutputLimit, runtime.MaxOutputLimit, "bytes"),
		text("idempotencyKey", in.Key, maxKeyBytes),
	)
	if err != nil {
		return x, err
	}
	in.Key = "" // the input identifies what a key was used for, so it excludes the key
	x.Input = Digest(in)
	return x, nil
}

// bounded sets a field to a client's value in units, or returns INVALID_INPUT unless low ≤ value ≤ high. With a
// nil value it does nothing.
func bounded[V int | int64, T ~int | ~int64](to *T, field string, value *V, unit T, low, high int64, units string) error {
	if value == nil {
		return nil
	}
	*to = T(*value) * unit
	return runtime.Between(field, int64(*value), low, high, units)
}

// CheckTerminal checks the size of a terminal, if there is one. In errors, prefix precedes the field's name.
func CheckTerminal(prefix string, size *runtime.TerminalSize) error {
	if size == nil {
		return nil
	}
	return cmp.Or(
		runtime.Between(prefix+"columns", int64(size.Columns), 1, runtime.MaxTerminalSize, "columns"),
		runtime.Between(prefix+"rows", int64(size.Rows), 1, runtime.MaxTerminalSize, "rows"),
	)
}

func command(argv []string, script *string) ([]string, error) {
	switch {
	case script != nil && argv != nil:
		return nil, runtime.Invalid("command", "give either command or shell, not both")
	case script == nil && len(argv) == 0:
		return nil, runtime.Invalid("command", "must name a program (argv), or give shell instead")
	case script == nil && argv[0] == "":
		return nil, runtime.Invalid("command.0", "must name a program")
	case script != nil && *script == "":
		return nil, runtime.Invalid("shell", "must not be empty")
	case script != nil:
		if err := text("shell", *script, maxArgBytes); err != nil {
			return nil, err
		}
		return []string{runtime.Shell, "-c", *script}, nil
	}
	if len(argv) > maxCommandArgs {
		return nil, runtime.Invalid("command", "must be at most %d arguments, not %d", maxCommandArgs, len(argv))
	}
	total := 0
	for i, arg := range argv {
		if err := text(fmt.Sprintf("command.%d", i), arg, maxArgBytes); err != nil {
			return nil, err
		}
		total += len(arg)
	}
	if total > maxCommandBytes {
		return nil, runtime.Invalid("command", "must be at most %d bytes in total, not %d", maxCommandBytes, total)
	}
	return argv, nil
}

// A Stdin is data for a running command's stdin.
type Stdin struct {
	ExecutionID runtime.ExecutionID
	Data        []byte
	Offset      *int64 // number of bytes written before, which makes a retry safe
	Close       bool
}

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
	WorkingDirectory string `json:",omitempty"` // "" means the workspace
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
