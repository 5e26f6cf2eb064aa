package cli

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// Exit codes beside a program's own. They are those of timeout(1) and the
// shell; see Help of rockpool run.
const (
	CodeUsage       = 2   // the command line can't be understood
	codeLimit       = 124 // a limit ended the program
	CodeOurs        = 125 // Rockpool failed, not the program
	codeSignal      = 128 // plus the signal's number
	CodeInterrupted = 130 // 128 + SIGINT
)

// exitCode returns what to exit with, and what to say beforehand; "" is
// nothing.
func exitCode(e client.Ending) (int, string) {
	switch e.Outcome {
	case runtime.OutcomeExited:
		if e.ExitCode == nil {
			return 0, ""
		}
		return *e.ExitCode, ""
	case runtime.OutcomeSignaled:
		if number := unix.SignalNum(e.Signal); number > 0 {
			return codeSignal + int(number), "the program was ended by " + e.Signal
		}
		return CodeOurs, "the program was ended by signal " + e.Signal
	case runtime.OutcomeTimeLimit, runtime.OutcomeCPULimit, runtime.OutcomeMemoryLimit, runtime.OutcomeProcessLimit, runtime.OutcomeOutputLimit:
		return codeLimit, words(e, "the program was ended by a limit")
	case runtime.OutcomeCancelled:
		return CodeInterrupted, words(e, "the program was cancelled")
	case runtime.OutcomeRunnerGone:
		return CodeOurs, words(e, "the runner went ("+string(e.GoneReason)+")")
	case runtime.OutcomeLost:
		return CodeOurs, words(e, "nobody knows how the program ended")
	default:
		return CodeOurs, words(e, "the program could not be run")
	}
}

func words(e client.Ending, otherwise string) string {
	if e.Message == "" {
		return fmt.Sprintf("%s (%s)", otherwise, e.Outcome)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Outcome)
}
