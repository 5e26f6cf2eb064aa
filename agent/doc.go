// Package agent defines the protocol between the server and the small program that runs inside
// every runner, and implements the server's side of it. It guarantees that an execution survives a
// broken stream and that no byte of its output is lost or repeated.
//
// The package treats every agent as hostile. Data from an agent is checked before a caller sees it,
// and its size is bounded. An agent in turn cuts off every peer that violates the protocol.
//
// # Streams
//
// A stream is any reliable, ordered, two-way byte stream: a Unix socket locally, a multiplexed
// stream on Nomad. Each stream carries one request: one execution or one transfer. A program that
// floods its output therefore can't stall another one. The client sends a [Request] frame with its
// protocol version first. The agent answers with a [Response] frame. The frames after it depend on
// the request. Either side may close the stream at any time; the execution continues without it.
// If the versions differ, the agent answers with ErrIncompatible.
//
// # Frames
//
//	length  uint32, big endian: the number of bytes that follow, 1 to MaxFrame
//	kind    one byte: see Kind
//	body    length-1 bytes
//
// Bodies of control frames are JSON objects; unknown members are ignored. Bodies of data frames are
// binary (numbers big endian; offsets at most 2^62):
//
//	KindOutput       stream (1 byte), offset (uint64), time since the start in
//	                 microseconds (uint64), then 1 to MaxData bytes
//	KindStdin        offset (uint64), then 1 to MaxData bytes
//	KindStdinWindow  received (uint64): stdin bytes that the agent has, so that a
//	                 client that attached knows where to continue; limit (uint64):
//	                 the client may send stdin up to this offset
//	KindAck          offset (uint64): all output before it is in the server's log
//	KindResized      offset (uint64), time since the start in microseconds
//	                 (uint64), columns (uint16), rows (uint16): the terminals got
//	                 this size at this offset of the output
//	KindResizedAck   time (uint64): all sizes set up to this time are in the
//	                 server's log
//	KindData         bytes of a file
//
// # Preloaded interpreters
//
// A Warm request makes the agent load an interpreter with modules before the runner is used. The
// agent then starts commands of that interpreter from the loaded one, unless a command could notice
// the difference. Started.Warm and Started.Cold report which way was used. If a module fails to
// load, the error is ErrInvalid with the field "modules", the module as its path and the
// interpreter's own error as its message.
//
// # Executions
//
// After a start or attach request that was answered without an error:
//
//	agent → client   KindStarted, KindOutput …, KindResized …, KindStdinWindow …, KindExited
//	client → agent   KindStdin …, KindStdinEnd, KindAck …, KindResizedAck …, KindResize …, KindSignal …, KindKill, KindSettled
//
// A start is idempotent by the execution's id: a second one with the same id attaches at output
// offset 0. An attach names the output offset to continue from and acknowledges all output before
// it. If the agent doesn't hold that offset, the error is ErrInvalid. Offsets count the bytes of
// both outputs merged, in the order in which the agent read them. An acknowledgement may lie within
// a frame, but not beyond the output that was sent.
//
// The agent holds all output that wasn't acknowledged: at most 1 MiB of frames per execution and 8
// MiB in total. Beyond that the program blocks on its pipe. The agent holds the exit until
// KindSettled reports that the server stored it. It then remembers the id for a while and refuses
// to start it again with ErrInvalid. A newer stream for the same execution replaces the older one,
// which is closed.
//
// KindStdinWindow follows KindStarted on every stream, also for an execution without stdin. Stdin
// is discarded in that case, and after the program closed it. The agent skips stdin bytes that it
// already has, so a client that attached may send them again.
//
// When the command itself has ended, the agent reads until both outputs end, for at most 100 ms.
// Then it kills the processes that are left and sends the exit.
//
// # Terminals
//
// With Start.Terminal, descriptors 0 and 1 are the command's controlling terminal. Descriptor 2 is
// a second terminal, so that stdout and stderr stay separate. Both have the same size. Keystrokes
// are sent as stdin; Ctrl-C and Ctrl-D are the bytes 3 and 4. KindStdinEnd types the terminal's
// end-of-file character.
//
// Each size, including the first, is a KindResized frame among the output, also while no client is
// attached. Its time is later than that of every size before it. A client that attaches again names
// the time of its last size. Output that the program prints at the new size follows the frame. The
// agent holds at most 4 KiB of unacknowledged sizes, in addition to its other bounds. Beyond that
// it reports only the newest size, before the next output.
//
// KindKill with a grace period sends SIGHUP first, since interactive shells ignore SIGTERM. A
// program that uses descriptor 2 for job control, as bash does, has job control only with 2>&1.
//
// # Limits and users
//
// Start.Limits apply from the command's first instruction. The kernel enforces OpenFiles and
// FileSize for each process (RLIMIT_NOFILE, RLIMIT_FSIZE). The agent enforces CPU and Processes for
// the execution: every 50 ms it sums over all processes of the execution and kills it when it is
// over a limit. Limits of the kernel back this up: one second above CPU for each process, and for
// the user one above Processes plus the processes that already run. Processes whose parent ignores
// SIGCHLD count for CPU only while they live. A failed command that had more than Processes when it
// ended counts as killed for that limit.
//
// With control groups the kernel counts for each execution. Then Exit.PerCommand reports how the runner's
// own limits affected this execution. An execution whose fork was refused is killed with the cause
// processLimit. The server trusts these counts only up to the machine's counters of the whole runner.
//
// A Privileged command is uid 0 of the runner's user namespace, with CAP_CHOWN, CAP_DAC_OVERRIDE,
// CAP_FOWNER and CAP_KILL there. The bounding set, no_new_privs and the seccomp filter are the same
// as for other commands. Without CAP_SETGID it keeps the group by which the agent recognizes its
// execution. It can kill its own agent, and so its runner.
//
// # Usage
//
// A UsageRequest returns how much the runner and each running execution have used so far and hold
// now. The agent measures only on request. The usage of a running execution may be an estimate; its
// Exit has the final figures.
//
// # Files
//
// The answer to a list is KindFile frames and then KindEnd. Each directory comes before the entries
// below it; their paths are relative to the listed directory. The answer to a read is one KindFile, then
// KindData frames with the file's bytes from the request's offset, then KindEnd.
//
// The request of an update carries every path and size. The agent checks all of them first: an
// error at this point means that no file was changed. After an answer without an error the client
// sends the contents, in order, as KindData frames, and KindEnd after each content whose size is
// -1. The agent finishes with KindUpdated. If the stream breaks earlier, the file that was being
// written is unchanged. The agent makes an update and a move as the user of commands; if it is
// Protected, as root.
//
// A Search request is answered by a Response with Found, and no frame follows. It reads directories
// and regular files as List and Read do. It follows no links and skips file systems of the kernel
// such as /proc. It stops early at the bounds named by Found.Limit, or when the client closes the
// stream.
//
// The agent answers a Watch request when it has started to watch. KindChanges frames follow, each
// with the changes of 50 ms, until the client closes the stream. KindEnd reports an early end: the
// directory was deleted or moved, or has too much below it. The agent holds at most 1000 changes.
// It reports further changes, and those that the kernel dropped, only as lost (Changes.Lost). After
// that frame it reports changes again. It uses inotify as the runner's root: at most 8 instances
// and 4096 watches.
package agent

// Ready is the line that "agent serve --outside" writes to its standard output when it accepts
// streams. With --outside the agent creates its socket itself, for a server on another kernel
// (gVisor).
const Ready = "ready\n"
