// Package ledger records what a run knows independently of the servers: its programs and what they
// print, the holder of each runner, what was harmed and when. It judges the servers' answers by
// that, and counts.
package ledger

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Ledger records what the run knows independently of the servers: holders, faults and their
// times, output and uploads. It judges the servers' answers by that, and counts. Its methods are
// safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex // guards the fields below
	counts   map[string]int64
	wrongs   []Wrong
	holders  map[string]string    // by runner: the key of the only claim that has or had it
	runners  map[string]string    // by key
	harmed   map[string]time.Time // by runner: since when its agent may have been killed
	released map[string]bool      // by runner: its holder released it
	claims   map[string]time.Time // by runner: when it was first claimed
	full     []span               // times of a full disk
	drains   []span               // times of drains that stop all runners
	runs     map[string]*Run      // by key
}

// A Wrong is something that must not happen.
type Wrong struct {
	Kind   string    `json:"kind"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"`
}

// A span is a time during which something lasted.
type span struct{ from, to time.Time } // zero to: not over

// New returns an empty ledger.
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

// Wrong records that something that must not happen did, n times.
func (l *Ledger) Wrong(name string, n int64, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(name, n, format, args...)
}

// note is Wrong for callers that hold mu.
func (l *Ledger) note(name string, n int64, format string, args ...any) {
	l.counts[name] += n
	l.wrongs = append(l.wrongs, Wrong{name, fmt.Sprintf(format, args...), time.Now()})
}

// Figures returns all counts and wrongs.
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
		l.note(DoubleClaims, 1, "claim %s got runner %s, but had got %s before", key, runner, before)
	case held && holder != key:
		l.note(DoubleClaims, 1, "runner %s belongs to claim %s, but belonged to %s before", runner, key, holder)
	case !again:
		l.counts[Claims]++
	}
	l.holders[runner], l.runners[key] = key, runner
	if _, known := l.claims[runner]; !known {
		l.claims[runner] = time.Now()
	}
}

// Harm records that a runner's agent is about to be killed. The caller calls undo if that hit
// nothing.
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

// Release records that a holder is about to release its runner.
func (l *Ledger) Release(runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released[runner] = true
}

// Gone judges a server's answer that a runner doesn't exist.
func (l *Ledger) Gone(runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hurt(runner) && !l.released[runner] {
		l.note(LostClaims, 1, "runner %s of claim %s is gone, but nothing ended it", runner, l.holders[runner])
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

// WasHarmed reports whether a runner was harmed, alone or by a drain.
func (l *Ledger) WasHarmed(runner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hurt(runner)
}

// hurt is WasHarmed with the mutex held.
func (l *Ledger) hurt(runner string) bool {
	_, harmed := l.harmed[runner]
	since, held := l.claims[runner]
	return harmed || held && slices.ContainsFunc(l.drains, func(s span) bool { return s.lasts(drainGrace, since) })
}

// Drain records that all runners may be stopped, from now until over is called.
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

// Held returns the claimed runners that weren't harmed.
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

// WasClaimed reports whether a runner was claimed.
func (l *Ledger) WasClaimed(runner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, held := l.holders[runner]
	return held
}

// FillDisk records that the disk is full from now on.
func (l *Ledger) FillDisk() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = append(l.full, span{from: time.Now()})
}

// FreeDisk records that the disk is no longer full.
func (l *Ledger) FreeDisk() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full[len(l.full)-1].to = time.Now()
}

// The time that an answer about a full disk may take to arrive; and the time after a drain in which
// a runner that it stopped may still be claimed.
const (
	diskGrace  = 3 * time.Second
	drainGrace = 3 * time.Second
)

// WasFull reports whether the disk was full at some time since a time.
func (l *Ledger) WasFull(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fullSince(since)
}

// fullSince is WasFull for callers that hold mu.
func (l *Ledger) fullSince(since time.Time) bool {
	return slices.ContainsFunc(l.full, func(s span) bool {
		return s.lasts(diskGrace, since)
	})
}

// lasts reports whether a span, with its grace, ends after a time.
func (s span) lasts(grace time.Duration, at time.Time) bool {
	return s.to.IsZero() || s.to.Add(grace).After(at)
}
