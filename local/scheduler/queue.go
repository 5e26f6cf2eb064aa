package scheduler

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// Bounds of a delivery.
const (
	nackAfter     = time.Minute // a worker that neither acked nor nacked for so long counts as stuck
	maxDeliveries = 3
	redeliver     = time.Second // delay after the first nack; times 4 after each further one
	followUpAfter = time.Minute // how long a job rests after its evaluation failed: an immediate retry wouldn't help
)

// A queue orders evaluations by priority; within one, tenants take turns; within a tenant, its
// environments; within an environment, by age.
type queue = fairqueue.Queue[runtime.EnvironmentID, *evaluation]

// newQueue returns an empty queue. An evaluation that is queued again keeps its age, which is its
// job's.
func newQueue() *queue {
	return &queue{Compare: func(a, b *evaluation) int {
		return cmp.Or(cmp.Compare(a.job.number, b.job.number), cmp.Compare(a.ID, b.ID))
	}}
}

// position returns what a queue needs to add an evaluation or to remove it.
func (e *evaluation) position() (runtime.TenantID, runtime.EnvironmentID, runtime.Priority, *evaluation) {
	return e.job.Tenant, e.job.Environment, runtime.Priority(e.Priority), e
}

// A delivery is an evaluation that a worker holds. The token proves that the worker still holds it:
// after an ack, a nack or a timeout it is no longer valid.
type delivery struct {
	*evaluation
	token uint64
}

// enqueue makes e the next evaluation of its job. It is delivered no earlier than e.WaitUntil, and
// after the outstanding one. Older ones that wait are superseded: e covers all that they would do.
// The caller holds mu, like that of all functions below.
func (s *Scheduler) enqueue(e *evaluation) {
	s.counts.Enqueued++
	s.supersede(e.job, e)
	e.job.next = e
	s.schedule(e)
}

// supersede cancels the evaluations of a job that no worker holds, because of a newer one.
func (s *Scheduler) supersede(j *job, by *evaluation) {
	old, next := j.blocked, j.next
	j.next = nil
	s.unblock(j)
	for _, e := range []*evaluation{old, next} {
		if e == nil || e == j.held || e.Status.Ended() {
			continue
		}
		if e.timer != nil {
			e.timer.Stop()
		}
		if e.ready {
			e.ready = false
			s.ready.Remove(e.position())
		}
		s.cancel(e, by)
	}
	if old != nil {
		s.wakeFitting()
	}
}

// cancel ends an evaluation that isn't delivered because a newer one of its job is.
func (s *Scheduler) cancel(e, by *evaluation) {
	s.counts.Superseded++
	e.end(runtime.EvaluationCancelled, "evaluation "+string(by.ID)+" supersedes it", time.Now())
}

// schedule makes the next evaluation of a job ready, now or at its time. While another one is
// outstanding, it stays pending.
func (s *Scheduler) schedule(e *evaluation) {
	if e.job.held != nil {
		return
	}
	if wait := time.Until(e.WaitUntil); wait > 0 {
		s.delay(e, wait)
		return
	}
	e.job.failed = false // this is the follow-up, or something newer
	e.ready = true
	s.ready.Push(e.position())
	s.wake.Signal()
}

func (s *Scheduler) delay(e *evaluation, wait time.Duration) {
	e.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.job.next == e && !e.ready { // else it was superseded just now
			e.timer = nil
			s.schedule(e)
		}
	})
}

// dequeue waits for a ready evaluation and delivers the first one: the highest priority first, then
// tenants by turns. It returns false when ctx ends; then Run wakes it. The caller doesn't hold mu,
// and calls leave after its work.
func (s *Scheduler) dequeue(ctx context.Context) (delivery, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; ctx.Err() == nil; s.wake.Wait() {
		if s.paused {
			continue
		}
		if e, ok := s.ready.Pop(); ok {
			s.busy++
			return s.hold(e), true
		}
	}
	return delivery{}, false
}

// leave ends the work that dequeue began. The last worker's leave wakes Pause.
func (s *Scheduler) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy--; s.busy == 0 {
		s.idle.Broadcast()
	}
}

// hold makes e, the next evaluation of its job, outstanding.
func (s *Scheduler) hold(e *evaluation) delivery {
	j := e.job
	j.next, j.held = nil, e
	s.tokens++
	e.token, e.ready, e.DequeuedAt = s.tokens, false, time.Now()
	e.deliveries++
	s.counts.Dequeued++
	d := delivery{e, e.token}
	// A stuck worker loses the evaluation, which is then delivered again.
	e.timer = time.AfterFunc(nackAfter, func() {
		s.mu.Lock()
		defer s.unlock()
		if s.nack(d) {
			s.counts.NackTimeouts++
		}
	})
	return d
}

