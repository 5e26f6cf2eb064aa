package session

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// The states of an execution only move forward, and its outcome is the one that the evidence supports.
// The functions of this file are pure: they read no clock and start nothing.
//
//	PENDING ─ Started ─▶ RUNNING ─ Finished ─▶ FINISHED   (RUNNING may be skipped)

// Started moves a PENDING execution to RUNNING. In any other state it changes nothing, so a repeated
// report is no error.
func Started(x runtime.Execution, at time.Time) runtime.Execution {
	if x.State == runtime.ExecutionPending {
		x.State, x.Timestamps.StartedAt = runtime.ExecutionRunning, at
	}
	return x
}

// Printed records the time of the first output. Later calls change nothing.
func Printed(x runtime.Execution, at time.Time) runtime.Execution {
	if x.Timestamps.FirstOutputAt.IsZero() {
		x.Timestamps.FirstOutputAt = at
	}
	return x
}

// Finished moves an execution to FINISHED, not before its other times. A finished one keeps its outcome.
func Finished(x runtime.Execution, end runtime.End, usage runtime.Usage, at time.Time) runtime.Execution {
	if x.State == runtime.ExecutionFinished {
		return x
	}
	for _, before := range []time.Time{x.Timestamps.StartedAt, x.Timestamps.FirstOutputAt} {
		if at.Before(before) { // another machine's clock, or one that was set back before a boot
			at = before
		}
	}
	x.State, x.End, x.Usage, x.Timestamps.FinishedAt = runtime.ExecutionFinished, end, usage, at
	return x
}

// Facts are the evidence at the end of an execution. The zero value has none.
type Facts struct {
	Exit         *Exit              // reported by the agent; nil means no report
	Killed       runtime.Outcome    // with Exit.Killed or TimedOut: why the server killed it
	TimedOut     bool               // the server removed the runner, because its agent didn't kill the execution
	Refused      string             // why the agent refused to start it; "" means it started
	ShellCode    int                // with Refused: the exit code of a shell that can't start the command; 0 means none
	Gone         runtime.GoneReason // why the runner ended; "" means it exists
	OOMKills     int64              // counted by the host in the runner meanwhile
	Forks        int64              // refused at the limit of processes, counted likewise
	Alone        bool               // no other execution ran in the runner
	PeakMemory   int64              // bytes; 0 means unknown
	PerExecution bool               // both counts are of this execution alone, even if others ran
	Limits       Limits             // that applied to it
}

// Exit is the end as the agent reported it.
type Exit struct {
	Code   int
	Signal string          // "" if it exited
	Killed bool            // the agent killed it at the server's request
	Limit  runtime.Outcome // the limit that the agent enforced; "" means none
}

// Limits are for messages.
type Limits struct {
	Time        time.Duration // of wall time
	CPU         time.Duration // of processor time
	Output      int64         // bytes
	MemoryMiB   int
	Processes   int           // of the runner
	FileSize    int64         // bytes of one file
	Lease       time.Duration // that its client didn't renew in time; 0 means it did
	OfExecution int           // process limit of the execution, if that was reached; 0 means it wasn't
}

// Decide returns the outcome that the facts support, with a message. The cause of the end counts,
// not other events. A limit enforced by the agent or a kill by the server goes before the kernel's
// counters, and these before the wait status. Without a wait status there is no exit code: the
// runner is gone, or the outcome is LOST.
func Decide(f Facts) runtime.End {
	end := decide(f)
	if kills := f.OwnOOMKills(); kills > 0 && end.Outcome != runtime.OutcomeMemoryLimit {
		end.Message += fmt.Sprintf("; the kernel killed %d of its processes because the runner's memory was full", kills)
	}
	if f.Forks > 0 && (f.Alone || f.PerExecution) && end.Outcome != runtime.OutcomeProcessLimit {
		end.Message += fmt.Sprintf("; it couldn't start %d processes or threads, because of its limit of %d", f.Forks, cmp.Or(f.Limits.OfExecution, f.Limits.Processes))
	}
	return end
}

// OwnOOMKills returns how many processes of the execution itself were killed because memory was
// full; 0 if they may be another's.
func (f Facts) OwnOOMKills() int {
	if !f.Alone && !f.PerExecution {
		return 0
	}
	return int(f.OOMKills)
}

