package agent

import (
	"os"
	"time"
)

// Protocol is the version of the protocol. A server and its agents must have the same.
const Protocol = 1

// Bounds of the protocol.
const (
	MaxData     = 32 << 10  // bytes of output, stdin or file in one frame
	MaxFrame    = 16 << 20  // bytes of a request or of an Updated; other frames have at most MaxData and a header, or 1 MiB of JSON
	StdinWindow = 256 << 10 // stdin bytes that the agent buffers for a program that doesn't read
)

// Exit codes of an agent that can't start as a Nomad task.
const (
	ExitNotRoot      = 77 // it doesn't run as root of its task (EX_NOPERM of sysexits.h)
	ExitNoNamespaces = 71 // it can't create a user namespace (EX_OSERR)
)

// A Kind is the type of a frame's body.
type Kind byte

// The kinds. The comments name the sender and the body. Numbers are part of the protocol: never
// reuse one.
const (
	KindRequest     Kind = 1  // client → agent: Request
	KindResponse    Kind = 2  // agent → client: Response
	KindStarted     Kind = 3  // agent → client: Started
	KindOutput      Kind = 4  // agent → client: binary
	KindStdinWindow Kind = 5  // agent → client: binary
	KindExited      Kind = 6  // agent → client: Exit
	KindStdin       Kind = 7  // client → agent: binary
	KindStdinEnd    Kind = 8  // client → agent: empty
	KindAck         Kind = 9  // client → agent: binary
	KindKill        Kind = 10 // client → agent: Kill
	KindSettled     Kind = 11 // client → agent: empty
	KindFile        Kind = 12 // agent → client: FileInfo
	KindData        Kind = 13 // either way: bytes
	KindEnd         Kind = 14 // agent → client: empty, or Response with an error; client → agent: empty
	KindUpdated     Kind = 15 // agent → client: Updated
	KindResize      Kind = 16 // client → agent: Size
	KindSignal      Kind = 17 // client → agent: Signal
	KindResized     Kind = 18 // agent → client: binary, if the execution has a terminal
	KindResizedAck  Kind = 19 // client → agent: binary
	KindChanges     Kind = 20 // agent → client: Changes
)

// A Request opens a stream. Exactly one of its pointers is set.
type Request struct {
	Protocol int           `json:"protocol"`
	Ping     *Ping         `json:"ping,omitempty"`
	Start    *Start        `json:"start,omitempty"`
	Attach   *Attach       `json:"attach,omitempty"`
	List     *ListDir      `json:"list,omitempty"`
	Read     *ReadFile     `json:"read,omitempty"`
	Update   *Update       `json:"update,omitempty"`
	Warm     *Warm         `json:"warm,omitempty"`
	Usage    *UsageRequest `json:"usage,omitempty"`
	Move     *Move         `json:"move,omitempty"`
	Search   *Search       `json:"search,omitempty"`
	Watch    *Watch        `json:"watch,omitempty"`

	files []*os.File // sent with it
}

// A Response answers a Request.
type Response struct {
	Protocol   int         `json:"protocol"`             // the agent's
	Executions []Execution `json:"executions,omitempty"` // answers a Ping
	Warmed     *Warmed     `json:"warmed,omitempty"`     // answers a Warm, after the interpreter is loaded
	Usage      *Usage      `json:"usage,omitempty"`      // answers a UsageRequest
	Found      *Found      `json:"found,omitempty"`      // answers a Search
	Error      *Error      `json:"error,omitempty"`
}

// Ping requests the agent's executions. An agent that answers is ready.
type Ping struct{}

// Warm requests a loaded interpreter with modules, from which commands start. It is answered when
// all of them are loaded. An equal second request is answered immediately.
type Warm struct {
	Interpreter string   `json:"interpreter"` // InterpreterPython
	Modules     []string `json:"modules,omitempty"`
	Env         []string `json:"env,omitempty"`      // the environment of commands that set no variables of their own
	Defaults    []string `json:"defaults,omitempty"` // as in a Start
}

// InterpreterPython is the first of python3 and python in PATH.
const InterpreterPython = "python"

// Warmed describes the loaded interpreter.
type Warmed struct {
	Version string `json:"version"` // of the interpreter: "3.11"
	Memory  int64  `json:"memory"`  // bytes of anonymous memory that it holds, as the interpreter reports
}

// An Execution is one that the agent knows and that the server hasn't settled.
type Execution struct {
	ID     string `json:"id"`
	Exited bool   `json:"exited"`
	Held   int64  `json:"held,omitempty"` // the first output offset that the agent holds
}

