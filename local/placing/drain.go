package placing

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// drained is the end of a runner that nobody held when the machine was drained.
var drained = taskrunner.End{Reason: runtime.GoneDrained, Message: "the machine was drained"}

// SetDraining drains the machine, or ends that; what is so already is success.
// While it drains, durably, nothing is placed: runners that are wished for keep their
// turns in the scheduler. Runners that nobody holds go, with DRAINED; the others end
// as they would. After an error it may be so or not, and calling it again makes it so.
func (p *Placer) SetDraining(ctx context.Context, draining bool) error {
	return p.drainTurn.Do(ctx, func() error { return p.setDraining(ctx, draining) })
}

func (p *Placer) setDraining(ctx context.Context, draining bool) error {
	if draining == p.Draining().IsZero() {
		since := time.Time{}
		if draining {
			since = time.Now().Truncate(time.Millisecond) // as it is stored
		}
		if err := p.config.Store.SetDraining(ctx, since); err != nil {
			return fmt.Errorf("store that the machine is drained, or not: %w", err)
		}
		p.setSince(since)
	}
	defer p.config.Changed("")
	if !draining {
		p.Scheduler.Resume()
		return nil
	}
	if err := p.Scheduler.Pause(ctx); err != nil {
		return err
	}
	return p.endUnheld(ctx)
}

// Draining returns since when the machine is being drained; zero: it isn't.
func (p *Placer) Draining() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

func (p *Placer) setSince(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = since
}

// restoreDraining goes on with an earlier server's draining. Nothing is being placed
// yet: this would wait for a worker that waits for the end of the restore.
func (p *Placer) restoreDraining(ctx context.Context) error {
	since, err := p.config.Store.Draining(ctx)
	if err != nil || since.IsZero() {
		return err
	}
	p.setSince(since)
	return p.Scheduler.Pause(ctx)
}

// GoOnDraining ends the restored runners that nobody holds, if the machine is being
// drained.
func (p *Placer) GoOnDraining(ctx context.Context) error {
	if p.Draining().IsZero() {
		return nil
	}
	if err := p.endUnheld(ctx); err != nil {
		return fmt.Errorf("go on draining: %w", err)
	}
	return nil
}

// endUnheld ends the runners that have a place and no holder. One that got its
// place just before, unseen, is ended when that is carried out.
func (p *Placer) endUnheld(ctx context.Context) error {
	var placed []*Place
	p.mu.Lock()
	for _, l := range p.places {
		if l.allocation != "" {
			placed = append(placed, l)
		}
	}
	p.mu.Unlock()
	for _, l := range placed {
		if held, err := l.held(ctx); err != nil {
			return err
		} else if !held {
			l.drain()
		}
	}
	return nil
}

func (l *Place) drain() {
	l.Task.Stop(drained)
	l.p.Scheduler.Deregister(l.id)
}
