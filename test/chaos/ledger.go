package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// A ledger has what the run knows by itself: who holds what, what was harmed
// and when, what was printed, what was uploaded. It judges what the servers say
// by that, and counts. Its methods may be called at once.
type ledger struct {
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
	runs     map[string]*run      // by key
}

// A Wrong is something that must not happen.
type Wrong struct {
	Kind   string    `json:"kind"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"`
}

type span struct{ from, to time.Time } // to zero: it still is

func newLedger() *ledger {
	return &ledger{
		counts: map[string]int64{}, holders: map[string]string{}, runners: map[string]string{},
		harmed: map[string]time.Time{}, released: map[string]bool{}, runs: map[string]*run{}, claims: map[string]time.Time{},
	}
}

// count adds to a figure of the report.
func (l *ledger) count(name string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[name] += n
}

// wrong notes what must not happen, so many times.
func (l *ledger) wrong(name string, n int64, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(name, n, format, args...)
}

func (l *ledger) note(name string, n int64, format string, args ...any) {
	l.counts[name] += n
	l.wrongs = append(l.wrongs, Wrong{name, fmt.Sprintf(format, args...), time.Now()})
}

// figures returns what was counted.
func (l *ledger) figures() (map[string]int64, []Wrong) {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := make(map[string]int64, len(l.counts))
	for name, n := range l.counts {
		counts[name] = n
	}
	return counts, slices.Clone(l.wrongs)
}

// claimed judges the answer to a claim.
func (l *ledger) claimed(key, runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, again := l.runners[key]
	switch holder, held := l.holders[runner]; {
	case again && before != runner:
		l.note(doubleClaims, 1, "claim %s got runner %s, and before it %s", key, runner, before)
	case held && holder != key:
		l.note(doubleClaims, 1, "runner %s was given to claim %s, and before to %s", runner, key, holder)
	case !again:
		l.counts[claims]++
	}
	l.holders[runner], l.runners[key] = key, runner
	if _, known := l.claims[runner]; !known {
		l.claims[runner] = time.Now()
	}
}

// harm notes, before it is done, that a runner's agent is killed. Undo is for
// when that hit nothing.
func (l *ledger) harm(runner string) (undo func()) {
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

// release notes, before it is asked for, that a holder lets its runner go.
func (l *ledger) release(runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released[runner] = true
}

// gone judges that a server said of a runner that it isn't there.
func (l *ledger) gone(runner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hurt(runner) && !l.released[runner] {
		l.note(lostClaims, 1, "runner %s of claim %s is gone, though nobody ended it", runner, l.holders[runner])
	}
}

// harmedSince reports whether some runner was harmed since a time.
func (l *ledger) harmedSince(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, when := range l.harmed {
		if when.After(at) {
			return true
		}
	}
	return slices.ContainsFunc(l.drains, func(s span) bool { return s.lasts(drainGrace, at) })
}

func (l *ledger) wasHarmed(runner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hurt(runner)
}

// hurt reports whether a runner was harmed, by itself or with all others.
func (l *ledger) hurt(runner string) bool {
	_, harmed := l.harmed[runner]
	since, held := l.claims[runner]
	return harmed || held && slices.ContainsFunc(l.drains, func(s span) bool { return s.lasts(drainGrace, since) })
}

// drain notes that all that runs is to go from now on, until over.
func (l *ledger) drain() (over func()) {
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

// held returns the runners that somebody holds and that weren't harmed.
func (l *ledger) held() []string {
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

func (l *ledger) isHolder(runner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, held := l.holders[runner]
	return held
}

// fillDisk and freeDisk note when the disk is full.
func (l *ledger) fillDisk() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = append(l.full, span{from: time.Now()})
}

func (l *ledger) freeDisk() {
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

// wasFull reports whether the disk was full at some time from a time until now.
func (l *ledger) wasFull(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fullSince(since)
}

func (l *ledger) fullSince(since time.Time) bool {
	return slices.ContainsFunc(l.full, func(s span) bool {
		return s.lasts(diskGrace, since)
	})
}

// lasts reports whether a span, with its grace, ends after a time.
func (s span) lasts(grace time.Duration, at time.Time) bool {
	return s.to.IsZero() || s.to.Add(grace).After(at)
}
