package graph

import (
	"time"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/pagination"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/language"
)

// complexity says what a field costs: 1 and what is below it, that times the
// length of a list, 1 for each KiB of output, and what its resolver computes. Lines cost a fixed amount for
// reading, plus one for each line and field. maxComplexity then bounds an answer to some megabytes, and what
// aliases can multiply.
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
		return scanning + page(child, maxMatches) // of the runner's core, and a frame of 1 MiB here
	}
	return c
}

// fields is the part of complexity that takes memory before the operation starts. Resolvers take memory for output
// when they read it.
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
	c.Mutation.UploadFile = func(child int, _, _ string, _ transport.Upload, _ *string) int {
		return uploading + child
	}
	return c
}

// listed is how many tokens, tenants, environments, or what there is of each environment, a list counts for.
const listed = 100

// several is how many variables a list of them counts for: runtime.MaxVariables are rare.
const several = 16

// size returns how many languages there are, and in how many environments each is looked for at most.
func size(languages *language.Set) (n, lookups int) {
	all := languages.All()
	for _, r := range all {
		lookups = max(lookups, len(r.Environments))
	}
	return len(all), lookups
}

// listing is what reading a directory costs, however little of it is asked for.
const listing = 5_000

// historical is what a pool's last hour costs beside its fields: 360 entries in
// each, of two bytes or so.
const historical = 20

// counting is what it costs to look through all that a scheduler remembers, or all claims
// that wait, for any page of it: some ms when it is 20,000 entries.
const counting = 1_000

// searching is what it costs to search all executions that are kept, for any page of it: some 50 ms
// when they are 100,000.
const searching = 10_000

// scanning is what it costs to look for lines, beside the lines: 0.1 to 0.2 s of a core, by the bounds of package lines.
const scanning = 20_000

// uploading is what a file costs beside its bytes, which come no faster than
// the request brings them.
const uploading = 100

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