// Start requests the start of a command. It is idempotent by ID.
type Start struct {
	ID          string        `json:"id"`
	Argv        []string      `json:"argv"`                  // argv[0] is looked up in PATH of Env unless it has a slash
	Env         []string      `json:"env,omitempty"`         // NAME=value; the command's whole environment, in addition to an image's
	Dir         string        `json:"dir,omitempty"`         // relative to /workspace; "" for the image's working directory if the agent knows one, else /workspace
	Stdin       bool          `json:"stdin,omitempty"`       // without it stdin is empty
	TimeLimit   time.Duration `json:"timeLimit,omitempty"`   // wall time, 0 for no limit
	OutputLimit int64         `json:"outputLimit,omitempty"` // bytes of both outputs, 0 for no limit

	Terminal   *Size   `json:"terminal,omitempty"`   // descriptors 0 and 1 are a terminal of this size, 2 is a second one; implies Stdin
	Limits     *Limits `json:"limits,omitempty"`     // resource limits of this command
	Privileged bool    `json:"privileged,omitempty"` // run as root of the runner

	Cell bool `json:"cell,omitempty"` // the command waits in a cell, whose descriptors come with the request

	// Names of variables in Env that are only defaults. An agent that serves a container image
	// replaces their values by the image's. An agent removes LANG if it is a default that names a
	// locale that the runner lacks.
	Defaults []string `json:"defaults,omitempty"`
}

// A Size is the size of a terminal in characters. Both numbers are 1 to MaxSize.
type Size struct {
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// MaxSize bounds a terminal's columns and rows.
const MaxSize = 4096

// Limits apply from a command's first instruction. 0 means no limit.
type Limits struct {
	CPU       time.Duration `json:"cpu,omitempty"`       // processor time of the whole execution, in whole seconds
	Processes int           `json:"processes,omitempty"` // concurrent processes and threads of the whole execution
	OpenFiles int           `json:"openFiles,omitempty"` // descriptors of each process
	FileSize  int64         `json:"fileSize,omitempty"`  // bytes of each file that is written
}

// A Signal requests a signal to the command's process group and, on a terminal, to its foreground
// group.
type Signal struct {
	Name string `json:"name"` // "SIGTERM"
}

// Attach requests to continue an execution that was started before.
type Attach struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset"` // the first output byte that the client doesn't have

	Terminal bool          `json:"-"`                 // the execution has a terminal; otherwise a KindResized violates the protocol
	Resized  time.Duration `json:"resized,omitempty"` // time of the last size that the client has; 0 if it has none
}

// Started reports that the command runs.
type Started struct {
	Ago time.Duration `json:"ago"` // how long before this report

	// Set only by an agent that has an interpreter loaded (Warm).
	Warm bool   `json:"warm,omitempty"` // the command was started from the loaded interpreter
	Cold string `json:"cold,omitempty"` // why it wasn't, for people
}

// A Cause is the reason why an execution ended.
type Cause string

// The causes.
const (
	CauseSelf        Cause = ""            // it exited, or was killed by a signal from inside the runner
	CauseKill        Cause = "kill"        // a Kill frame
	CauseTimeLimit   Cause = "timeLimit"   // it reached its TimeLimit
	CauseOutputLimit Cause = "outputLimit" // it printed more than OutputLimit bytes

	CauseMemoryLimit Cause = "memoryLimit" // it held too much kernel memory of the kinds that no control group counts

	// Except with Exit.PerCommand, they occur only with Start.Limits.
	CauseCPULimit     Cause = "cpuLimit"     // it used Limits.CPU
	CauseProcessLimit Cause = "processLimit" // it exceeded Limits.Processes or, if Exit.PerCommand.ForksRefused isn't 0, the runner's own limit
)

// Exit reports how an execution ended, after its last output. Signal names the signal that killed
// the command ("SIGKILL"). If it is empty, Code is the command's exit code.
type Exit struct {
	At         time.Time     `json:"at"`
	Code       int           `json:"code"`
	Signal     string        `json:"signal,omitempty"`
	Cause      Cause         `json:"cause,omitempty"`
	Wall       time.Duration `json:"wall"`
	User       time.Duration `json:"user"`
	System     time.Duration `json:"system"`
	PeakMemory int64         `json:"peakMemory"` // bytes; at least that of the largest of its processes
	Output     int64         `json:"output"`     // bytes of both outputs

	// Agents with a control group for each command report these. Other agents leave them out.
	PeakProcesses int            `json:"peakProcesses,omitempty"` // and threads
	BytesRead     *int64         `json:"bytesRead,omitempty"`     // from disks
	BytesWritten  *int64         `json:"bytesWritten,omitempty"`
	PerCommand    *CommandCounts `json:"perCommand,omitempty"`
	Shared        *CommandCounts `json:"shared,omitempty"` // replaces PerCommand if other executions ran meanwhile: the counts include theirs
}

// MostRefused is how many refused forks an execution may have before it is ended. Ordinary programs
// survive some; a fork bomb has thousands.
const MostRefused = 1000

// Caches is the directory in a runner with the caches of languages. For each complete cache there is a file whose name
// ends in CacheVariables. Each of its lines is a variable, NAME=value, with the path of the cache. The agent
// gives a command each of these variables that the command doesn't set itself.
const (
	Caches         = "/var/cache/rockpool"
	CacheVariables = ".env"
)

// CommandCounts are what the kernel counted while a command ran.
type CommandCounts struct {
	OOMKills     int64 `json:"oomKills,omitempty"`     // processes killed because the runner's memory was full
	ForksRefused int64 `json:"forksRefused,omitempty"` // forks refused because the runner's limit of processes was reached
}

