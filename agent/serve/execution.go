package serve

import (
	"os"
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// drain is how long output is still read after the command itself has ended, while a child holds
// its pipes. It is counted from the command's end, so a child that keeps printing can't prolong an
// execution. 100 ms is enough for "… > >(tee log)" and similar commands to finish.
const drain = 100 * time.Millisecond

// An execution is one command, from its start until the server has stored its end.
//
//	starting → running → draining → exited → settled
//	    └─ (failed: forgotten)
type execution struct {
	start   agent.Start
	budget  *budget
	ready   chan struct{} // closed by begin: the command runs, or failed to start
	err     error         // why it failed; set before ready is closed
	process Process       // set before ready is closed
	at      time.Time     // of the start; set before ready is closed
	in      *stdin

	measuring sync.Mutex // held while usage is measured, which takes as long as reading /proc; guards closed
	closed    bool       // process was closed

	mu        sync.Mutex // guards the fields below
	news      *sync.Cond // signalled when there is something to send, or the stream was replaced
	backlog   backlog
	share     share   // guarded by budget.mu instead
	stream    *stream // the client that follows it, nil if there is none
	windowNew bool    // the window of stdin moved and wasn't sent
	terminals
	outcome
}

type terminals struct {
	size  agent.Size // now
	noted agent.Size // the newest one in the backlog
}

// An outcome is how an execution ends.
type outcome struct {
	cause      agent.Cause    // why it ends; CauseSelf unless the server ends it
	killing    sync.WaitGroup // calls of Process.Kill that haven't returned
	dying      bool           // Process.Kill was called
	grace      time.Duration  // of that call
	ended      bool           // the command itself has ended
	endDrain   chan struct{}  // closed to end the wait for the outputs
	drainEnded bool           // endDrain is closed
	exit       *agent.Exit    // set when all output is in the backlog
}

func newExecution(start agent.Start, budget *budget) *execution {
	x := &execution{start: start, budget: budget, ready: make(chan struct{}), outcome: outcome{endDrain: make(chan struct{})}}
	x.news = sync.NewCond(&x.mu)
	x.in = newStdin(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.windowNew = true
		x.news.Broadcast()
	})
	return x
}

// begin starts the command. It must be called once. It closes x.ready.
func (x *execution) begin(executor Executor, cell []*os.File) error {
	defer close(x.ready)
	x.at = time.Now()
	if x.start.Cell {
		x.process, x.err = executor.Adopt(x.start, cell)
	} else {
		x.process, x.err = executor.Start(x.start)
	}
	if t := x.start.Terminal; t != nil && x.err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.size = *t
		x.noteSize()
	}
	return x.err
}

// resize gives the terminals another size. The backlog has the size before any output that the
// program prints at it.
func (x *execution) resize(size agent.Size) {
	x.mu.Lock()
	if x.ended || x.start.Terminal == nil {
		x.mu.Unlock()
		return
	}
	x.size = size
	if x.backlog.sizes < maxSizes { // else it is added before the next output
		x.noteSize()
	}
	x.mu.Unlock()
	x.process.Resize(size)
}

// noteSize adds the terminals' size to the backlog unless it is the newest there. The caller holds
// x.mu.
func (x *execution) noteSize() {
	if x.size != x.noted {
		x.backlog.resize(time.Since(x.at), x.size)
		x.noted = x.size
		x.news.Broadcast()
	}
}

