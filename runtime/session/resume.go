package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
)

// A Begin is stored with an execution until it has ended. It contains what another server needs to
// continue the execution and the API doesn't show.
type Begin struct {
	Env      []string         `json:"env"`
	Defaults []string         `json:"defaults,omitempty"` // agent.Start.Defaults
	Dir      string           `json:"dir,omitempty"`
	Before   runtime.Evidence `json:"before"`          // host's counters before the start
	Counted  bool             `json:"counted"`         // Before is known; otherwise no increase can be proved
	Input    *string          `json:"input,omitempty"` // whole stdin, if the server has to feed it
	Encoded  int64            `json:"-"`               // size of the stored form
	Fed      bool             `json:"fed,omitempty"`   // after a restart the whole stdin is fed again from elsewhere
	Queued   runtime.Moment   `json:"queued,omitzero"` // Timestamps.QueuedAt on the monotonic clock
}

// Bytes returns the memory of what the session keeps until the agent has it: the variables, which are
// copied to be sent, and the stdin.
func (b Begin) Bytes() (start, input int64) {
	for _, variables := range [][]string{b.Env, b.Defaults} {
		for _, v := range variables {
			start += 2 * int64(len(v)+16)
		}
	}
	if b.Input != nil {
		input = int64(len(*b.Input))
	}
	return start, input
}

// Encode returns the stored form.
func (b Begin) Encode() []byte {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // impossible: this is a plain struct
	}
	return text
}

type recovered struct {
	killed runtime.Outcome    // why it killed the execution; "" means it didn't
	gone   runtime.GoneReason // why the runner ended; "" means it exists
}

// Resume returns the session of an execution that an earlier server left, in its last known state.
// at is the location of its log. A nil runner no longer exists. skipped is called with everything that
// can't be restored.
func (h *Host) Resume(ctx context.Context, u store.Unfinished, runner *runtime.Runner, at output.Location, skipped func(format string, args ...any)) *Session {
	x := u.Execution
	var begin Begin
	if err := json.Unmarshal(u.Start, &begin); err != nil { // if it runs already, it can continue
		skipped("execution %s: its start record is unreadable: %v", x.ID, err)
	}
	begin.Encoded = int64(len(u.Start))
	log, damaged := h.recoverLog(ctx, x.ID, at, skipped)
	if damaged {
		x.Losses = []runtime.OutputLoss{{Cause: runtime.LossDamaged}}
	}
	if n := len(x.Losses); n > 0 && x.Losses[n-1].To == 0 && x.Losses[n-1].From < log.Next() {
		x.Losses[n-1].To = log.Next() // later output was written, but the end of the loss wasn't stored
	}
	if runner == nil {
		runner = &runtime.Runner{ID: x.RunnerID}
	}
	if x.State != runtime.ExecutionPending { // the agent has them
		begin.Env, begin.Defaults = nil, nil
	}
	s := h.New(*runner, x, begin, log)
	if s.queued = h.Boot.Time(begin.Queued, x.Timestamps.QueuedAt); s.queued.After(time.Now()) {
		s.queued = time.Now() // the clock was set back, or is that of another machine
	}
	s.recovered, s.input.end = &recovered{killed: u.Killed}, u.InputEnd
	s.record.received.Store(log.Next())
	if runner.State != runtime.RunnerClaimed { // otherwise its removal never began
		s.recovered.gone = u.Gone
	}
	s.record.recall()
	// If its neighbours are unknown, the host's counters aren't attributed to it either.
	if neighbours, err := h.Store.Neighbours(ctx, x.RunnerID, x.Timestamps.QueuedAt); err != nil || neighbours {
		s.MarkShared()
	}
	return s
}

// rest returns the smaller record that a running execution needs, and the length of its stdin. nil means stdin
// isn't fed yet, so the whole record is needed.
func (s *Session) rest() (start []byte, inputEnd *int64) {
	if s.input.feeding.Load() {
		return nil, nil
	}
	return Begin{Before: s.begin.Before, Counted: s.begin.Counted, Fed: s.begin.Fed, Queued: s.begin.Queued}.Encode(), s.input.length
}

