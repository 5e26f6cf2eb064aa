package command

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// Exit codes in addition to a program's own. They follow timeout(1) and the shell; rockpool run
// --help lists them.
const (
	CodeUsage       = 2   // the command line can't be understood
	CodeLimit       = 124 // a limit ended the program
	CodeOurs        = 125 // Rockpool failed, not the program; 126 and 127 come from the server
	codeSignal      = 128 // plus the signal's number
	CodePipe        = 141 // 128 + SIGPIPE: nobody reads the output
	CodeInterrupted = 130 // 128 + SIGINT
)

// ClosedPipe reports whether err is that nobody reads the command's output, as with | head.
func ClosedPipe(err error) bool {
	return errors.As(err, new(*output.WriteError)) && errors.Is(err, unix.EPIPE)
}

// CodeOf returns the exit code for an execution's end, and a message to print first, if there is one.
func CodeOf(e client.Ending) (int, string) {
	switch e.Outcome {
	case runtime.OutcomeExited:
		if e.ExitCode == nil {
			return 0, ""
		}
		// The rest of the message says what else happened.
		_, also, _ := strings.Cut(e.Message, "; ")
		return *e.ExitCode, also
	case runtime.OutcomeSignaled:
		if number := unix.SignalNum(e.Signal); number > 0 {
			return codeSignal + int(number), words(e, "the program was ended by signal "+e.Signal)
		}
		return CodeOurs, "the program was ended by an unknown signal " + e.Signal
	case runtime.OutcomeTimeLimit, runtime.OutcomeCPULimit, runtime.OutcomeMemoryLimit, runtime.OutcomeProcessLimit, runtime.OutcomeOutputLimit:
		return CodeLimit, words(e, "the program exceeded a limit")
	case runtime.OutcomeCancelled:
		return CodeInterrupted, words(e, "the program was cancelled")
	case runtime.OutcomeRunnerGone:
		return CodeOurs, words(e, "the runner is gone ("+string(e.GoneReason)+")")
	case runtime.OutcomeLost:
		return CodeOurs, words(e, "it is unknown how the program ended")
	default:
		code := CodeOurs
		if e.ExitCode != nil {
			code = *e.ExitCode
		}
		return code, words(e, "the program couldn't be started")
	}
}

// words returns a sentence about an ending: the server's message with the outcome. Without a
// message, otherwise takes its place.
func words(e client.Ending, otherwise string) string {
	if e.Message == "" {
		return fmt.Sprintf("%s (%s)", otherwise, e.Outcome)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Outcome)
}
