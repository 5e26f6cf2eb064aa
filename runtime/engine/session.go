package engine

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/execution"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/pool"
)

const (
	killGrace  = 300 * time.Millisecond // between SIGTERM and SIGKILL of a cancelled execution
	guardTick  = 100 * time.Millisecond // how often limits are looked after
	goneGrace  = 200 * time.Millisecond // for the last output of a runner that went
	agentLate  = 5 * time.Second        // by which an agent may be late with what it has to end
	agentAway  = time.Minute            // by which it may be later where it can't be reached
	flushBytes = 64 << 10
	firstPause = 20 * time.Millisecond // between attempts, growing
	lastPause  = 2 * time.Second
	openWithin = 10 * time.Second // by which an agent must have answered
)

// A session is one execution while it isn't finished. One goroutine, run,
// owns it; others see what it publishes and send it signals.
type session struct {
	engine *Engine
	pool   *pool.Pool // nil: an earlier server's runner that isn't there any more
	runner runtime.Runner
	begin  begin
	log    *output.Log
	now    atomic.Pointer[runtime.Execution]

	started    chan struct{} // closed when it runs, or has ended without
	done       chan struct{} // closed when it has ended and that is stored
	feeding    chan struct{} // holds a token while someone writes stdin
	fed        int64         // stdin bytes that were sent; whose turn it is has it
	inputEnded bool          // likewise
	inputKnown bool          // likewise: fed is what the agent has
	inputEnd   *int64        // where an earlier server closed the stdin, or was about to; nil: nowhere
	burnt      atomic.Bool   // the runner was removed because its agent didn't do as it was told
	received   int64         // output bytes that came from the agent
	unwritten  int64         // of those, that aren't in the log yet
	sized      bool          // a size of the terminal came that wasn't acknowledged
	crowded    atomic.Bool   // another execution ran in the runner meanwhile
	resumed    bool          // an earlier server recorded it: the agent may know it already
	guessed    bool          // when it started is not known exactly yet

	mu     sync.Mutex         // guards what follows
	stream *agent.Session     // nil while there is none
	joined chan struct{}      // closed and replaced when stream changes
	killed runtime.Outcome    // why we killed it
	late   time.Time          // by which that must have worked
	away   time.Time          // since when no stream can be opened; zero: one was
	back   time.Time          // when one was opened again
	gone   runtime.GoneReason // why the runner went
	goneAt time.Time
}

func newSession(e *Engine, p *pool.Pool, runner runtime.Runner, x runtime.Execution, begin begin, log *output.Log) *session {
	s := &session{
		engine: e, pool: p, runner: runner, begin: begin,
		log:     log.Within(e.quota),
		started: make(chan struct{}),
		done:    make(chan struct{}),
		feeding: make(chan struct{}, 1),
		joined:  make(chan struct{}),
	}
	s.now.Store(&x)
	return s
}

// execution returns the newest state.
func (s *session) execution() runtime.Execution { return *s.now.Load() }

func (s *session) change(f func(runtime.Execution) runtime.Execution) runtime.Execution {
	x := f(s.execution())
	s.now.Store(&x)
	return x
}

// run starts the execution, follows it to its end, and stores that.
func (s *session) run(ctx context.Context) {
	if s.pool == nil { // its runner went while no server was there
		end := execution.Decide(execution.Facts{Gone: s.wentAt()})
		s.finish(ctx, execution.Finished(s.execution(), end, runtime.Usage{OutputBytes: s.received}, time.Now()))
		return
	}
	var guard sync.WaitGroup
	over := make(chan struct{})
	guard.Go(func() { s.guard(ctx, over) })
	facts, exit, ok := s.follow(ctx)
	close(over)
	guard.Wait()
	if !ok {
		return // the server is stopping: the next one goes on with it
	}
	usage := runtime.Usage{
		Wall: exit.Wall, User: exit.User, System: exit.System, PeakMemory: exit.PeakMemory, OutputBytes: s.received,
		PeakProcesses: exit.PeakProcesses, BytesRead: exit.BytesRead, BytesWritten: exit.BytesWritten,
	}
	s.finish(ctx, execution.Finished(s.execution(), execution.Decide(facts), usage, time.Now()))
}

// finish stores the end, and only then lets anybody know: an outcome that was
// told stays. Where it can't be stored it tries until ctx ends.
func (s *session) finish(ctx context.Context, x runtime.Execution) {
	size := s.log.Size()
	x.LogBytes = &size
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		kept, err := s.engine.store.FinishExecution(context.WithoutCancel(ctx), x, s.log.Bytes())
		if err == nil {
			s.engine.quota.Add(kept - s.log.Bytes())
			break
		}
		s.engine.logger.Error("the end of an execution could not be stored, trying again", zap.String("execution", string(x.ID)), zap.Error(err))
		if !sleep(ctx, pause) {
			return // the next server ends it
		}
	}
	s.now.Store(&x)
	s.engine.counts.finished[x.End.Outcome].Add(1)
	s.engine.forgetSession(s) // before anybody hears of it and starts the next one, which has the runner alone
	if err := s.log.End(); err != nil {
		s.engine.logger.Warn("an output log could not be ended", zap.String("execution", string(x.ID)), zap.Error(err))
	}
	closeOnce(s.started)
	close(s.done)
	if stream := s.current(); stream != nil {
		_ = stream.Settled() // a second telling comes with the next attach
		_ = stream.Close()
	}
	if s.pool == nil {
		return
	}
	s.pool.Done(ctx, x.RunnerID)
	if x.Release {
		if _, err := s.pool.Release(ctx, x.RunnerID); err != nil {
			s.engine.logger.Warn("a runner could not be released", zap.String("runner", string(x.RunnerID)), zap.Error(err))
		}
	}
}

