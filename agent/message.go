package agent

import "time"

// Versions of the protocol. An agent answers a request of each from Oldest to
// Protocol, in the request's own version; a client asks in the oldest version
// that has what it asks for, so that it can talk to agents older than itself.
const (
	Protocol = 6
	Oldest   = 1
)

// Bounds of the protocol.
const (
	MaxData     = 32 << 10  // bytes of output, stdin or file in one frame
	MaxFrame    = 16 << 20  // bytes of a request or of an Updated; every other frame is at most MaxData and a header, or 1 MiB of JSON
	StdinWindow = 256 << 10 // stdin bytes that the agent holds for a program that doesn't read
)

// Exit codes of an agent that can't serve as a task of Nomad's.
const (
	ExitNotRoot      = 77 // it isn't root of its task (EX_NOPERM of sysexits.h)
	ExitNoNamespaces = 71 // it can't make a user namespace (EX_OSERR)
)

// A Kind says what a frame's body is.
type Kind byte

// The kinds.
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
	KindEnd         Kind = 14 // agent → client: empty, or Response with an error; client → agent, since version 2: empty
	KindUpdated     Kind = 15 // agent → client: Updated
	KindResize      Kind = 16 // client → agent: Size; since version 2
	KindSignal      Kind = 17 // client → agent: Signal; since version 2
	KindResized     Kind = 18 // agent → client: binary; since version 3, to a client that asked for it
	KindResizedAck  Kind = 19 // client → agent: binary; since version 3, after a KindResized
	KindChanges     Kind = 20 // agent → client: Changes; since version 6, after a Watch
)

// A Request opens a stream. Exactly one of its pointers is set.
type Request struct {
	Protocol int       `json:"protocol"`
	Ping     *Ping     `json:"ping,omitempty"`
	Start    *Start    `json:"start,omitempty"`
	Attach   *Attach   `json:"attach,omitempty"`
	List     *ListDir  `json:"list,omitempty"`
	Read     *ReadFile `json:"read,omitempty"`
	Update   *Update   `json:"update,omitempty"`
	Warm     *Warm     `json:"warm,omitempty"`   // since version 4
	Usage    *AskUsage `json:"usage,omitempty"`  // since version 5
	Move     *Move     `json:"move,omitempty"`   // since version 5
	Search   *Search   `json:"search,omitempty"` // since version 6
	Watch    *Watch    `json:"watch,omitempty"`  // since version 6
}

// A Response answers a Request.
type Response struct {
	Protocol   int         `json:"protocol"`             // the request's
	Speaks     int         `json:"speaks,omitempty"`     // the newest version that the agent speaks; version 1 didn't tell
	Version    string      `json:"version,omitempty"`    // the agent's build, for the log
	Executions []Execution `json:"executions,omitempty"` // to a Ping
	Warmed     *Warmed     `json:"warmed,omitempty"`     // to a Warm, once all is loaded
	Usage      *Usage      `json:"usage,omitempty"`      // to an AskUsage
	Found      *Found      `json:"found,omitempty"`      // to a Search
	Error      *Error      `json:"error,omitempty"`
}

// Ping asks whether the agent is ready, and what it runs.
type Ping struct{}

// Warm asks for an interpreter that has modules loaded, from which commands start. It is answered
// once they are. A second one that asks for the same is answered at once.
type Warm struct {
	Interpreter string   `json:"interpreter"` // InterpreterPython
	Modules     []string `json:"modules,omitempty"`
	Env         []string `json:"env,omitempty"` // of commands that name no variables of their own
}

// InterpreterPython is the first of python3 and python in PATH.
const InterpreterPython = "python"

// Warmed says what was loaded.
type Warmed struct {
	Version string `json:"version"` // of the interpreter: "3.11"
	Memory  int64  `json:"memory"`  // bytes that it holds and no file backs, as it says itself
}

// An Execution is one that the agent knows and that wasn't settled.
type Execution struct {
	ID     string `json:"id"`
	Exited bool   `json:"exited"`
	Held   int64  `json:"held,omitempty"` // the output offset from which on it can be attached; old agents don't tell
}

