package serve

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// drain is for how long output is still read after the command itself has
// ended, while a child holds its pipes. It is counted from the command's end,
// whatever the child prints, so that a child can't prolong an execution; 100 ms
// is enough for "… > >(tee log)" and the like to finish.
const drain = 100 * time.Millisecond

// An execution is one command, from its start until the server has stored how
// it ended.
//
//	starting → running → draining → exited → settled
//	    │                   └─ lost → handed out
//	    └─ (failed: forgotten)
type execution struct {
	start   agent.Start
	budget  *budget
	ready   chan struct{} // closed when it runs, or failed to start
	err     error         // why it failed; set before ready is closed
	process Process       // set before ready is closed
	at      time.Time     // of the start
	in      *stdin

	measuring sync.Mutex // held while the process is asked what it uses, which takes as long as reading /proc; guards closed
	closed    bool       // the process is

	mu        sync.Mutex // guards what is below
	news      *sync.Cond // there is something to send, or the stream was displaced
	backlog   backlog
	share     share
	stream    *stream // the one that follows it
	windowNew bool    // the stdin's window moved
	terminals
	outcome
}

// terminals are the sizes of an execution's terminals.
type terminals struct {
	size  agent.Size
	noted agent.Size // the one that is the last in the backlog
}

// An outcome is how an execution ends.
type outcome struct {
	cause   agent.Cause
	killing sync.WaitGroup // the Kills that run
	dying   bool           // a Kill was started
	grace   time.Duration  // of that Kill
	ended   bool           // the command itself has ended
	hurry   chan struct{}  // closed to end the wait for its outputs
	hurried bool           // hurry is closed
	exit    *agent.Exit    // set when all output is in the backlog
	lost    bool           // set then in its place
}

func newExecution(start agent.Start, budget *budget) *execution {
	x := &execution{start: start, budget: budget, ready: make(chan struct{}), outcome: outcome{hurry: make(chan struct{})}}
	x.news = sync.NewCond(&x.mu)
	x.in = newStdin(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.windowNew = true
		x.news.Broadcast()
	})
	return x
}

// begin starts the command. It is called once.
func (x *execution) begin(host Host) error {
	defer close(x.ready)
	x.at = time.Now()
	x.process, x.err = host.Start(x.start)
	if t := x.start.Terminal; t != nil && x.err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.size = *t
		x.noteSize()
	}
	return x.err
}

// resize gives the terminals another size. That is in the backlog before what
// the program prints at it.
func (x *execution) resize(size agent.Size) {
	x.mu.Lock()
	if x.ended || x.start.Terminal == nil {
		x.mu.Unlock()
		return
	}
	x.size = size
	if x.backlog.sizes < maxSizes { // else it comes before the next output
		x.noteSize()
	}
	x.mu.Unlock()
	x.process.Resize(size)
}

// noteSize adds the terminals' size to the backlog unless it is there already.
// x.mu is held.
func (x *execution) noteSize() {
	if x.size != x.noted {
		x.backlog.resize(time.Since(x.at), x.size)
		x.noted = x.size
		x.news.Broadcast()
	}
}

// run follows the command to its end, and returns when its exit is set.
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
	x.ended = true // from here on only run starts a Kill
	x.mu.Unlock()
	x.checkLast(status)
	x.linger(&copies)
	x.process.Kill(0)
	x.killing.Wait()
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
	if status.Lost {
		x.lost = true
		x.news.Broadcast()
		return
	}
	if limit := x.start.Limits; limit != nil && limit.CPU > 0 && x.cause == agent.CauseSelf && usage.User+usage.System >= limit.CPU {
		// It ended before the watch measured it.
		x.cause = agent.CauseCPULimit
	}
	x.exit = &agent.Exit{
		At: end, Code: status.Code, Signal: status.Signal, Cause: x.cause, Wall: end.Sub(x.at),
		User: usage.User, System: usage.System, PeakMemory: usage.PeakMemory, Output: x.backlog.end,
		PeakProcesses: usage.PeakProcesses, BytesRead: usage.BytesRead, BytesWritten: usage.BytesWritten,
	}
	switch counted := (&agent.Own{OOMKills: usage.OOMKills, ForksRefused: usage.Refused}); {
	case usage.Own:
		x.exit.Own = counted
	case usage.Together:
		x.exit.Together = counted
	}
	x.news.Broadcast()
}

// linger waits for the end of the outputs, for as long as they may outlive the
// command.
func (x *execution) linger(copies *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { // ends before run does, which waits for copies too
		copies.Wait()
		close(done)
	}()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-x.hurry:
	}
}

// kill ends the execution, unless the command has ended: then it only ends the wait for the
// outputs. A later kill can only shorten the grace.
func (x *execution) kill(cause agent.Cause, grace time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		if !x.hurried {
			x.hurried = true
			close(x.hurry)
		}
		return
	}
	if x.cause == agent.CauseSelf {
		x.cause = cause
	}
	if x.dying && grace >= x.grace {
		return
	}
	x.dying, x.grace = true, grace
	x.killing.Go(func() { x.process.Kill(grace) })
}

// ending reports whether the command has ended or is being ended.
func (x *execution) ending() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended || x.dying
}

// alive calls f unless the command has ended.
func (x *execution) alive(f func(Process)) {
	x.mu.Lock()
	ended := x.ended
	x.mu.Unlock()
	if !ended {
		f(x.process)
	}
}

// emit adds output to the backlog. It blocks while there is no room.
func (x *execution) emit(stream byte, data []byte) {
	most := int64(2*agent.OutputFrameSize + len(data))
	if !x.budget.take(&x.share, most) {
		return
	}
	held, over := x.add(stream, data)
	x.budget.free(&x.share, most-held)
	if over {
		x.kill(agent.CauseOutputLimit, 0)
	}
}

// add appends data as far as the output limit allows, and returns how many bytes
// of frames that made, and whether there was more than the limit.
func (x *execution) add(stream byte, data []byte) (held int64, over bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if limit := x.start.OutputLimit; limit > 0 {
		if left := limit - x.backlog.end; left < int64(len(data)) {
			over = true
			data = data[:left]
			if x.cause == agent.CauseSelf {
				// Even if the command itself has ended meanwhile: it printed too much.
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

// ack forgets output before offset, and the sizes that were set until resized.
func (x *execution) ack(offset int64, resized time.Duration) {
	x.mu.Lock()
	freed := x.backlog.ack(offset, resized)
	x.mu.Unlock()
	x.budget.free(&x.share, freed)
}

// forget frees what is held. Later output is discarded.
func (x *execution) forget() {
	x.budget.giveUp(&x.share)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stream != nil {
		x.stream.cut()
	}
}
