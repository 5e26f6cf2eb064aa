package engine

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/store"
)

// The memory that is kept for one thing, in bytes, in addition to its texts. Tests in test/e2e/api
// show that a server survives as many as it admits.
const (
	waitingBytes     = 16 << 10 // a waiting claim: its goroutines
	executionBytes   = 48 << 10 // an unfinished execution: its goroutines, stream and log
	batchBytes       = 32 << 10 // an unfinished batch: its goroutine and state
	environmentBytes = 32 << 10 // an environment: its pool's goroutine and history
)

// Memory returns the budget for what this server keeps for its callers.
func (e *Engine) Memory() *quota.Memory { return e.memory }

// bytesOf returns the bytes of all texts.
func bytesOf(texts ...string) (n int64) {
	for _, text := range texts {
		n += int64(len(text)) + 16
	}
	return n
}

func bytesOfLabels(labels []runtime.Label) (n int64) {
	for _, l := range labels {
		n += bytesOf(l.Name, l.Value)
	}
	return n
}

func bytesOfVariables(variables []runtime.Variable) (n int64) {
	for _, v := range variables {
		n += bytesOf(v.Name, v.Value)
	}
	return n
}

// bytesOfExecution returns what an execution keeps until it has ended, in addition to
// [session.Session.Bytes].
func bytesOfExecution(x runtime.Execution) int64 {
	return executionBytes + bytesOf(x.Command...) + bytesOf(x.Line) + bytesOfLabels(x.Labels)
}

// bytesOfEnvironment returns what an environment keeps. Its record is read once more by a starting
// server.
func bytesOfEnvironment(env runtime.Environment) int64 {
	n := environmentBytes + 2*(bytesOfVariables(env.Variables)+bytesOf(env.Network.AllowNames...)+bytesOf(env.Image))
	if env.Previous != nil {
		n += bytesOfEnvironment(*env.Previous) - environmentBytes
	}
	return n
}

// bytesOfBatch returns what a batch keeps: what its executions share, and the largest step. Both are
// decoded from their records.
func bytesOfBatch(shared int, steps []store.BatchStep) int64 {
	largest := 0
	for _, step := range steps {
		largest = max(largest, len(step.Value))
	}
	return batchBytes + 2*int64(shared+largest)
}

// bytesOfRun returns what a run keeps that continues without its caller.
func bytesOfRun(in RunInput, cases ...CaseInput) int64 {
	n := bytesOf(in.Command...) + bytesOfVariables(in.Variables) + bytesOfLabels(in.Labels)
	for _, f := range in.Files {
		n += bytesOf(f.Path) + int64(len(f.Data))
	}
	if in.Stdin != nil {
		n += bytesOf(*in.Stdin)
	}
	for _, c := range cases {
		n += bytesOf(c.Args...) + int64(len(c.Stdin)+len(c.Expected))
	}
	return n
}
