// Package ledger has what a run knows by itself, not by what a server says: its
// programs and what they print, who holds which runner, what was harmed and when. It
// judges what the servers say, and counts.
package ledger

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Ledger has what the run knows by itself: who holds what, what was harmed
// and when, what was printed, what was uploaded. It judges what the servers say
// by that, and counts. Its methods may be called at once.
type Ledger struct {
	mu       sync.Mutex // guards all below
	counts   map[string]int64
	wrongs   []Wrong
	holders  map[string]string    // by runner: the key of the one claim that has it, or had
	runners  map[string]string    // by key
	harmed   map[string]time.Time // by runner: since when its agent may be dead by our hand
	released map[string]bool      // by runner: its holder let it go
	claims   map[string]time.Time // by runner: when it was first given to somebody
	full     []span               // when the disk was full
	drains   []span               // when all that ran was to go
	runs     map[string]*Run      // by key
}

// A Wrong is something that must not happen.
type Wrong struct {
	Kind   string    `json:"kind"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"`
}

type span struct{ from, to time.Time } // to zero: it still is

// New returns an empty one.
func New() *Ledger {
	return &Ledger{
		counts: map[string]int64{}, holders: map[string]string{}, runners: map[string]string{},
		harmed: map[string]time.Time{}, released: map[string]bool{}, runs: map[string]*Run{}, claims: map[string]time.Time{},
	}
}

// Count adds to a figure of the report.
func (l *Ledger) Count(name string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[name] += n
}

// Wrong notes what must not happen, so many times.
func (l *Ledger) Wrong(name string, n int64, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(name, n, format, args...)
}

func (l *Ledger) note(name string, n int64, format string, args ...any) {
	l.counts[name] += n
	l.wrongs = append(l.wrongs, Wrong{name, fmt.Sprintf(format, args...), time.Now()})
}

// Figures returns what was counted.
func (l *Ledger) Figures() (map[string]int64, []Wrong) {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := make(map[string]int64, len(l.counts))
	for name, n := range l.counts {
		counts[name] = n
	}
	return counts, slices.Clone(l.wrongs)
}

// Claimed judges the answer to a claim.
func (l *Ledger) Claimed(key, runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, again := l.runners[key]
	switch holder, held := l.holders[runner]; {
	case again && before != runner:
		l.note(DoubleClaims, 1, "claim %s got runner %s, and before it %s", key, runner, before)
	case held && holder != key:
		l.note(DoubleClaims, 1, "runner %s was given to claim %s, and before to %s", runner, key, holder)
	case !again:
		l.counts[Claims]++
	}
	l.holders[runner], l.runners[key] = key, runner
	if _, known := l.claims[runner]; !known {
		l.claims[runner] = time.Now()
	}
}

// Harm notes, before it is done, that a runner's agent is killed. Undo is for
// when that hit nothing.
func (l *Ledger) Harm(runner string) (undo func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.harmed[runner]; known {
		return func() {}
	}
	l.harmed[runner] = time.Now()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.harmed, runner)
	}
}

// Release notes, before it is asked for, that a holder lets its runner go.
func (l *Ledger) Release(runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released[runner] = true
}

// Gone judges that a server said of a runner that it isn't there.
func (l *Ledger) Gone(runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hurt(runner) && !l.released[runner] {
		l.note(LostClaims, 1, "runner %s of claim %s is gone, though nobody ended it", runner, l.holders[runner])
	}
}

// HarmedSince reports whether some runner was harmed since a time.
func (l *Ledger) HarmedSince(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, when := range l.harmed {
		if when.After(at) {
			return true
		}
	}
	return slices.ContainsFunc(l.drains, func(s span) bool { return s.lasts(drainGrace, at) })
}

// WasHarmed reports whether a runner was harmed, by itself or with all others.
func (l *Ledger) WasHarmed(runner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hurt(runner)
}

// hurt reports whether a runner was harmed, by itself or with all others.
func (l *Ledger) hurt(runner string) bool {
	_, harmed := l.harmed[runner]
	since, held := l.claims[runner]
	return harmed || held && slices.ContainsFunc(l.drains, func(s span) bool { return s.lasts(drainGrace, since) })
}

// Drain notes that all that runs is to go from now on, until over.
func (l *Ledger) Drain() (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := len(l.drains)
	l.drains = append(l.drains, span{from: time.Now()})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.drains[at].to = time.Now()
	}
}

// Held returns the runners that somebody holds and that weren't harmed.
func (l *Ledger) Held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for runner := range l.holders {
		if !l.hurt(runner) && !l.released[runner] {
			all = append(all, runner)
		}
	}
	slices.Sort(all)
	return all
}

// WasClaimed reports whether a runner was given to somebody.
func (l *Ledger) WasClaimed(runner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, held := l.holders[runner]
	return held
}

// FillDisk notes that the disk is full from now on.
func (l *Ledger) FillDisk() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = append(l.full, span{from: time.Now()})
}

// FreeDisk notes that it no longer is.
func (l *Ledger) FreeDisk() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full[len(l.full)-1].to = time.Now()
}

// How long an answer may be on its way that tells of a full disk; and how long
// after a drain runners may be given away that it stopped.
const (
	diskGrace  = 3 * time.Second
	drainGrace = 3 * time.Second
)

// WasFull reports whether the disk was full at some time from a time until now.
func (l *Ledger) WasFull(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fullSince(since)
}

func (l *Ledger) fullSince(since time.Time) bool {
	return slices.ContainsFunc(l.full, func(s span) bool {
		return s.lasts(diskGrace, since)
	})
}

// lasts reports whether a span, with its grace, ends after a time.
func (s span) lasts(grace time.Duration, at time.Time) bool {
	return s.to.IsZero() || s.to.Add(grace).After(at)
}