// decide is Decide without what else happened.
func decide(f Facts) runtime.End {
	switch {
	case f.Refused != "":
		return runtime.End{Outcome: runtime.OutcomeFailed, ExitCode: f.ShellCode, Message: f.Refused}
	case f.Exit == nil && f.TimedOut && f.Killed != "":
		return limitEnd(f.Killed, f.Limits)
	case f.Exit == nil && f.Gone != "":
		return runtime.End{Outcome: runtime.OutcomeRunnerGone, GoneReason: f.Gone,
			Message: "its runner is gone: " + goneWords[f.Gone]}
	case f.Exit == nil:
		return runtime.End{Outcome: runtime.OutcomeLost, Message: "no evidence of its end survived"}
	case f.Exit.Limit != "":
		return limitEnd(f.Exit.Limit, f.Limits)
	case f.Exit.Killed && f.Killed != "":
		return limitEnd(f.Killed, f.Limits)
	}
	failed := f.Exit.Signal != "" || f.Exit.Code != 0
	// The kernel kills with SIGKILL; a shell reports its child's death as 137.
	diedOfKill := f.Exit.Signal == "SIGKILL" || f.Exit.Code == 128+9
	switch {
	case failed && f.OOMKills > 0 && (f.Alone || f.PerExecution || diedOfKill):
		return limitEnd(runtime.OutcomeMemoryLimit, f.Limits)
	case failed && f.Forks > 0 && (f.Alone || f.PerExecution):
		return limitEnd(runtime.OutcomeProcessLimit, f.Limits)
	case f.Exit.Signal != "":
		return runtime.End{Outcome: runtime.OutcomeSignaled, Signal: f.Exit.Signal, Message: "ended by " + f.Exit.Signal + signalCause(f)}
	default:
		return runtime.End{Outcome: runtime.OutcomeExited, ExitCode: f.Exit.Code, Message: fmt.Sprintf("exited with code %d", f.Exit.Code)}
	}
}

// signalCause returns what a signal usually means, after a colon; "" if that isn't known.
func signalCause(f Facts) string {
	if f.Exit.Signal == "SIGXFSZ" && f.Limits.FileSize > 0 {
		return ": it wrote more than its file size limit of " + size(f.Limits.FileSize)
	}
	// The stack may become nearly as large as the memory.
	if f.Exit.Signal == "SIGSEGV" && f.Limits.MemoryMiB > 0 && f.PeakMemory >= int64(f.Limits.MemoryMiB)<<20/8*7 {
		return fmt.Sprintf(": its memory of %d MiB was nearly full; probably its stack overflowed, for example by an endless recursion", f.Limits.MemoryMiB)
	}
	if cause := signalCauses[f.Exit.Signal]; cause != "" {
		return ": " + cause
	}
	return ""
}

var signalCauses = map[string]string{
	"SIGABRT": "it ended itself, for example by abort(), a failed assertion or an uncaught exception of C++",
	"SIGBUS":  "it used a part of a mapped file that doesn't exist, for example after its file system was full",
	"SIGFPE":  "it divided an integer by zero, or the result was too large",
	"SIGILL":  "it executed an instruction that doesn't exist, or that this processor doesn't have",
	"SIGPIPE": "it wrote to a pipe or connection whose reader has ended",
	"SIGSEGV": "it used memory that isn't its own, for example by a null pointer or an index out of range",
	"SIGSYS":  "it made a system call of another architecture, such as those of 32-bit programs",
	"SIGXCPU": "it used the processor time that it allowed itself, for example by ulimit -t",
	"SIGXFSZ": "it wrote a larger file than it allowed itself, for example by ulimit -f",
}

// limitEnd returns the end of an execution that a limit or a cancellation stopped.
func limitEnd(outcome runtime.Outcome, l Limits) runtime.End {
	end := runtime.End{Outcome: outcome}
	switch outcome {
	case runtime.OutcomeTimeLimit:
		end.Message = "it ran into its time limit of " + seconds(l.Time)
	case runtime.OutcomeOutputLimit:
		end.Message = "it ran into its output limit of " + size(l.Output)
	case runtime.OutcomeMemoryLimit:
		end.Message = fmt.Sprintf("it ran into its runner's memory limit of %d MiB", l.MemoryMiB)
	case runtime.OutcomeProcessLimit:
		end.Message = fmt.Sprintf("it ran into its runner's limit of %d processes", l.Processes)
		if l.OfExecution > 0 {
			end.Message = fmt.Sprintf("it ran into its limit of %d processes", l.OfExecution)
		}
	case runtime.OutcomeCPULimit:
		end.Message = "it ran into its CPU limit of " + seconds(l.CPU)
	case runtime.OutcomeCancelled:
		end.Message = "cancelled"
		if l.Lease > 0 {
			end.Message = "cancelled: the client that started it is gone; it didn't renew its lease of " + seconds(l.Lease)
		}
	}
	return end
}

// seconds formats a time as "60 s".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// size formats bytes in the largest unit that gives a whole number.
func size(bytes int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	for len(units) > 1 && bytes > 0 && bytes%1024 == 0 {
		bytes, units = bytes/1024, units[1:]
	}
	return fmt.Sprint(bytes, " ", units[0])
}

// goneWords describes every [runtime.GoneReason].
var goneWords = map[runtime.GoneReason]string{
	runtime.GoneReleased:           "it was released",
	runtime.GoneInactivity:         "it was not used during its inactivity timeout",
	runtime.GoneReplaced:           "it was replaced because its environment changed",
	runtime.GoneShrunk:             "its pool was made smaller",
	runtime.GoneEnvironmentDeleted: "its environment was deleted",
	runtime.GoneStartFailed:        "it could not be started",
	runtime.GoneAgentDied:          "the agent inside it died",
	runtime.GoneOutOfMemory:        "it ran out of memory",
	runtime.GoneEvicted:            "the cluster evicted it to make room",
	runtime.GoneDrained:            "its machine was drained",
	runtime.GoneRescheduled:        "the cluster restarted it on another machine, without its files",
	runtime.GoneStoppedOutside:     "it was stopped from outside",
	runtime.GoneUnknown:            "the reason is unknown",
}