// follow connects, and reads what the agent sends until the exit, until the
// runner is gone, or until nobody can tell any more. ok is false when ctx ended
// first.
func (s *session) follow(ctx context.Context) (facts execution.Facts, exit agent.Exit, ok bool) {
	x := s.execution()
	env := s.runner.Environment
	facts.Limits = execution.Limits{
		Time: x.TimeLimit, CPU: x.Limits.CPU, FileSize: x.Limits.FileSize, Output: x.OutputLimit, MemoryMiB: env.Resources.MemoryMiB, Processes: env.Resources.Processes,
	}
	pause, progress := firstPause, int64(0)
	for started := s.resumed; ; {
		stream, err := s.connect(ctx, started)
		var refused *agent.Error
		switch {
		case ctx.Err() != nil:
			return facts, exit, false
		case s.wentAt() != "" && err != nil:
			facts.Gone, facts.Killed, facts.Burnt = s.wentAt(), s.reason(), s.burnt.Load()
			return facts, exit, true
		case errors.As(err, &refused) && started && s.neverBegun(refused):
			started = false
			continue
		case errors.As(err, &refused) && started && s.catchUp(ctx, refused):
			continue
		case errors.As(err, &refused) && (started || s.resumed && refused.Field == "id"):
			return facts, exit, true // the agent doesn't know it (any more): LOST
		case errors.As(err, &refused):
			facts.Refused = refused.Error()
			return facts, exit, true
		case err == nil:
			started = true
			s.join(stream)
			got, complete := s.pump(ctx, stream)
			if complete {
				s.weigh(ctx, got, &facts)
				return facts, got, true
			}
			s.join(nil)
		}
		if s.received > progress {
			pause, progress = firstPause, s.received
		}
		if !sleep(ctx, pause) {
			return facts, exit, false
		}
		pause = min(2*pause, lastPause)
	}
}

// connect opens a stream that starts the execution, or goes on with it.
func (s *session) connect(ctx context.Context, started bool) (*agent.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	x := s.execution()
	if started {
		return agent.AttachExecution(ctx, conn, agent.Attach{ID: string(x.ID), Offset: s.received, Resizes: x.Terminal != nil, Resized: s.log.Resized()})
	}
	start := agent.Start{
		ID: string(x.ID), Argv: x.Command, Env: s.begin.Env, Dir: s.begin.Dir, Stdin: x.Stdin,
		TimeLimit: x.TimeLimit, OutputLimit: x.OutputLimit, Privileged: x.Privileged,
	}
	if x.Terminal != nil {
		start.Terminal, start.Resizes = &agent.Size{Columns: x.Terminal.Columns, Rows: x.Terminal.Rows}, true
	}
	if x.Limits != (runtime.Limits{}) {
		limits := agent.Limits(x.Limits)
		start.Limits = &limits
	}
	return agent.StartExecution(ctx, conn, start)
}

// dial opens a stream to the agent, and notes for how long none could be opened.
func (s *session) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	if s.away.IsZero() {
		s.away = time.Now()
	}
	s.mu.Unlock()
	conn, err := s.engine.cluster.Dial(ctx, s.runner.ID)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.away) > guardTick { // one that lets every stream be opened has no such excuse
		s.back = time.Now()
	}
	s.away = time.Time{}
	return conn, nil
}

// pump takes in what one stream brings; complete means that the exit came.
func (s *session) pump(ctx context.Context, stream *agent.Session) (exit agent.Exit, complete bool) {
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	for {
		event, err := stream.Next()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the agent still has it, for the server's next start
		}
		if err != nil {
			_ = stream.Close()
			s.flush(ctx, nil)
			return agent.Exit{}, false
		}
		switch event.Kind {
		case agent.KindStarted:
			s.begun(event.Started.At)
		case agent.KindOutput:
			s.take(ctx, stream, event)
		case agent.KindResized:
			s.sized = true
			s.record(ctx, stream, output.Record{Offset: event.Offset, Since: event.Time, Size: runtime.TerminalSize(event.Size)})
		case agent.KindExited:
			return event.Exit, s.flush(ctx, stream)
		}
	}
}

