// Package execution knows the life of one execution: its states, which only
// move forward, and which outcome the evidence allows. It is pure: it reads no
// clock and starts nothing.
package execution

import (
	"fmt"
	"strconv"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// Started moves a PENDING execution to RUNNING. In any other state it changes
// nothing: a second report of the same fact is no error.
func Started(x runtime.Execution, at time.Time) runtime.Execution {
	if x.State == runtime.ExecutionPending {
		x.State, x.Marks.StartedAt = runtime.ExecutionRunning, at
	}
	return x
}

// Printed notes the time of the first output.
func Printed(x runtime.Execution, at time.Time) runtime.Execution {
	if x.Marks.FirstOutputAt.IsZero() {
		x.Marks.FirstOutputAt = at
	}
	return x
}

// Finished moves an execution to FINISHED. One that is has its one outcome
// already and keeps it.
func Finished(x runtime.Execution, end runtime.End, usage runtime.Usage, at time.Time) runtime.Execution {
	if x.State == runtime.ExecutionFinished {
		return x
	}
	x.State, x.End, x.Usage, x.Marks.FinishedAt = runtime.ExecutionFinished, end, usage, at
	return x
}

// Facts are what is known at the end of an execution. The zero value knows
// nothing.
type Facts struct {
	Exit     *Exit              // what the agent saw; nil: nothing came
	Killed   runtime.Outcome    // with Exit.Killed, or Burnt: why we killed it
	Burnt    bool               // we removed the runner, because its agent did not kill when it was told to
	Refused  string             // why the agent refused to start it; "": it didn't
	Gone     runtime.GoneReason // why the runner went; "": it is there
	OOMKills int64              // that the host counted in the runner while it ran
	Forks    int64              // refused for the limit of processes, likewise
	Alone    bool               // no other execution ran in the runner meanwhile
	Own      bool               // both counts are of this execution alone, whoever else ran
	Limits   Limits             // what it was allowed
}

// Exit is what the agent saw of the end.
type Exit struct {
	Code   int
	Signal string          // "" if it exited
	Killed bool            // the agent killed it because we asked
	Limit  runtime.Outcome // the limit for which the agent killed it by itself; "": none
}

// Limits are told in messages.
type Limits struct {
	Time      time.Duration
	CPU       time.Duration
	Output    int64
	MemoryMiB int
	Processes int // of the runner
	FileSize  int64
	Own       int // processes of the execution, where that was the limit; 0: it wasn't
}

// Decide returns the outcome that the facts allow, and says it in words. What
// ended the execution counts, not what else happened to it: a limit that the
// agent enforced or our own kill goes before the kernel's counters, and those
// before the bare wait status. Without a wait status there is no exit code to
// tell: the runner is gone, or the outcome is LOST.
func Decide(f Facts) runtime.End {
	switch {
	case f.Refused != "":
		return runtime.End{Outcome: runtime.OutcomeFailed, Message: f.Refused}
	case f.Exit == nil && f.Burnt && f.Killed != "":
		return limitEnd(f.Killed, f.Limits)
	case f.Exit == nil && f.Gone != "":
		return runtime.End{Outcome: runtime.OutcomeRunnerGone, GoneReason: f.Gone,
			Message: "its runner went away: " + goneWords[f.Gone]}
	case f.Exit == nil:
		return runtime.End{Outcome: runtime.OutcomeLost, Message: "nobody saw how it ended"}
	case f.Exit.Limit != "":
		return limitEnd(f.Exit.Limit, f.Limits)
	case f.Exit.Killed && f.Killed != "":
		return limitEnd(f.Killed, f.Limits)
	}
	failed := f.Exit.Signal != "" || f.Exit.Code != 0
	// The kernel kills with SIGKILL; a shell tells of its child's death with 137.
	diedOfKill := f.Exit.Signal == "SIGKILL" || f.Exit.Code == 128+9
	switch {
	case failed && f.OOMKills > 0 && (f.Alone || f.Own || diedOfKill):
		return limitEnd(runtime.OutcomeMemoryLimit, f.Limits)
	case failed && f.Forks > 0 && (f.Alone || f.Own):
		return limitEnd(runtime.OutcomeProcessLimit, f.Limits)
	case f.Exit.Signal == "SIGXFSZ" && f.Limits.FileSize > 0:
		return runtime.End{Outcome: runtime.OutcomeSignaled, Signal: f.Exit.Signal,
			Message: "ended by SIGXFSZ: it wrote more than its file size limit of " + size(f.Limits.FileSize)}
	case f.Exit.Signal != "":
		return runtime.End{Outcome: runtime.OutcomeSignaled, Signal: f.Exit.Signal, Message: "ended by " + f.Exit.Signal}
	default:
		return runtime.End{Outcome: runtime.OutcomeExited, ExitCode: f.Exit.Code, Message: fmt.Sprintf("exited with code %d", f.Exit.Code)}
	}
}

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
		if l.Own > 0 {
			end.Message = fmt.Sprintf("it ran into its limit of %d processes", l.Own)
		}
	case runtime.OutcomeCPULimit:
		end.Message = "it ran into its CPU limit of " + seconds(l.CPU)
	case runtime.OutcomeCancelled:
		end.Message = "cancelled"
	}
	return end
}

// seconds says a time as "60 s".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// size says bytes in the largest unit of which they are a whole number.
func size(bytes int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	for len(units) > 1 && bytes > 0 && bytes%1024 == 0 {
		bytes, units = bytes/1024, units[1:]
	}
	return fmt.Sprint(bytes, " ", units[0])
}

// goneWords has every [runtime.GoneReason].
var goneWords = map[runtime.GoneReason]string{
	runtime.GoneReleased:           "it was released",
	runtime.GoneInactivity:         "nobody used it for as long as its inactivity timeout",
	runtime.GoneReplaced:           "it was replaced, since its environment changed",
	runtime.GoneShrunk:             "its pool was made smaller",
	runtime.GoneEnvironmentDeleted: "its environment was deleted",
	runtime.GoneStartFailed:        "it could not be started",
	runtime.GoneAgentDied:          "the agent inside it died",
	runtime.GoneOutOfMemory:        "it ran out of memory",
	runtime.GoneEvicted:            "the cluster took it away for want of room",
	runtime.GoneDrained:            "its machine was drained",
	runtime.GoneRescheduled:        "the cluster started it again elsewhere, without what was in it",
	runtime.GoneStoppedOutside:     "it was stopped from outside",
	runtime.GoneUnknown:            "nobody knows why",
}
