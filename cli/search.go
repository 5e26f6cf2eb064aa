package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// searchFlags are the flags that select executions.
type searchFlags struct {
	Env     string   `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Only executions in runners of this environment."`
	Runner  string   `complete:"runner" placeholder:"RUNNER" help:"Only executions in this runner."`
	Label   []string `placeholder:"NAME=VALUE" sep:"none" help:"Only executions with this label; NAME alone: with any value. Can be given more than once: all must match."`
	Command string   `placeholder:"TEXT" help:"Only executions whose command line contains this text; upper and lower case are the same."`
	Since   string   `placeholder:"TIME" help:"Only executions queued since this time: a time such as 2026-11-20T21:27:00Z, or a duration before now such as 90s, 1h or 7d."`
}

// given reports whether any of the flags is given.
func (f searchFlags) given() bool {
	return f.Env != "" || f.Runner != "" || len(f.Label) > 0 || f.Command != "" || f.Since != ""
}

// A search has the conditions in addition to searchFlags.
type search struct {
	states   []runtime.ExecutionState
	outcomes []runtime.Outcome
	failed   bool
	limit    int // 0 for all
}

// executions returns the matching executions, the newest first.
func (f searchFlags) executions(ctx context.Context, server client.Sender, of search) ([]client.ListedExecution, error) {
	labels, err := labelFilters(f.Label)
	if err != nil {
		return nil, err
	}
	from, err := command.Moment("--since", f.Since)
	if err != nil {
		return nil, err
	}
	var failed *bool
	if of.failed {
		failed = &of.failed
	}
	left := of.limit
	return command.Pages(func(after *string) ([]client.ListedExecution, client.PageInfo, error) {
		size := command.LabelledPage
		if of.limit > 0 {
			size = new(min(left, *size))
		}
		out, err := client.GetExecutions(ctx, server, command.Optional(f.Env), command.Optional(f.Runner), of.states, of.outcomes, failed, labels, command.Optional(f.Command), from, size, after, new(true))
		page := out.Executions
		if left -= len(page.Nodes); of.limit > 0 && left <= 0 {
			page.PageInfo.HasNextPage = false
		}
		return page.Nodes, page.PageInfo, err
	})
}

// pairs parses the values NAME=VALUE of a flag.
func pairs[T client.LabelInput | client.VariableInput](flag string, texts []string) (all []T, err error) {
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%s is %q, but must be NAME=VALUE", flag, text)
		}
		all = append(all, T{Name: name, Value: value})
	}
	return all, nil
}

// labelFilters parses labels to search for.
func labelFilters(texts []string) (labels []client.LabelFilterInput, err error) {
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if name == "" {
			return nil, fmt.Errorf("--label is %q, but must be NAME=VALUE or NAME", text)
		}
		filter := client.LabelFilterInput{Name: name}
		if ok {
			filter.Value = &value
		}
		labels = append(labels, filter)
	}
	return labels, nil
}

// labelText returns labels in the format of the flag --label.
func labelText[L client.Label | client.LeaseLabelsLabel](labels []L) string {
	texts := make([]string, len(labels))
	for i, l := range labels {
		label := client.Label(l)
		texts[i] = label.Name + "=" + label.Value
	}
	return strings.Join(texts, " ")
}

// date formats a time in the local time zone; "-" for none.
func date(moment *time.Time) string {
	if moment == nil || moment.IsZero() {
		return "-"
	}
	return moment.Local().Format(time.DateTime)
}
