package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/execution"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
)

// A Begin is what is stored beside an execution until it has ended, so that another
// server can go on with it: what the API doesn't show.
type Begin struct {
	Env      []string         `json:"env"`
	Defaults []string         `json:"defaults,omitempty"` // agent.Start.Defaults
	Dir      string           `json:"dir,omitempty"`
	Before   runtime.Evidence `json:"before"`          // what the host had counted before the start
	Counted  bool             `json:"counted"`         // Before is known: without it nothing can be said to have risen
	Input    *string          `json:"input,omitempty"` // all of the stdin, where the server has to feed it
	Fed      bool             `json:"fed,omitempty"`   // all of the stdin comes again from elsewhere after a restart
}

// Encode returns it as it is stored.
func (b Begin) Encode() []byte {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // a plain struct of ours: never
	}
	return text
}

// left is what an earlier server left of a session.
type left struct {
	killed runtime.Outcome    // why it killed it; "": it didn't
	gone   runtime.GoneReason // why the runner went; "": it is there
}

// Resume returns the session of an execution that an earlier server left, in its last
// known state; at is where its log is, and a nil runner isn't there any more. What can't
// be brought back is skipped, and reported.
func (h *Host) Resume(ctx context.Context, u store.Unfinished, runner *runtime.Runner, at output.Place, skipped func(format string, args ...any)) *Session {
	x := u.Execution
	var begin Begin
	if err := json.Unmarshal(u.Start, &begin); err != nil { // if it runs it can go on
		skipped("execution %s: how it was started can't be read: %v", x.ID, err)
	}
	log, damaged := h.recoverLog(ctx, x.ID, at, skipped)
	if damaged {
		x.Losses = []runtime.OutputLoss{{Cause: runtime.LossDamaged}}
	}
	if n := len(x.Losses); n > 0 && x.Losses[n-1].To == 0 && x.Losses[n-1].From < log.Next() {
		x.Losses[n-1].To = log.Next() // output was written after it; that could not be stored
	}
	if runner == nil {
		runner = &runtime.Runner{ID: x.RunnerID}
	}
	s := h.New(*runner, x, begin, log)
	s.left, s.input.end = &left{killed: u.Killed}, u.InputEnd
	s.record.received.Store(log.Next())
	if runner.State != runtime.RunnerClaimed { // else its removal was never begun
		s.left.gone = u.Gone
	}
	s.record.recall()
	if neighbours, err := h.Store.Neighbours(ctx, x.RunnerID, x.Marks.QueuedAt); err != nil || neighbours {
		s.Crowd()
	}
	return s
}

// Input returns the stdin that an earlier server was still to feed, from which offset on,
// and whether there is any; it ends there.
func (s *Session) Input() (data []byte, offset int64, ok bool) {
	switch {
	case s.begin.Input != nil:
		return []byte(*s.begin.Input), 0, true
	case s.input.end != nil:
		return nil, *s.input.end, true
	default:
		return nil, 0, false
	}
}

// recall learns from the log whether the command ran, if only for less than its state was
// stored after: when it began is about when it was queued, until its agent says.
func (r *record) recall() {
	s := r.session
	if since, printed := r.log.First(); printed || r.log.Resized() > 0 {
		s.change(func(x runtime.Execution) runtime.Execution {
			r.guessed = x.State == runtime.ExecutionPending
			x = execution.Started(x, x.Marks.QueuedAt)
			if !printed {
				return x
			}
			return execution.Printed(x, x.Marks.StartedAt.Add(since))
		})
	}
	if s.Execution().State != runtime.ExecutionPending {
		closeOnce(s.started)
	}
}

// recoverLog recovers an execution's log, or puts it aside, for a person to look at, and
// returns a new one.
func (h *Host) recoverLog(ctx context.Context, id runtime.ExecutionID, at output.Place, skipped func(format string, args ...any)) (log *output.Log, damaged bool) {
	var once sync.Once
	log, err := recoverLog(at, func(err error) bool {
		once.Do(func() {
			h.Logger.Warn("the start waits: the output of an execution can't be read, for want of files (LimitNOFILE= in the server's unit), of memory, or of the database",
				zap.String("execution", string(id)), zap.Error(err))
		})
		return backoff.Sleep(ctx, lastPause) == nil
	})
	switch {
	case err == nil:
		return log, false
	case ctx.Err() != nil: // the server is stopping: the log is of no use
		return output.New(at), false
	}
	skipped("output of execution %s, which is now lost: %v", id, errors.Join(err, at.PutAside()))
	return output.New(at), true
}

// recoverLog recovers a log. Where the machine has no descriptors or memory it tries
// again, as long as again says so: the log itself is well.
func recoverLog(at output.Place, again func(error) bool) (*output.Log, error) {
	for {
		log, err := output.Recover(at)
		away := runtime.CodeOf(err) == runtime.CodeClusterUnavailable // the database
		short := away || slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM}, func(passes error) bool { return errors.Is(err, passes) })
		if !short || !again(err) {
			return log, err
		}
	}
}

// neverBegun reports whether the agent's refusal to go on means that an earlier server
// recorded the execution, but was killed before it started it: then nothing of it is
// known anywhere else.
func (s *Session) neverBegun(refused *agent.Error) bool {
	return s.left != nil && s.begin.Env != nil && refused.Code == agent.ErrNotFound &&
		s.record.received.Load() == 0 && s.Execution().State == runtime.ExecutionPending
}

// isBehind reports whether the agent refused to go on because it doesn't have the output
// any more: an earlier server acknowledged what a full disk then refused.
func (s *Session) isBehind(refused *agent.Error) bool {
	return s.left != nil && refused.Code == agent.ErrInvalid && refused.Field == "offset"
}

// catchUp skips output that the agent doesn't have any more: its readers see that it was
// lost. It reports whether there was such output.
func (r *record) catchUp(ctx context.Context) bool {
	s := r.session
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	conn, err := s.host.Cluster.Dial(ctx, s.runner.ID)
	if err != nil {
		return false
	}
	answer, err := agent.PingAgent(ctx, conn)
	if err != nil {
		return false
	}
	x := s.Execution()
	i := slices.IndexFunc(answer.Executions, func(known agent.Execution) bool { return known.ID == string(x.ID) })
	if i < 0 {
		return false
	}
	held := answer.Executions[i].Held
	if held <= r.received.Load() || held > x.OutputLimit { // it lies
		return false
	}
	s.host.Logger.Warn("output was lost", zap.String("execution", string(x.ID)), zap.Int64("bytes", held-r.received.Load()))
	if r.log.Torn() {
		r.lose(ctx, r.received.Load(), runtime.LossDamaged)
	}
	r.received.Store(held)
	r.log.Skip(held)
	r.wrote(ctx, held) // what the agent still has isn't lost
	return true
}