// run follows the command to its end. It returns when the exit is set.
func (x *execution) run() {
	stdin, stdout, stderr := x.process.Pipes()
	var copies, feeding sync.WaitGroup
	copies.Go(func() { (&outlet{stream: 1, emit: x.emit, wide: &x.budget.wide}).copy(stdout) })
	copies.Go(func() { (&outlet{stream: 2, emit: x.emit, wide: &x.budget.wide}).copy(stderr) })
	if stdin != nil {
		feeding.Go(func() {
			if x.in.feed(stdin) != nil {
				x.in.close(x.ending())
			}
		})
	} else {
		x.in.close(false)
	}
	if limit := x.start.TimeLimit; limit > 0 {
		timer := time.AfterFunc(limit, func() { x.kill(agent.CauseTimeLimit, 0) })
		defer timer.Stop()
	}
	stopWatch := x.watch()

	status := x.process.Wait()
	end := time.Now()
	x.mu.Lock()
	x.ended = true // from now on only run calls Process.Kill
	x.mu.Unlock()
	x.checkLast(status)
	x.linger(&copies)
	// This ends all that the command left behind. Then both outputs end, and the copies return.
	x.process.Kill(0)
	x.killing.Wait()
	// The watch measures the process, so it ends before the process is closed.
	stopWatch()
	x.in.close(true)
	if stdin != nil {
		_ = stdin.Close()
	}
	feeding.Wait()
	copies.Wait()
	usage := x.close()

	x.mu.Lock()
	defer x.mu.Unlock()
	if limit := x.start.Limits; limit != nil && limit.CPU > 0 && x.cause == agent.CauseSelf && usage.User+usage.System >= limit.CPU {
		// It reached the limit between two ticks of the watch.
		x.cause = agent.CauseCPULimit
	}
	x.exit = &agent.Exit{
		At: end, Code: status.Code, Signal: status.Signal, Cause: x.cause, Wall: end.Sub(x.at),
		User: usage.User, System: usage.System, PeakMemory: usage.PeakMemory, Output: x.backlog.end,
		PeakProcesses: usage.PeakProcesses, BytesRead: usage.BytesRead, BytesWritten: usage.BytesWritten,
	}
	switch counted := (&agent.CommandCounts{OOMKills: usage.OOMKills, ForksRefused: usage.Refused}); {
	case usage.PerCommand:
		x.exit.PerCommand = counted
	case usage.Shared:
		x.exit.Shared = counted
	}
	x.news.Broadcast()
}

// linger waits for the end of the outputs, for at most drain, or until endDrain is closed.
func (x *execution) linger(copies *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { // ends before run returns, since run waits for copies too
		copies.Wait()
		close(done)
	}()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-x.endDrain:
	}
}

// kill ends the execution. If the command has ended, it only ends the wait for the outputs. A later
// call can only shorten the grace.
func (x *execution) kill(cause agent.Cause, grace time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		if !x.drainEnded {
			x.drainEnded = true
			close(x.endDrain)
		}
		return
	}
	// The first cause is reported.
	if x.cause == agent.CauseSelf {
		x.cause = cause
	}
	if x.dying && grace >= x.grace {
		return
	}
	x.dying, x.grace = true, grace
	x.killing.Go(func() { x.process.Kill(grace) })
}

// ending reports whether the command has ended or is being killed.
func (x *execution) ending() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended || x.dying
}

// emit adds output to the backlog. It blocks while the budget is used up, so that the program
// blocks on its pipe.
func (x *execution) emit(stream byte, data []byte) {
	// The budget is reserved before the backlog grows, for at most two frames. The rest is returned
	// when the size is known.
	most := int64(2*agent.OutputFrameSize + len(data))
	if !x.budget.reserve(&x.share, most) {
		return
	}
	held, over := x.add(stream, data)
	x.budget.free(&x.share, most-held)
	if over {
		x.kill(agent.CauseOutputLimit, 0)
	}
}

// add appends data up to the output limit. It returns the size of the new frames in bytes, and
// whether data exceeded the limit.
func (x *execution) add(stream byte, data []byte) (held int64, over bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if limit := x.start.OutputLimit; limit > 0 {
		if left := limit - x.backlog.end; left < int64(len(data)) {
			over = true
			data = data[:left]
			if x.cause == agent.CauseSelf {
				// The command may have ended meanwhile: it printed too much all the same.
				x.cause = agent.CauseOutputLimit
			}
		}
	}
	if len(data) > 0 {
		x.noteSize()
		for frame, rest := framed(data); len(frame) > 0; frame, rest = rest, nil {
			x.backlog.append(stream, time.Since(x.at), frame)
			held += int64(agent.OutputFrameSize + len(frame))
		}
		x.news.Broadcast()
	}
	return held, over
}

// ack frees the output before offset and the sizes set up to resized.
func (x *execution) ack(offset int64, resized time.Duration) {
	x.mu.Lock()
	freed := x.backlog.ack(offset, resized)
	x.mu.Unlock()
	x.budget.free(&x.share, freed)
}

// forget frees everything that is held. Later output is discarded.
func (x *execution) forget() {
	x.budget.giveUp(&x.share)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stream != nil {
		x.stream.cut()
	}
}
