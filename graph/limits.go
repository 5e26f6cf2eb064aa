package graph

import (
	"time"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/language"
)

// complexity returns the cost of each field. A field costs 1 and its selection, times the length of a
// list. To this it adds 1 for each KiB of output, and the work of its resolver. Lines cost a fixed
// amount for reading, and one for each line and field. So maxComplexity limits an answer to some
// megabytes, and what aliases can multiply.
func complexity(languages *language.Set) generated.ComplexityRoot {
	c := fields(languages)
	c.Query.Executions = func(child int, _, _ *string, _ []runtime.ExecutionState, outcomes []runtime.Outcome, failed *bool,
		labels []runtime.LabelFilter, command, text *string, from, to *time.Time, first *int, _ *string, _ *bool) int {
		if len(outcomes) > 0 || failed != nil || len(labels) > 0 || orZero(command) != "" || orZero(text) != "" || from != nil || to != nil {
			return searching + page(child, first)
		}
		return page(child, first)
	}
	c.Query.WaitingClaims = func(child int, _, _ *string, first *int, _ *string) int { return counting + page(child, first) }
	c.Query.Activity = func(child int) int { return counting + child }
	c.Cluster.Evaluations = func(child int, _, _ *string, _ []runtime.EvaluationStatus, first *int, _ *string) int {
		return counting + page(child, first)
	}
	c.Cluster.Allocations = func(child int, _, _ *string, _ []runtime.AllocationStatus, first *int, _ *string) int {
		return counting + page(child, first)
	}
	c.Execution.Output = func(child int, _ *string, maxBytes *int) int {
		return 1 + child + outputBytes(maxBytes)>>10
	}
	c.Execution.Lines = func(child int, _, _ *int64, _ *bool, maxLines *int, _ *runtime.Stream, _ *string, _ *bool) int {
		if maxLines == nil {
			maxLines = new(defaultLines)
		}
		return scanning + page(child, maxLines)
	}
	c.Runner.SearchFiles = func(child int, _, _, _ *string, maxMatches *int) int {
		return scanning + page(child, maxMatches) // a search uses a core of the runner, and a frame of 1 MiB here
	}
	return c
}

// fields returns the part of complexity that charges memory before the operation starts. Resolvers
// charge memory for output when they read it.
func fields(languages *language.Set) generated.ComplexityRoot {
	var c generated.ComplexityRoot
	listedLanguages, lookups := size(languages)
	c.Query.Runners = func(child int, _ *string, _ []runtime.RunnerState, _ *string, _ []runtime.LabelFilter, _, _ *time.Time, first *int, _ *string, _ *bool) int {
		return page(child, first)
	}
	c.Query.Executions = func(child int, _, _ *string, _ []runtime.ExecutionState, _ []runtime.Outcome, _ *bool,
		_ []runtime.LabelFilter, _, _ *string, _, _ *time.Time, first *int, _ *string, _ *bool) int {
		return page(child, first)
	}
	c.Query.Batches = func(child int, _, _ *string, first *int, _ *string, _ *bool) int {
		return page(child, first)
	}
	c.Query.Environments = func(child int) int { return listed * (1 + child) }
	c.Query.Languages = func(child int) int { return 1 + child*listedLanguages }
	c.Language.EnvironmentID = func(child int) int { return 1 + lookups + child }
	c.Language.Version = func(child int) int { return listed + lookups + child } // it can claim a runner
	c.Query.PoolAlerts = func(child int) int { return listed * (1 + child) }
	c.Query.PoolAlertHistory = func(child int) int { return 1 + child*activity.MostAlerts }
	c.Health.Components = func(child int) int { return listed * (1 + child) }
	c.Query.Tokens = func(child int, _ *bool) int { return listed * (1 + child) }
	c.Query.Tenants = func(child int) int { return listed * (1 + child) }
	c.Query.AuditLog = func(child int, _, _, _, _ *string, _ *bool, _, _ *time.Time, first *int, _ *string, _ *bool) int {
		return page(child, first)
	}
	c.Query.WaitingClaims = func(child int, _, _ *string, first *int, _ *string) int { return page(child, first) }
	c.Batch.Cases = func(child int, first *int, _ *string) int { return page(child, first) }
	c.Environment.Variables = func(child int) int { return 1 + child*several }
	c.Execution.Labels = func(child int) int { return 1 + child*runtime.MaxLabels }
	c.Claim.Labels = func(child int) int { return 1 + child*runtime.MaxLabels }
	c.Environment.PoolHistory = func(child int) int { return historical + child }
	c.Cluster.Evaluations = func(child int, _, _ *string, _ []runtime.EvaluationStatus, first *int, _ *string) int {
		return page(child, first)
	}
	c.Cluster.Allocations = func(child int, _, _ *string, _ []runtime.AllocationStatus, first *int, _ *string) int {
		return page(child, first)
	}
	c.Cluster.TaskEvents = func(child int, _ string) int { return 1 + child*runtime.KeptTaskEvents }
	c.Runner.Events = func(child int) int { return 1 + child*runtime.KeptTaskEvents }
	c.Runner.Files = func(child int, _ *string, _ *bool, first *int, _ *string) int {
		return listing + page(child, first) // the whole directory is read for any page of it
	}
	c.Runner.SearchFiles = func(child int, _, _, _ *string, maxMatches *int) int {
		return listing + page(child, maxMatches)
	}
	c.Mutation.UploadFile = func(child int, _, _ string, _ transport.Upload, _ *string, _ *bool) int {
		return uploading + child
	}
	return c
}

// listed is the assumed length of a list of tokens, of tenants, of environments, or of the one
// thing that each environment has.
const listed = 100

// several is the assumed number of an environment's variables: runtime.MaxVariables are rare.
const several = 16

// size returns the number of languages, and the largest number of environments that one of them
// tries.
func size(languages *language.Set) (n, lookups int) {
	all := languages.All()
	for _, r := range all {
		lookups = max(lookups, len(r.Environments))
	}
	return len(all), lookups
}

// listing is the cost of reading a directory, whatever the page's length.
const listing = 5_000

// historical is the cost of a pool's last hour in addition to its fields: each has 360 entries of
// about two bytes.
const historical = 20

// counting is the cost of reading all records of a scheduler, or all waiting claims, for any page
// of them: some milliseconds for 20,000.
const counting = 1_000

// searching is the cost of searching all kept executions, for any page of them: some 50 ms for
// 100,000.
const searching = 10_000

// scanning is the cost of reading output for lines, in addition to the lines: 0.1 to 0.2 s of a
// core, by the limits in runtime/executions.
const scanning = 20_000

// uploading is the cost of an upload without its bytes, whose rate the request limits.
const uploading = 100

// page returns the cost of a page of entries that each cost child.
func page(child int, first *int) int {
	entries := model.DefaultFirst
	if first != nil {
		entries = min(max(*first, 1), model.MaxFirst)
	}
	return 1 + child*entries
}

// outputBytes clamps the requested size. The resolver refuses a size out of range.
func outputBytes(maxBytes *int) int {
	if maxBytes == nil {
		return defaultOutputBytes
	}
	return min(max(*maxBytes, 1), maxOutputBytes)
}