// Start asks for a command to be run.
type Start struct {
	ID          string        `json:"id"`
	Argv        []string      `json:"argv"`                  // argv[0] is looked up in PATH of Env unless it has a slash
	Env         []string      `json:"env,omitempty"`         // NAME=value; all of the command's environment, but for an image's
	Dir         string        `json:"dir,omitempty"`         // relative to /workspace; "": the image's, where the agent knows one, else /workspace
	Stdin       bool          `json:"stdin,omitempty"`       // false: at its end from the start
	TimeLimit   time.Duration `json:"timeLimit,omitempty"`   // wall time; 0: none
	OutputLimit int64         `json:"outputLimit,omitempty"` // bytes of both outputs; 0: none

	// Since version 2.
	Terminal   *Size   `json:"terminal,omitempty"`   // 0 and 1 are one terminal of this size, 2 is another; implies Stdin
	Limits     *Limits `json:"limits,omitempty"`     // of what the kernel gives to it
	Privileged bool    `json:"privileged,omitempty"` // as root of the runner

	// Since version 3: the client takes KindResized. Older agents know nothing
	// of it, and send none.
	Resizes bool `json:"resizes,omitempty"`

	// Names in Env that are mere defaults: an agent that is an image's command takes the image's values for
	// them. Older agents, and others, leave Env as it is.
	Defaults []string `json:"defaults,omitempty"`
}

// A Size is a terminal's, in characters; each is 1 to MaxSize.
type Size struct {
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// MaxSize bounds a terminal's columns and rows.
const MaxSize = 4096

// Limits hold from a command's first instruction on; 0 is none.
type Limits struct {
	CPU       time.Duration `json:"cpu,omitempty"`       // processor time of it and all that it starts, whole seconds
	Processes int           `json:"processes,omitempty"` // processes and threads at once
	OpenFiles int           `json:"openFiles,omitempty"` // descriptors of each process
	FileSize  int64         `json:"fileSize,omitempty"`  // bytes of each file that is written
}

// A Signal asks for a signal to the command's process group and, on a
// terminal, to the group in the foreground there.
type Signal struct {
	Name string `json:"name"` // "SIGTERM"
}

// Attach asks to go on with an execution that was started before.
type Attach struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset"` // the first output byte that the client doesn't have

	// Since version 3, as Start.Resizes.
	Resizes bool          `json:"resizes,omitempty"`
	Resized time.Duration `json:"resized,omitempty"` // when the last size was set that the client has; 0: it has none
}

// Started says that the command runs.
type Started struct {
	At time.Time `json:"at"`

	// Set only by an agent that has an interpreter loaded (Warm).
	Warm bool   `json:"warm,omitempty"` // the command was started from it
	Cold string `json:"cold,omitempty"` // why it wasn't, for people
}

// A Cause says who ended an execution.
type Cause string

// The causes.
const (
	CauseSelf        Cause = ""            // it ended by itself, or was signalled by someone inside
	CauseKill        Cause = "kill"        // a Kill frame
	CauseTimeLimit   Cause = "timeLimit"   // it ran for its TimeLimit
	CauseOutputLimit Cause = "outputLimit" // it printed OutputLimit bytes and wanted to print more

	CauseMemoryLimit Cause = "memoryLimit" // it held too much memory of the kernel that nobody counts

	// Since version 2, and but for Exit.Own only with Start.Limits.
	CauseCPULimit     Cause = "cpuLimit"     // it used Limits.CPU
	CauseProcessLimit Cause = "processLimit" // it had more than Limits.Processes; with Exit.Own.ForksRefused: the runner had no room for more
)

// Exit tells how an execution ended, after its last output. Either Code is
// what it exited with or Signal names what killed it ("SIGKILL").
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

	// What an agent tells since it can have control groups for commands; others
	// leave it out.
	PeakProcesses int    `json:"peakProcesses,omitempty"` // and threads
	BytesRead     *int64 `json:"bytesRead,omitempty"`     // from disks
	BytesWritten  *int64 `json:"bytesWritten,omitempty"`
	Own           *Own   `json:"own,omitempty"`
	Together      *Own   `json:"together,omitempty"` // in place of Own: others ran in the runner meanwhile, and it is theirs, too
}

