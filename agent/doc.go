// Package agent is the protocol between the server and the small program that
// runs inside every runner, and the server's side of it.
//
// # Streams
//
// A stream is any reliable, ordered, two-way byte stream: a Unix socket
// locally, a multiplexed stream on Nomad. Each carries one request: one
// execution or one transfer, so that a flooding program can't stall another.
// The client sends a [Request] frame first, which tells its protocol version;
// the agent answers with a [Response] frame. What follows depends on the
// request. Either side may close the stream at any time; an execution goes on
// without it.
//
// # Frames
//
//	length  uint32, big endian: the number of bytes that follow, 1 to MaxFrame
//	kind    one byte: see Kind
//	body    length-1 bytes
//
// Bodies of control frames are JSON objects whose unknown members are ignored;
// bodies of data frames are binary (numbers big endian; offsets at most 2^62):
//
//	KindOutput       stream (1 byte), offset (uint64), time since the start in
//	                 microseconds (uint64), then 1 to MaxData bytes
//	KindStdin        offset (uint64), then 1 to MaxData bytes
//	KindStdinWindow  received (uint64): stdin bytes that the agent has, so that a
//	                 client that attached knows where to go on; limit (uint64):
//	                 the client may send stdin up to this offset
//	KindAck          offset (uint64): all output before it is in the server's log
//	KindResized      offset (uint64), time since the start in microseconds
//	                 (uint64), columns (uint16), rows (uint16): between the output
//	                 before and from that offset on, the terminals got this size
//	KindResizedAck   time (uint64): all sizes that were set until then are in the
//	                 server's log
//	KindData         bytes of a file
//
// # Versions
//
// An agent answers each request in the request's version of the protocol, and
// tells in Response.Speaks which is its newest; a client asks in the oldest that
// has what it asks for. So a client works with agents that are older than it
// is, but for what these can't do, which is ErrIncompatible; an agent works with
// clients of every version from Oldest on. Bytes of version 1 are recorded in
// testdata, and tests insist that they're still understood.
//
// Version 2 adds terminals, limits and root (members of Start), KindResize and
// KindSignal, files of unknown size (Write.Size -1), the causes cpuLimit and
// processLimit, Response.Speaks and Updated.File. Version 1's KindEnd went to the client
// only.
//
// Version 3 adds KindResized and KindResizedAck. A client that takes the first
// says so in Start.Resizes or Attach.Resizes, which older agents ignore as they do
// every member that they don't know; an agent sends it to no other client.
//
// Version 4 adds Warm and Started.Warm. A client without them is unaffected.
//
// Version 5 adds Move, AskUsage and Usage. A client without them is unaffected.
//
// Version 6 adds Search, Found, Watch and KindChanges. A client without them is unaffected.
//
// # An interpreter that is loaded
//
// A Warm request has the agent load an interpreter with modules, before the runner is used. It then
// starts each command of that interpreter from it, as far as nothing distinguishes it from one
// that is executed. Started.Warm and Started.Cold report which it was. A module that can't be loaded
// is ErrInvalid, with the field "modules", the module as its path and the interpreter's own
// error as its message.
//
// # An execution
//
// After a start or attach request that was answered without an error:
//
//	agent → client   KindStarted, KindOutput …, KindResized …, KindStdinWindow …, KindExited
//	client → agent   KindStdin …, KindStdinEnd, KindAck …, KindResizedAck …, KindResize …, KindSignal …, KindKill, KindSettled
//
// A start is idempotent by the execution's id: a second one with the same id
// attaches at output offset 0. An attach says from which output offset to go
// on, and acknowledges what is before it; one that isn't held (any more) is
// ErrInvalid. The agent holds every byte that wasn't acknowledged (at most 1
// MiB of frames per execution and 8 MiB in all, then the program blocks on its
// pipe) and the exit until KindSettled says that it was stored; it then
// remembers the id for a while, and refuses to start it again with ErrInvalid.
// A newer stream for the same execution displaces an older one, which is
// closed. Offsets count the bytes of both outputs merged, in the order in which
// the agent read them; an ack may lie within a frame, and not beyond what was
// sent.
//
// KindStdinWindow follows KindStarted on every stream, also of an execution
// without stdin: then, and once the program has closed it, stdin is thrown
// away. Stdin that the agent has already is skipped, so that a client that
// attached may send it again.
//
// When the command itself has ended, the agent reads on until both outputs
// end, for at most 100 ms, kills what was left behind, and sends the exit.
//
// # Terminals
//
// With Start.Terminal the descriptors 0 and 1 are one terminal, the command's
// controlling one, and 2 is a second one: all three are terminals, and the
// outputs stay apart. Both have one size. What is typed is stdin, Ctrl-C and
// Ctrl-D are the bytes 3 and 4; KindStdinEnd types what the terminal takes for
// the end. Each size is a KindResized among the output, the first one too, also
// while nobody follows; its time is later than that of every one before it, by
// which a client that comes back says which it has. What the program prints at
// the new size comes after it. The agent holds at most 4 KiB of sizes that weren't
// acknowledged beyond its other bounds; of more, only the last is told, before
// the next output. KindKill with a grace hangs up first (SIGHUP), since interactive
// shells ignore SIGTERM. A program that does job control through descriptor 2, as
// bash does, has it only with 2>&1.
//
// # Limits and users
//
// Start.Limits hold from the command's first instruction on. OpenFiles and
// FileSize are the kernel's (RLIMIT_NOFILE, RLIMIT_FSIZE), for each process. CPU
// and Processes are the execution's: every 50 ms the agent sums over all that it
// started, and kills it when it is over; the kernel's limits stand behind, a
// second above CPU for each process, and for the user's processes one above
// Processes and what runs already. Processes whose parent ignores SIGCHLD count
// for CPU as long as they live. A failed command that had more than Processes
// when it ended counts as one that was killed for it.
//
// Where the kernel counts for an execution alone, in control groups, the exit
// has Exit.Own, what the runner's own limits did to this execution: one to which
// a fork was refused is killed, with the cause processLimit. The server believes it as
// far as the host's counters of the whole runner allow.
//
// A Privileged command is uid 0 of the runner's user namespace, with CAP_CHOWN,
// CAP_DAC_OVERRIDE, CAP_FOWNER and CAP_KILL there, and the same bounding set,
// no_new_privs and filter. Without CAP_SETGID it keeps the group by which its
// execution is known. It can end its own agent, and so its runner.
//
// # Usage
//
// An AskUsage request is answered with what the runner and each execution that runs has used so
// far, and holds now. Nothing is measured for it unless somebody asks. What an execution has used
// may be estimated; its Exit has the final figures.
//
// # Files
//
// A list is answered by KindFile frames, sorted by path element by element and
// with paths relative to the directory, and KindEnd. A read is answered by one
// KindFile, KindData frames that add up to its size less the request's offset,
// and KindEnd. An
// update's request carries every path and size; all are checked first, and an
// error then means that nothing was touched. After an answer without an error
// the client sends the contents, in order, as KindData frames, and KindEnd after
// one whose size is -1, and the agent ends with KindUpdated. A stream that is cut
// before leaves the file that was on its way as it was.
//
// A Search request is answered by a Response with Found, and nothing follows. It reads directories
// and regular files as a List and a Read would, follows no link and leaves out views of the kernel. It
// ends early at the bounds of Found.Limit. It ends, too, when the client closes the stream.
//
// A Watch request is answered once all that happens from then on is reported. KindChanges frames
// follow (changes are gathered for 50 ms) until the client closes the stream, or KindEnd says why no more
// come: the directory was deleted or moved, or too much is below it. The agent holds 1000 changes
// at most. Of more, and of what the kernel dropped, it reports only that they were lost
// (Changes.Lost); once that is sent, what comes next is reported again. It uses inotify as the runner's
// root: at most 8 of its instances and 4096 of its watches.
//
// A peer that breaks the protocol is cut off. The server treats every agent as
// hostile, and the agent every client that isn't the server.
package agent

// Ready is what an agent says on its standard output when it serves, where it makes
// its socket itself for who isn't of its kernel ("agent serve --outside").
const Ready = "ready\n"
