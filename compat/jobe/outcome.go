package jobe

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
)

// The outcomes of runs. Jobe also defines 19, an illegal system call, but never returns it. Neither
// does this API.
const (
	compileError = 11
	runtimeError = 12
	timeLimit    = 13 // of processor or wall time; also the limit of output
	success      = 15
	memoryLimit  = 17
	internal     = 20
	overload     = 21
)

// A result is the answer to a run.
type result struct {
	RunID   string `json:"run_id"`
	Outcome int    `json:"outcome"`
	CmpInfo string `json:"cmpinfo"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Hint    string `json:"hint,omitempty"` // beyond Jobe: what may have gone wrong
}

// A phase is the result of a build or of a program.
type phase struct {
	end            runtime.End // the zero value until it has ended
	stdout, stderr []byte
	lost           string // why output is missing, if it is
	hint           string // the execution's
}

// judge returns the result of a job from its phases.
func (j job) judge(build, run phase) result {
	// If the build failed, it is the result: nothing was run.
	if j.build != nil {
		switch build.end.Outcome {
		case "", runtime.OutcomeRunnerGone, runtime.OutcomeLost, runtime.OutcomeCancelled, runtime.OutcomeFailed:
			return result{Outcome: internal, Stderr: cmp.Or(build.end.Message, run.end.Message, "the build's output was lost")} // it isn't the source's fault
		}
		if build.end.Outcome == runtime.OutcomeTimeLimit { // of wall time, which a compiler reaches only on a busy machine
			return result{Outcome: overload}
		}
		if build.lost != "" {
			return result{Outcome: internal, Stderr: build.lost}
		}
		if text, failed := j.compileErrors(build); failed {
			return result{Outcome: compileError, CmpInfo: text}
		}
	}
	stdout, stderr := printable(run.stdout), printable(run.stderr)
	if j.dialect.stderr != nil {
		stderr = j.dialect.stderr(stderr)
	}
	if run.lost != "" { // incomplete output can't be graded
		return result{Outcome: internal, Stdout: stdout, Stderr: add(stderr, run.lost)}
	}
	switch run.end.Outcome {
	case runtime.OutcomeExited:
		switch {
		case stderr == "":
			return result{Outcome: success, Stdout: stdout}
		case j.dialect.failsBeforeItRuns != nil && run.end.ExitCode != 0 && stdout == "" && j.dialect.failsBeforeItRuns(stderr):
			return result{Outcome: compileError, CmpInfo: stderr}
		}
		return result{Outcome: runtimeError, Stdout: stdout, Stderr: stderr}
	case runtime.OutcomeSignaled:
		return result{Outcome: runtimeError, Stdout: stdout, Stderr: add(stderr, signalText(run.end.Signal))}
	case runtime.OutcomeProcessLimit:
		return result{Outcome: runtimeError, Stdout: stdout, Stderr: add(stderr, run.end.Message)}
	case runtime.OutcomeTimeLimit, runtime.OutcomeCPULimit, runtime.OutcomeOutputLimit:
		return result{Outcome: timeLimit, Stdout: stdout} // without stderr, which CodeRunner reports as a runtime error
	case runtime.OutcomeMemoryLimit:
		return result{Outcome: memoryLimit, Stdout: stdout}
	default:
		return result{Outcome: internal, Stdout: stdout, Stderr: add(stderr, run.end.Message)}
	}
}

// compileErrors returns the messages of a build, and whether they fail the job. As in Jobe, any
// output on stderr does.
func (j job) compileErrors(build phase) (text string, failed bool) {
	stdout, stderr := printable(build.stdout), printable(build.stderr)
	passed := build.end.Outcome == runtime.OutcomeExited && build.end.ExitCode == 0
	switch {
	case passed && (stderr == "" || j.dialect.warnings):
		return "", false
	case passed:
		return stderr, true
	}
	text = add(stdout, stderr)
	if build.end.Outcome != runtime.OutcomeExited || text == "" {
		text = add(text, "compiling failed: "+build.end.Message)
	}
	return text, true
}

// add appends a text on a new line.
func add(text, more string) string {
	if text != "" && more != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + more
}

// signalText describes a signal as shells do.
func signalText(signal string) string {
	texts := map[string]string{
		"SIGABRT": "Aborted", "SIGBUS": "Bus error", "SIGFPE": "Floating point exception", "SIGILL": "Illegal instruction",
		"SIGKILL": "Killed", "SIGSEGV": "Segmentation fault", "SIGTERM": "Terminated", "SIGSYS": "Bad system call",
		"SIGXFSZ": "File size limit exceeded", "SIGXCPU": "CPU time limit exceeded", "SIGTRAP": "Trace/breakpoint trap", "SIGPIPE": "Broken pipe",
	}
	if text := texts[signal]; text != "" {
		return text + "\n"
	}
	return "Ended by " + signal + "\n"
}

// printable returns output for JSON. Valid UTF-8 is unchanged. In other output each byte except
// printable ASCII, tab, CR and LF becomes \xHH.
func printable(output []byte) string {
	if utf8.Valid(output) {
		return string(output)
	}
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range output {
		if c > 0x7e || c < ' ' && c != '\t' && c != '\r' && c != '\n' {
			b.Write([]byte{'\\', 'x', digits[c>>4], digits[c&0xf]})
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
