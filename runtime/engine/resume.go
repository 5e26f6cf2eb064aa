package engine

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/execution"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
)

// A begin is what is stored beside an execution until it has ended, so that
// another server can go on with it: what the API doesn't show.
type begin struct {
	Env     []string         `json:"env"`
	Dir     string           `json:"dir,omitempty"`
	Before  runtime.Evidence `json:"before"`          // what the host had counted before the start
	Counted bool             `json:"counted"`         // Before is known: without it nothing can be said to have risen
	Input   *string          `json:"input,omitempty"` // all of the stdin, where Execute has to feed it
}

func (b begin) encode() []byte {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // a plain struct of ours: never
	}
	return text
}

// recoverLog recovers a log. Where the machine has no descriptors or memory it tries
// again, as long as again says so: the log itself is well.
func recoverLog(path string, again func(error) bool) (*output.Log, error) {
	for {
		log, err := output.Recover(path)
		short := slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM}, func(passes error) bool { return errors.Is(err, passes) })
		if !short || !again(err) {
			return log, err
		}
	}
}

// unreadable ends the names of logs that could not be recovered.
const unreadable = ".unreadable"

// resume returns the session of an execution that an earlier server left, in its
// last known state. Its pool is set by the caller; without a runner it has none.
func (e *Engine) resume(ctx context.Context, u store.Unfinished, runner *runtime.Runner) *session {
	x := u.Execution
	var b begin
	if err := json.Unmarshal(u.Start, &b); err != nil { // if it runs it can go on
		e.notRestored("execution %s: how it was started can't be read: %v", x.ID, err)
	}
	var once sync.Once
	log, err := recoverLog(e.logPath(x.ID), func(err error) bool {
		once.Do(func() {
			e.logger.Warn("the start waits: the output of an execution can't be read for want of files or memory; raise the server's limit of open files (LimitNOFILE= in its unit), or free some memory",
				zap.String("execution", string(x.ID)), zap.Error(err))
		})
		return sleep(ctx, lastPause)
	})
	if ctx.Err() != nil && err != nil {
		log = output.New(e.logPath(x.ID)) // of no use: the server is stopping
	} else if err != nil {
		// What comes goes to a new log. The old one stays, for a person to look at.
		aside := os.Rename(e.logPath(x.ID), e.logPath(x.ID)+unreadable)
		e.notRestored("output of execution %s, which is now lost: %v", x.ID, errors.Join(err, aside))
		log = output.New(e.logPath(x.ID))
		x.Losses = []runtime.OutputLoss{{Cause: runtime.LossDamaged}}
	}
	if n := len(x.Losses); n > 0 && x.Losses[n-1].To == 0 && x.Losses[n-1].From < log.Next() {
		x.Losses[n-1].To = log.Next() // output was written after it; that could not be stored
	}
	s := newSession(e, nil, runtime.Runner{ID: x.RunnerID}, x, b, log)
	s.resumed, s.received, s.inputEnd = true, log.Next(), u.InputEnd
	if runner != nil {
		s.runner = *runner
	}
	if runner == nil || runner.State != runtime.RunnerClaimed { // else its removal was never begun
		s.gone, s.goneAt = u.Gone, time.Now()
	}
	if u.Killed != "" {
		s.killed, s.late = u.Killed, time.Now().Add(agentLate)
	}
	if since, printed := log.First(); printed || log.Resized() > 0 {
		// It ran, if only for less than a guard's tick: when it began is about when
		// it was queued, until its agent tells.
		s.change(func(x runtime.Execution) runtime.Execution {
			s.guessed = x.State == runtime.ExecutionPending
			x = execution.Started(x, x.Marks.QueuedAt)
			if !printed {
				return x
			}
			return execution.Printed(x, x.Marks.StartedAt.Add(since))
		})
	}
	if s.execution().State != runtime.ExecutionPending {
		closeOnce(s.started)
	}
	if neighbours, err := e.store.Neighbours(ctx, x.RunnerID, x.Marks.QueuedAt); err != nil || neighbours {
		s.crowded.Store(true)
	}
	return s
}

// begun takes in that the command runs, since at.
func (s *session) begun(at time.Time) {
	at = s.plausible(at)
	s.change(func(x runtime.Execution) runtime.Execution {
		if s.guessed {
			if first := x.Marks.FirstOutputAt; !first.IsZero() {
				x.Marks.FirstOutputAt = first.Add(at.Sub(x.Marks.StartedAt))
			}
			x.Marks.StartedAt = at
		}
		return execution.Started(x, at)
	})
	s.guessed = false
	if !s.resumed {
		s.engine.counts.starting.Add(at.Sub(s.execution().Marks.QueuedAt))
	}
	closeOnce(s.started)
}

// plausible returns a time that an agent told, or the nearest one that can be
// true.
func (s *session) plausible(at time.Time) time.Time {
	queued, now := s.execution().Marks.QueuedAt, time.Now()
	switch {
	case at.Before(queued):
		return queued
	case at.After(now):
		return now
	default:
		return at
	}
}

// neverBegun reports whether the agent's refusal to go on means that an earlier
// server recorded the execution, but didn't come to start it: then nothing of it
// is known anywhere else.
func (s *session) neverBegun(refused *agent.Error) bool {
	return s.resumed && s.begin.Env != nil && refused.Code == agent.ErrNotFound &&
		s.received == 0 && s.execution().State == runtime.ExecutionPending
}

// catchUp skips output that the agent doesn't have any more, because an earlier
// server acknowledged what a full disk then refused: its readers are told that
// it was lost.
func (s *session) catchUp(ctx context.Context, refused *agent.Error) bool {
	if !s.resumed || refused.Code != agent.ErrInvalid || refused.Field != "offset" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	conn, err := s.engine.cluster.Dial(ctx, s.runner.ID)
	if err != nil {
		return false
	}
	answer, err := agent.PingAgent(ctx, conn)
	if err != nil {
		return false
	}
	id := string(s.execution().ID)
	i := slices.IndexFunc(answer.Executions, func(x agent.Execution) bool { return x.ID == id })
	if i < 0 {
		return false
	}
	held := answer.Executions[i].Held
	if held <= s.received || held > s.execution().OutputLimit { // it lies
		return false
	}
	s.engine.logger.Warn("output was lost", zap.String("execution", id), zap.Int64("bytes", held-s.received))
	if s.log.Torn() {
		s.lose(ctx, s.received, runtime.LossDamaged)
	}
	s.received = held
	s.log.Skip(s.received)
	s.wrote(ctx, held) // what the agent still has isn't lost
	return true
}