// Kill requests the end of an execution and of everything that it started, also in other sessions
// (setsid). Grace is the time between SIGTERM and SIGKILL; 0 sends SIGKILL immediately.
type Kill struct {
	Grace time.Duration `json:"grace,omitempty"`
}

// ListDir requests the entries of a directory, to any depth. It doesn't enter directories whose path
// no request can name, because it is longer than 4095 bytes.
type ListDir struct {
	Path      string `json:"path"` // "" means the workspace
	Recursive bool   `json:"recursive,omitempty"`
}

// ReadFile requests a regular file's bytes. With InfoOnly it requests only the description of an
// entry, of any type.
type ReadFile struct {
	Path     string `json:"path"`
	InfoOnly bool   `json:"infoOnly,omitempty"`
	Follow   bool   `json:"follow,omitempty"` // only with InfoOnly: describe a link's target. Reads always follow links.
	Offset   int64  `json:"offset,omitempty"` // bytes to skip; at most the file's size
}

// FileInfo describes one entry. Path and LinkTarget are bytes (base64 in JSON), since file names
// need not be valid UTF-8. Requests carry a path in the text form of package paths.
type FileInfo struct {
	Path       []byte    `json:"path"`
	Type       string    `json:"type"` // "file", "directory", "link" or "other"
	Size       int64     `json:"size"`
	ModifiedAt time.Time `json:"modifiedAt"`
	Mode       uint32    `json:"mode"` // 0 to 07777
	Owner      string    `json:"owner"`
	Group      string    `json:"group"`
	LinkTarget []byte    `json:"linkTarget,omitempty"`
}

// Update requests to delete paths and then to write files; at most 10000 paths. A relative path is
// below /workspace, an absolute one is inside the runner. "." and ".." are resolved before any
// lookup. Directories are deleted with their contents. A missing path isn't an error.
type Update struct {
	Empty  []string `json:"empty,omitempty"` // directories whose contents are deleted, before Delete
	Delete []string `json:"delete,omitempty"`
	Write  []Write  `json:"write,omitempty"`
	// Root does all of this instead of the user of commands, and owns what is written. After writes
	// below the workspace it also owns the directories down to them. Commands can't change, move or
	// delete what was written there.
	Protected bool `json:"protected,omitempty"`
}

// Write is one file of an Update, which replaces the old one by rename, or one directory. An
// existing directory isn't changed, except that a Mode other than 0 is applied to it.
type Write struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"` // bytes; -1 means that the content ends with a KindEnd
	Directory bool   `json:"directory,omitempty"`
	Mode      uint32 `json:"mode,omitempty"` // 0 means 0644 for a file, 0755 for a directory
}

// Move requests another path for a file, link or directory with its contents. Paths are as in an
// Update; the parent directory of To must exist. A move is atomic and never replaces an entry. The
// answer is the entry's description at To.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`

	Protected bool `json:"protected,omitempty"` // as in an Update
}

// Updated reports the result of an Update, with the paths of the request. Deleted lists the paths
// of Empty and Delete that existed. Failed lists the paths that passed all checks but couldn't be written or deleted,
// for example because the disk is full. A file that couldn't be written is unchanged.
type Updated struct {
	Written []string  `json:"written"`
	Deleted []string  `json:"deleted"`
	Failed  []Failure `json:"failed,omitempty"`

	// The new file's description, if the Update writes one file and nothing else. The client needs
	// no second request, which could fail although the file was written.
	File *FileInfo `json:"file,omitempty"`
}

// A Failure is a path that an Update couldn't write or delete, and why.
type Failure struct {
	Path    string    `json:"path"`
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
}

// An ErrorCode is the kind of an Error.
type ErrorCode string

// The codes.
const (
	ErrInvalid      ErrorCode = "invalid"      // the request is malformed or impossible
	ErrNotFound     ErrorCode = "notFound"     // no such execution, command, file or directory
	ErrWrongType    ErrorCode = "wrongType"    // for example a directory where a file is needed
	ErrDenied       ErrorCode = "denied"       // not allowed inside the runner, for example a write to a read-only file system
	ErrFull         ErrorCode = "full"         // no space left
	ErrTooMany      ErrorCode = "tooMany"      // the agent's limit on executions, transfers or entries was reached
	ErrIncompatible ErrorCode = "incompatible" // the peer has another version of the protocol
	ErrInternal     ErrorCode = "internal"     // the agent failed
)

// An Error is the agent's answer to a request that failed.
type Error struct {
	Code    ErrorCode `json:"code"`
	Path    string    `json:"path,omitempty"`  // the path that caused the error
	Index   int       `json:"index,omitempty"` // of the path in Update.Empty, Update.Delete or Update.Write
	Field   string    `json:"field,omitempty"` // "empty", "delete", "write", "from", "to", "argv", "dir" …
	Message string    `json:"message"`         // for people; never reveals details of the machine
}

func (e *Error) Error() string {
	if e.Path != "" {
		return e.Path + ": " + e.Message
	}
	return e.Message
}