// Bytes returns the memory that it keeps until the agent has its start and its stdin.
func (s *Session) Bytes() int64 {
	b := s.begin
	b.Input = s.input.whole
	start, input := b.Bytes()
	return start + input
}

// Input returns the stdin that the server still has to feed, its offset, and whether there is any.
// Stdin ends after it. The session forgets it: call Fed when the agent has it.
func (s *Session) Input() (data []byte, offset int64, ok bool) {
	switch {
	case s.input.whole != nil:
		data = []byte(*s.input.whole)
		s.input.whole = nil
		return data, 0, true
	case s.input.end != nil:
		return nil, *s.input.end, true
	default:
		return nil, 0, false
	}
}

// recall learns from the log whether the command ran, even if RUNNING was never stored. The start time is
// then estimated by the queue time until the agent reports it.
func (r *record) recall() {
	s := r.session
	if since, printed := r.log.First(); printed || r.log.Resized() > 0 {
		s.change(func(x runtime.Execution) runtime.Execution {
			r.guessed = x.State == runtime.ExecutionPending
			x = Started(x, x.Timestamps.QueuedAt)
			if !printed {
				return x
			}
			return Printed(x, x.Timestamps.StartedAt.Add(since))
		})
	}
	if s.Execution().State != runtime.ExecutionPending {
		closeOnce(s.started)
	}
}

// recoverLog recovers an execution's log. If it is damaged, it is put aside for inspection, and a new
// log is returned.
func (h *Host) recoverLog(ctx context.Context, id runtime.ExecutionID, at output.Location, skipped func(format string, args ...any)) (log *output.Log, damaged bool) {
	var once sync.Once
	log, err := recoverLog(at, func(err error) bool {
		once.Do(func() {
			h.Logger.Warn("restore is waiting: an output log is unreadable because open files (raise LimitNOFILE= in the server's unit), memory or the database are unavailable",
				zap.String("execution", string(id)), zap.Error(err))
		})
		return backoff.Sleep(ctx, lastPause) == nil
	})
	switch {
	case err == nil:
		return log, false
	case ctx.Err() != nil: // the server is stopping, so the log isn't used
		return output.New(at), false
	}
	skipped("output of execution %s is lost: %v", id, errors.Join(err, at.PutAside()))
	return output.New(at), true
}

// recoverLog recovers a log. If the machine lacks descriptors or memory, or the database is unavailable,
// it retries as long as again returns true, because the log itself is fine.
func recoverLog(at output.Location, again func(error) bool) (*output.Log, error) {
	for {
		log, err := output.Recover(at)
		away := runtime.CodeOf(err) == runtime.CodeClusterUnavailable // the database
		short := away || slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM}, func(passes error) bool { return errors.Is(err, passes) })
		if !short || !again(err) {
			return log, err
		}
	}
}

// neverBegun reports whether the agent's refusal means that an earlier server recorded the execution but
// was killed before starting it. Then it is safe to start it.
func (s *Session) neverBegun(refused *agent.Error) bool {
	return s.recovered != nil && s.begin.Env != nil && refused.Code == agent.ErrNotFound &&
		s.record.received.Load() == 0 && s.Execution().State == runtime.ExecutionPending
}

// isBehind reports whether the agent refused to attach because it no longer has the requested
// output: an earlier server acknowledged output that a full disk then refused.
func (s *Session) isBehind(refused *agent.Error) bool {
	return s.recovered != nil && refused.Code == agent.ErrInvalid && refused.Field == "offset"
}

// catchUp skips output that the agent no longer has, and records its loss. It reports whether
// there was such output.
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
	if held <= r.received.Load() || held > x.OutputLimit { // the agent lies
		return false
	}
	s.host.Logger.Warn("output was lost: the agent no longer has it", zap.String("execution", string(x.ID)), zap.Int64("bytes", held-r.received.Load()))
	if r.log.Torn() {
		r.lose(ctx, r.received.Load(), runtime.LossDamaged)
	}
	r.received.Store(held)
	r.log.Skip(held)
	r.wrote(ctx, held) // output that the agent still has isn't lost
	return true
}