// Own is what the kernel counted, while an execution ran, for it alone.
type Own struct {
	OOMKills     int64 `json:"oomKills,omitempty"`     // its processes that were killed because the runner's memory was full
	ForksRefused int64 `json:"forksRefused,omitempty"` // because the runner was full of processes
}

// Kill asks to end an execution and everything that it started, setsid
// included. Grace is the time between SIGTERM and SIGKILL; 0: SIGKILL at once.
type Kill struct {
	Grace time.Duration `json:"grace,omitempty"`
}

// ListDir asks for the entries of a directory, sorted by path.
type ListDir struct {
	Path      string `json:"path"` // "": the workspace
	Recursive bool   `json:"recursive,omitempty"`
}

// ReadFile asks for a regular file's bytes. With InfoOnly it asks for what
// KindFile says of an entry of any type.
type ReadFile struct {
	Path     string `json:"path"`
	InfoOnly bool   `json:"infoOnly,omitempty"`

	// Since version 2.
	Name   []byte `json:"name,omitempty"`   // in place of Path, for one that isn't UTF-8
	Offset int64  `json:"offset,omitempty"` // bytes to leave out, not more than the file has
}

// FileInfo is one entry. Path and LinkTarget are bytes, which JSON carries in
// base64, since a file's name need not be UTF-8.
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

// Update asks to delete paths, then to write files. A relative path is one
// below /workspace, an absolute one is one inside the runner; "." and ".." are
// taken out before anything is looked up. A deleted path whose last element is
// "*" means everything in that directory; one that isn't there is no error.
// Directories are deleted with what they hold. At most 10000 paths.
type Update struct {
	Delete []string `json:"delete,omitempty"`
	Write  []Write  `json:"write,omitempty"`
}

// Write is one file of an Update, replaced by rename, or one directory. A
// directory that is there stays as it is, but for a Mode that isn't 0.
type Write struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"` // -1, since version 2: as many bytes as come before a KindEnd
	Directory bool   `json:"directory,omitempty"`
	Mode      uint32 `json:"mode,omitempty"` // 0: 0744 for a file, 0755 for a directory
}

// Move asks to give a file, a directory or a link another path, with all that is below it. Paths
// are as in an Update; the directory of To must be there. It replaces nothing, is done in one step,
// and is answered with what KindFile says of the entry at To.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Updated tells what an Update did, with paths as they were asked for. Deleted
// names what was there. Failed names what could not be written, or deleted,
// although nothing spoke against it before, a full disk for example; a file
// that could not be written is as it was.
type Updated struct {
	Written []string  `json:"written"`
	Deleted []string  `json:"deleted"`
	Failed  []Failure `json:"failed,omitempty"`

	// Since version 2, whichever the request had: what an Update that writes one
	// file, and nothing else, put in place. Nothing has to be asked afterwards,
	// which could fail although the file is there.
	File *FileInfo `json:"file,omitempty"`
}

// A Failure is a path and what went wrong with it.
type Failure struct {
	Path    string    `json:"path"`
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
}

// An ErrorCode is the kind of an Error.
type ErrorCode string

// The codes.
const (
	ErrInvalid      ErrorCode = "invalid"      // the request can't be carried out as it is
	ErrNotFound     ErrorCode = "notFound"     // no such execution, command, file or directory
	ErrWrongType    ErrorCode = "wrongType"    // a directory where a file is needed, or the like
	ErrDenied       ErrorCode = "denied"       // not allowed inside the runner, for example a read-only place
	ErrFull         ErrorCode = "full"         // no room left
	ErrTooMany      ErrorCode = "tooMany"      // the agent's bound on executions, transfers or entries was reached
	ErrIncompatible ErrorCode = "incompatible" // the other side's protocol isn't spoken here
	ErrInternal     ErrorCode = "internal"     // the agent failed
)

// An Error is what a request failed with.
type Error struct {
	Code    ErrorCode `json:"code"`
	Path    string    `json:"path,omitempty"`  // the path that it is about
	Index   int       `json:"index,omitempty"` // its place in Update.Delete or Update.Write
	Field   string    `json:"field,omitempty"` // "delete", "write", "from", "to", "argv", "dir" …
	Message string    `json:"message"`         // for people; without detail of the host
}

func (e *Error) Error() string {
	if e.Path != "" {
		return e.Path + ": " + e.Message
	}
	return e.Message
}
