package scheduler

import "github.com/rockpool/rockpool/runtime"

// holds reports whether d is still held: neither given back nor taken away.
func (b *broker) holds(d delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slot(d) != nil
}

// slot returns d's slot while d is held; else nil. The caller holds mu.
func (b *broker) slot(d delivery) *slot {
	if s := b.slots[d.Job]; s != nil && s.held != nil && s.token == d.token {
		return s
	}
	return nil
}

// release takes back a slot's held item; nil: it holds none. The caller holds mu.
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

// ack ends d; the pending evaluation of its job gets ready. errNotHeld: d was taken away before.
func (b *broker) ack(d delivery) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slot(d)
	if s == nil {
		return errNotHeld
	}
	b.release(s)
	b.stats.acked.Add(1)
	b.advance(d.Job, s)
	return nil
}

// advance schedules a slot's next, or deletes an empty slot. The caller holds mu.
func (b *broker) advance(job runtime.RunnerID, s *slot) {
	if s.next == nil {
		delete(b.slots, job)
		return
	}
	b.schedule(s)
	b.dispatch()
}

// nack gives d back. It is delivered again after a growing delay; after maxDeliveries it fails.
// errNotHeld: d was taken away before.
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
		b.unreported = append(b.unreported, i.Evaluation)
		select {
		case b.failing <- struct{}{}:
		default:
		}
	default:
		s.next = i
		b.delay(s, i, redeliver<<(2*(i.deliveries-1)))
	}
	b.advance(d.Job, s)
	b.mu.Unlock()
	if by != nil {
		b.notifySuperseded(d.Evaluation, by.Evaluation)
	}
	return nil
}

// putBack gives d back without counting the delivery.
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
	b.advance(d.Job, s)
	b.mu.Unlock()
	b.notifySuperseded(old, by)
}

// failures returns each evaluation that has failed, once.
func (b *broker) failures() []*Evaluation {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.unreported
	b.unreported = nil
	return all
}

// depths counts the broker's evaluations by where they are.
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

// failure returns a job's evaluation that failed and has no newer one ready yet; nil: there is
// none.
func (b *broker) failure(job runtime.RunnerID) *Evaluation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed[job]
}
