package scheduler

import "github.com/rockpool/rockpool/runtime"

// holds reports whether d wasn't given back or taken away meanwhile.
func (b *broker) holds(d delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slot(d) != nil
}

// slot returns d's slot while d is held; else nil.
func (b *broker) slot(d delivery) *slot {
	if s := b.slots[d.Job]; s != nil && s.held != nil && s.token == d.token {
		return s
	}
	return nil
}

// release takes back what is held of a slot; nil if nothing is.
func (b *broker) release(s *slot) *item {
	i := s.held
	if i == nil {
		return nil
	}
	i.timer.Stop()
	i.timer = nil
	s.held, s.token = nil, 0
	return i
}

// ack ends d. What is pending of its job is ready then.
func (b *broker) ack(d delivery) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slot(d)
	if s == nil {
		return errNotHeld
	}
	b.release(s)
	b.stats.acked.Add(1)
	b.goOn(d.Job, s)
	return nil
}

// goOn lets a slot's next come, or forgets the slot.
func (b *broker) goOn(job runtime.RunnerID, s *slot) {
	if s.next == nil {
		delete(b.slots, job)
		return
	}
	b.schedule(s)
	b.dispatch()
}

// nack gives d back to be delivered again, after a delay that grows. Past the
// limit of deliveries it fails.
func (b *broker) nack(d delivery) error {
	b.mu.Lock()
	s := b.slot(d)
	if s == nil {
		b.mu.Unlock()
		return errNotHeld
	}
	b.stats.nacked.Add(1)
	i := b.release(s)
	by := s.next
	switch {
	case by != nil: // a newer one does its work
	case i.deliveries >= maxDeliveries:
		b.stats.failed.Add(1)
		b.failed[d.Job] = i.Evaluation
		b.untold = append(b.untold, i.Evaluation)
		select {
		case b.failing <- struct{}{}:
		default:
		}
	default:
		s.next = i
		b.delay(s, i, redeliver<<(2*(i.deliveries-1)))
	}
	b.goOn(d.Job, s)
	b.mu.Unlock()
	if by != nil {
		b.tell(d.Evaluation, by.Evaluation)
	}
	return nil
}

// putBack gives d back as if it had not been delivered.
func (b *broker) putBack(d delivery) {
	b.mu.Lock()
	s := b.slot(d)
	if s == nil {
		b.mu.Unlock()
		return
	}
	i := b.release(s)
	i.deliveries--
	old := b.offer(s, i)
	by := s.next.Evaluation
	b.goOn(d.Job, s)
	b.mu.Unlock()
	b.tell(old, by)
}

// failures returns, once each, those that have failed.
func (b *broker) failures() []*Evaluation {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.untold
	b.untold = nil
	return all
}

// depths counts what the broker has, by where it is.
func (b *broker) depths() Depths {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := Depths{Ready: map[runtime.EvaluationType]int{}, Failed: len(b.failed)}
	for t, queue := range b.ready {
		d.Ready[t] = queue.Len()
	}
	for _, s := range b.slots {
		if s.held != nil {
			d.Outstanding++
		}
		switch i := s.next; {
		case i == nil || i.ready:
		case s.held != nil:
			d.Pending++
		default:
			d.Delayed++
		}
	}
	return d
}

// failure returns the evaluation of a job that was delivered too often and
// that nothing newer follows yet; nil if there is none.
func (b *broker) failure(job runtime.RunnerID) *Evaluation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed[job]
}