// take puts output into the log; what comes together is written together.
func (s *session) take(ctx context.Context, stream *agent.Session, event agent.Event) {
	if x := s.execution(); x.Marks.FirstOutputAt.IsZero() {
		at := s.plausible(x.Marks.StartedAt.Add(event.Time))
		s.change(func(x runtime.Execution) runtime.Execution { return execution.Printed(x, at) })
	}
	if event.Offset+int64(len(event.Data)) > s.execution().OutputLimit { // the agent should have ended it
		s.kill(ctx, runtime.OutcomeOutputLimit)
		return
	}
	s.record(ctx, stream, output.Record{Stream: runtime.Stream(event.Stream), Offset: event.Offset, Since: event.Time, Data: event.Data})
}

// record puts a record into the log.
func (s *session) record(ctx context.Context, stream *agent.Session, record output.Record) {
	if err := s.log.Add(record); err != nil {
		s.engine.logger.Warn("an agent broke its protocol", zap.String("execution", string(s.execution().ID)), zap.Error(err))
		_ = stream.Close()
		return
	}
	s.received = record.End()
	s.unwritten += int64(len(record.Data))
	if !stream.Buffered() || s.log.Pending() >= flushBytes {
		s.flush(ctx, stream)
	}
}

// flush writes what was taken, and acknowledges it. What a full disk refuses
// is lost, and the readers of the log see that it is; before that what is
// finished is collected. It reports false where ctx ended before there was room:
// then the agent still has it, for the server's next start.
func (s *session) flush(ctx context.Context, stream *agent.Session) bool {
	if s.log.Pending() == 0 {
		return true
	}
	s.engine.makeRoom(ctx, output.DiskBytes(int64(s.log.Pending()))+output.DiskBytes(1))
	if err := s.log.Flush(); err != nil && ctx.Err() != nil {
		if stream != nil {
			_ = stream.Close()
		}
		return false
	} else if err != nil {
		s.engine.counts.outputLost.Add(s.unwritten)
		s.engine.outputs.failed(err)
		if s.unwritten > 0 {
			s.lose(ctx, s.received-s.unwritten, unwritten(err))
		}
	} else {
		s.engine.counts.output.Add(s.unwritten)
		s.engine.outputs.wrote()
		if s.unwritten > 0 {
			s.wrote(ctx, s.received-s.unwritten)
		}
	}
	s.unwritten = 0
	if stream != nil {
		_ = stream.Ack(s.received) // a broken stream shows at the next read
		if s.sized {
			_ = stream.AckResized(s.log.Resized())
		}
	}
	s.sized = false
	return true
}

// weigh adds the exit and the host's evidence to the facts.
func (s *session) weigh(ctx context.Context, exit agent.Exit, facts *execution.Facts) {
	facts.Killed = s.reason()
	e := &execution.Exit{Code: exit.Code, Signal: exit.Signal}
	switch exit.Cause {
	case agent.CauseKill:
		e.Killed = true
	case agent.CauseTimeLimit:
		e.Limit = runtime.OutcomeTimeLimit
	case agent.CauseOutputLimit:
		e.Limit = runtime.OutcomeOutputLimit
	case agent.CauseCPULimit:
		if x := s.execution(); x.Limits.CPU > 0 { // else the agent lies
			e.Limit = runtime.OutcomeCPULimit
		}
	case agent.CauseMemoryLimit:
		e.Limit = runtime.OutcomeMemoryLimit
	case agent.CauseProcessLimit:
		// One that found the runner full is told below, with the host as its witness.
		if x := s.execution(); x.Limits.Processes > 0 && (exit.Own == nil || exit.Own.ForksRefused == 0) {
			e.Limit, facts.Limits.Own = runtime.OutcomeProcessLimit, x.Limits.Processes
		}
	}
	facts.Exit = e
	facts.Alone = !s.crowded.Load()
	if e.Signal == "" && e.Code == 0 {
		return // nothing that the host counted could change the outcome
	}
	if after, err := s.engine.cluster.Evidence(ctx, s.runner.ID); err == nil && s.begin.Counted {
		facts.OOMKills = after.OOMKills - s.begin.Before.OOMKills
		facts.Forks = after.ProcessLimitHits - s.begin.Before.ProcessLimitHits
		if own := exit.Own; own != nil {
			facts.Own = true
			if after.OwnKernel {
				facts.Forks = own.ForksRefused // which only the agent can tell
			} else {
				facts.OOMKills, facts.Forks = min(own.OOMKills, facts.OOMKills), min(own.ForksRefused, facts.Forks)
			}
		}
	}
}

// join makes stream the one to write to; nil: there is none.
func (s *session) join(stream *agent.Session) {
	s.mu.Lock()
	s.stream = stream
	close(s.joined)
	s.joined = make(chan struct{})
	killed := s.killed
	s.mu.Unlock()
	if stream != nil && killed != "" {
		_ = stream.Kill(grace(killed)) // asked for while there was no stream
	}
}

func (s *session) current() *agent.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream
}

// closeOnce closes a channel that only one goroutine closes.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
