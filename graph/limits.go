package graph

import (
	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/pagination"
	"github.com/rockpool/rockpool/runtime"
)

// complexity says what a field costs: 1 and what is below it, that times the
// length of a page, and 1 for each KiB of output. maxComplexity then bounds an
// answer to some megabytes, and what aliases can multiply.
func complexity() generated.ComplexityRoot {
	var c generated.ComplexityRoot
	c.Query.Runners = func(child int, _ *string, _ []runtime.RunnerState, first *int, _ *string) int {
		return page(child, first)
	}
	c.Query.Executions = func(child int, _, _ *string, _ []runtime.ExecutionState, first *int, _ *string) int {
		return page(child, first)
	}
	c.Runner.Files = func(child int, _ *string, _ *bool, first *int, _ *string) int {
		return listing + page(child, first) // the whole directory is read for any page of it
	}
	c.Execution.Output = func(child int, _ *string, maxBytes *int) int {
		return 1 + child + outputBytes(maxBytes)>>10
	}
	return c
}

// listing is what reading a directory costs, however little of it is asked for.
const listing = 5_000

func page(child int, first *int) int {
	entries := pagination.DefaultFirst
	if first != nil {
		entries = min(max(*first, 1), pagination.MaxFirst)
	}
	return 1 + child*entries
}

// outputBytes bounds what was asked for; the resolver refuses what is out of
// bounds.
func outputBytes(maxBytes *int) int {
	if maxBytes == nil {
		return defaultOutputBytes
	}
	return min(max(*maxBytes, 1), maxOutputBytes)
}
