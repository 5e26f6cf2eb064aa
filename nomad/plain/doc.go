// Package plain serves the agent's protocol for a runner in which the agent can't
// be: a cluster's own exec runs the commands. It guarantees, as the agent does,
// that output is whole and in its place, that an outcome was seen and isn't made
// up, and that what a command started ends with it; [Runner.Missing] says what
// can't be had this way.
//
// # Why it is a host of agent/serve
//
// The agent's server (package agent/serve) already owns ids, offsets, what is
// held until it is acknowledged, stdin's window, limits of time and output, and
// who follows what. It asks for a [serve.Host], of which this is another: half of
// a second server would have been a copy. The one thing that it lacked is a
// command of which nobody can tell how it ended (serve.Status.Lost).
//
// # One command
//
//	server                               runner
//	exec /bin/sh -c run.sh      →
//	its arguments, on stdin     →        checks directory and command
//	                            ←        "ready"
//	"go"                        →        (from here on it can't be tried again)
//	                            ←        "started" with its numbers, then the command prints
//	stdin                       →        is the command's
//	                            ←        "ended" with its code, on both outputs
//	"that is all"               →        ends
//
// What a script tells begins with a secret that it got on its stdin, and that the
// command can't see, so that a program can't forge it, and none of its bytes is
// taken for it. Nothing from a client is ever in a script's text or arguments:
// it would be in Nomad's log.
//
// An exec alone is no evidence (measured on Nomad 1.11.3). Its docker driver ends
// the stream when the command has ended, with whatever is still on its way, and
// returns 0 at once where it asks before the command has begun (2 to 4 of 100).
// Hence the script lives until the server has heard its end, and an exec that
// ends before is LOST, or before "go", is tried again. A driver whose exec ends
// with its stdin can't be told "that is all" after a command's stdin was closed:
// the script then stays for another 10 s, which nobody waits for, without its exec.
//
// # Processes
//
// A command has a session of its own, and [markVariable] in its environment. A
// second exec (kill.sh) ends those of its session, those that have the mark, and
// the children of both: it stops all before it kills any, until none is left. The
// script does the same when the command has ended by itself. The end of an exec's
// context ends nothing. What a server left behind that was killed is ended when
// the next one opens the runner.
//
// kill.sh sends a signal at most once. Before it does, it says "ready" and waits for
// "go", as run.sh does: an exec that breaks before is tried again, and one that
// breaks later is reported and isn't. A kill, which may be done twice, is tried
// until its answer comes.
//
// With a terminal the command's stderr is a FIFO, which another exec reads. The
// script holds it open, so that the command waits for no reader, and a reader that
// fails before it has read is started again; one that fails later makes the
// execution LOST, and it is killed.
//
// # What it needs in the image
//
// /bin/sh (dash, bash and busybox are tested), env and /proc; [Runner.Missing]
// tells what else is not there. Each command that runs holds a connection to
// Nomad, each with a terminal two, and each kill, signal and access to files one
// for a moment: whoever makes the [Exec] bounds them.
package plain