// holds reports whether d is still held.
func (d delivery) holds() bool { return d.evaluation.token == d.token }

func (s *Scheduler) release(d delivery) {
	d.timer.Stop()
	d.timer, d.evaluation.token = nil, 0
	d.job.held = nil
}

// ack ends a delivery, and schedules the pending evaluation of its job. It reports false if d is
// no longer held.
func (s *Scheduler) ack(d delivery) bool {
	if !d.holds() {
		return false
	}
	s.release(d)
	s.counts.Acked++
	if next := d.job.next; next != nil {
		s.schedule(next)
	}
	return true
}

// nack gives d back. It is delivered again after a growing delay. After maxDeliveries it fails, and
// a follow-up continues it later. It reports false if d is no longer held.
func (s *Scheduler) nack(d delivery) bool {
	if !d.holds() {
		return false
	}
	s.release(d)
	s.counts.Nacked++
	e, j := d.evaluation, d.job
	switch {
	case j.next != nil: // a newer one does its work
		s.cancel(e, j.next)
		s.schedule(j.next)
	case e.deliveries < maxDeliveries:
		j.next = e
		s.delay(e, redeliver<<(2*(e.deliveries-1)))
	default:
		s.fail(e)
	}
	return true
}

// fail ends e as FAILED, and enqueues a follow-up if its runner is still wanted.
func (s *Scheduler) fail(e *evaluation) {
	s.counts.Failed++
	s.unblock(e.job)
	s.wakeFitting()
	e.end(runtime.EvaluationFailed, "it was delivered several times without success; the server's log says why", time.Now())
	if e.job.stopped {
		return
	}
	s.log.Warn("an evaluation failed; a follow-up runs in 1 minute", zap.String("evaluation", string(e.ID)), zap.String("runner", string(e.RunnerID)))
	next := s.newEvaluation(e.job, runtime.TriggerFailedFollowUp)
	next.PreviousID, next.WaitUntil = e.ID, e.EndedAt.Add(followUpAfter)
	e.NextID = next.ID
	s.enqueue(next)
	e.job.failed = true
	s.hint(e.EnvironmentID)
}

// block puts an evaluation to sleep until its runner fits. It is woken immediately if there is room
// already.
func (s *Scheduler) block(e *evaluation) {
	e.job.blocked, e.deliveries = e, 0
	s.asleep.Push(e.position())
	s.wakeFitting()
}

// unblock forgets a job's blocked evaluation, and the room that was promised to it.
func (s *Scheduler) unblock(j *job) {
	if j.blocked != nil && !j.awake {
		s.asleep.Remove(j.blocked.position())
	}
	delete(s.awake, j)
	j.blocked, j.awake = nil, false
}

// wakeFitting wakes only as many blocked evaluations as fit concurrently: room that is promised to
// one that is awake isn't promised again. It skips an evaluation that doesn't fit, and reserves the
// room for it. Lower priorities don't get that room.
func (s *Scheduler) wakeFitting() {
	if s.asleep.Len() == 0 {
		return
	}
	free := s.node.Capacity.Minus(s.node.Used)
	// Awake ones may not have been placed yet, so Used doesn't contain their room.
	for j := range s.awake {
		free = free.Minus(j.Resources)
	}
	for _, level := range s.asleep.Levels() {
		for {
			e, ok := s.asleep.Take(level, func(e *evaluation) bool { return e.job.Resources.Fits(free) })
			if !ok {
				break
			}
			free = free.Minus(e.job.Resources)
			e.job.awake, e.job.next = true, e
			s.awake[e.job] = true
			s.counts.Unblocked++
			s.counts.Enqueued++
			s.schedule(e)
		}
		// The ones left keep their room from lower levels, unless this machine can never place
		// them.
		for e := range level.All() {
			if e.job.Resources.Fits(s.node.Capacity) {
				free = free.Minus(e.job.Resources)
			}
		}
	}
}

// roomFor returns the room that a job may use. It must leave room to evaluations of higher priority
// that this machine could ever place, and to those that are awake.
func (s *Scheduler) roomFor(j *job, priority runtime.Priority) room {
	r := room{capacity: s.node.Capacity, used: s.node.Used}
	for other := range s.awake {
		if other != j && runtime.Priority(other.blocked.Priority) >= priority {
			r.kept = r.kept.Plus(other.Resources)
		}
	}
	for _, level := range s.asleep.Levels() {
		if level.Priority <= priority {
			break
		}
		for e := range level.All() {
			if e.job != j && e.job.Resources.Fits(r.capacity) {
				r.kept = r.kept.Plus(e.job.Resources)
			}
		}
	}
	return r
}
