package placing

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// drained is the End of a runner that wasn't claimed when the machine was drained.
var drained = taskrunner.End{Reason: runtime.GoneDrained, Message: "the machine was drained"}

// SetDraining starts or ends draining; if it is already so, that is success. The setting is stored.
// While the machine drains, nothing is placed; registered runners keep their turns in the
// scheduler. Unclaimed runners end with DRAINED; claimed ones end as usual. After an error the
// setting may have changed or not: call it again.
func (p *Placer) SetDraining(ctx context.Context, draining bool) error {
	return p.drainTurn.Do(ctx, func() error { return p.setDraining(ctx, draining) })
}

// setDraining stores the setting, then acts on it. The caller has drainTurn.
func (p *Placer) setDraining(ctx context.Context, draining bool) error {
	if draining == p.Draining().IsZero() {
		since := time.Time{}
		if draining {
			since = time.Now().Truncate(time.Millisecond) // as it is stored
		}
		// The setting is stored first: if the server is killed now, the next one drains the
		// machine.
		if err := p.config.Store.SetDraining(ctx, since); err != nil {
			return fmt.Errorf("store whether the machine drains: %w", err)
		}
		p.setDrainingSince(since)
	}
	defer p.config.Changed("")
	if !draining {
		p.Scheduler.Resume()
		return nil
	}
	// Pause comes before endUnclaimed: after it, no further runner is placed.
	if err := p.Scheduler.Pause(ctx); err != nil {
		return err
	}
	return p.endUnclaimed(ctx)
}

// Draining returns since when the machine has been draining; zero: it isn't draining.
func (p *Placer) Draining() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

func (p *Placer) setDrainingSince(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = since
}

// restoreDraining resumes an earlier server's draining, before anything is placed: later, Pause
// would wait for a worker that waits for the end of the restore.
func (p *Placer) restoreDraining(ctx context.Context) error {
	since, err := p.config.Store.Draining(ctx)
	if err != nil || since.IsZero() {
		return err
	}
	p.setDrainingSince(since)
	return p.Scheduler.Pause(ctx)
}

// ResumeDraining ends the restored runners that aren't claimed, if the machine is draining.
func (p *Placer) ResumeDraining(ctx context.Context) error {
	if p.Draining().IsZero() {
		return nil
	}
	if err := p.endUnclaimed(ctx); err != nil {
		return fmt.Errorf("resume draining: %w", err)
	}
	return nil
}

// endUnclaimed ends the runners that have an allocation and no claim. A runner that gets its
// allocation at the same time is ended by carryOut.
func (p *Placer) endUnclaimed(ctx context.Context) error {
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

// drain ends the runner with DRAINED, and deregisters it.
func (l *Place) drain() {
	l.Task.Stop(drained)
	l.p.Scheduler.Deregister(l.id)
}
