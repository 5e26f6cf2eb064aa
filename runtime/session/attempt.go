package session

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// openWithin bounds how long an agent may take to answer a new stream.
const openWithin = 10 * time.Second

// An attempt is one stream to the agent. One worker runs it; the loop reads its result afterwards.
type attempt struct {
	*Session
	began  time.Time    // when the dial began
	attach bool         // attach to an execution that the agent knows; otherwise start it
	dialed atomic.Int64 // nanoseconds until the stream was open; 0 means not open

	err      error // why no stream was opened
	exit     agent.Exit
	exited   bool
	evidence *runtime.Evidence // the host's counters at the end; nil means none, or not needed
}

func (a *attempt) run(ctx context.Context, joined func(*agent.Session)) {
	if stream, err := a.connect(ctx); err == nil {
		joined(stream)
		a.exit, a.exited = a.pump(ctx, stream)
	} else {
		a.err = err
	}
	succeeded := a.exited && a.exit.Signal == "" && a.exit.Code == 0
	if !a.begin.Counted || succeeded && (a.exit.PerCommand == nil || *a.exit.PerCommand == agent.CommandCounts{}) {
		return // the host's counters can't change this outcome
	}
	if evidence, err := a.host.Cluster.Evidence(ctx, a.runner.ID); err == nil {
		a.evidence = &evidence
	}
}

func (a *attempt) connect(ctx context.Context) (*agent.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	conn, err := a.host.Cluster.Dial(ctx, a.runner.ID)
	if err != nil {
		return nil, err
	}
	a.dialed.Store(max(1, int64(time.Since(a.began))))
	x := a.Execution()
	if a.attach {
		return agent.AttachExecution(ctx, conn, agent.Attach{ID: string(x.ID), Offset: a.record.received.Load(), Terminal: x.Terminal != nil, Resized: a.record.log.Resized()})
	}
	start := agent.Start{
		ID: string(x.ID), Argv: x.Command, Env: a.begin.Env, Defaults: a.begin.Defaults, Dir: a.begin.Dir, Stdin: x.Stdin,
		TimeLimit: x.TimeLimit, OutputLimit: x.OutputLimit, Privileged: x.Privileged,
	}
	if x.Terminal != nil {
		start.Terminal = &agent.Size{Columns: x.Terminal.Columns, Rows: x.Terminal.Rows}
	}
	if x.Limits != (runtime.Limits{}) {
		limits := agent.Limits(x.Limits)
		start.Limits = &limits
	}
	return agent.StartExecution(ctx, conn, start)
}

// pump copies a stream's events. exited means that the exit came, and that all output before it was
// written or recorded as lost.
func (a *attempt) pump(ctx context.Context, stream *agent.Session) (exit agent.Exit, exited bool) {
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	for {
		event, err := stream.Next()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the agent keeps it for the server's next start
		}
		if err != nil {
			_ = stream.Close()
			a.record.flush(ctx, nil)
			return agent.Exit{}, false
		}
		switch event.Kind {
		case agent.KindStarted:
			a.record.began(event.Started)
		case agent.KindOutput:
			a.record.output(ctx, stream, event)
		case agent.KindResized:
			a.record.sized = true
			a.record.add(ctx, stream, output.Record{Offset: event.Offset, Since: event.Time, Size: runtime.TerminalSize(event.Size)})
		case agent.KindExited:
			return event.Exit, a.record.flush(ctx, stream)
		}
	}
}

// weigh adds the exit and the host's evidence to the facts. The agent may be hostile, so what it says
// counts only where the host can't contradict it.
func (a *attempt) weigh(facts *Facts) {
	x, exit := a.Execution(), a.exit
	e := &Exit{Code: exit.Code, Signal: exit.Signal}
	switch exit.Cause {
	case agent.CauseKill:
		e.Killed = true
	case agent.CauseTimeLimit:
		e.Limit = runtime.OutcomeTimeLimit
	case agent.CauseOutputLimit:
		e.Limit = runtime.OutcomeOutputLimit
	case agent.CauseCPULimit:
		if x.Limits.CPU > 0 { // otherwise the agent lies
			e.Limit = runtime.OutcomeCPULimit
		}
	case agent.CauseMemoryLimit:
		e.Limit = runtime.OutcomeMemoryLimit
	case agent.CauseProcessLimit:
		// If the whole runner was full, the host's counters decide below.
		if x.Limits.Processes > 0 && (exit.PerCommand == nil || exit.PerCommand.ForksRefused == 0) {
			e.Limit, facts.Limits.OfExecution = runtime.OutcomeProcessLimit, x.Limits.Processes
		}
	}
	if limit := x.Limits.Processes; limit > 0 && limit < facts.Limits.Processes {
		facts.Limits.OfExecution = limit
	}
	facts.Exit = e
	facts.Alone = !a.shared.Load()
	after, counts := a.evidence, exit.PerCommand
	if after == nil {
		return
	}
	// The counters cover the runner's whole life. Their increase is of this execution's time.
	facts.OOMKills = after.OOMKills - a.begin.Before.OOMKills
	facts.Forks = after.ProcessLimitHits - a.begin.Before.ProcessLimitHits
	switch facts.PerExecution = counts != nil; {
	// Only the agent counts here.
	case after.Inside:
		if counts = cmp.Or(counts, exit.Shared); counts != nil {
			facts.OOMKills, facts.Forks = max(counts.OOMKills, facts.OOMKills), counts.ForksRefused
		}
	case counts == nil:
	case after.OwnKernel:
		facts.Forks = counts.ForksRefused // only the agent can report it
	default:
		// The host counted for the whole runner. The agent can only lower these counts.
		facts.OOMKills, facts.Forks = min(counts.OOMKills, facts.OOMKills), min(counts.ForksRefused, facts.Forks)
	}
}
