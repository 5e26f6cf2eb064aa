package main

import (
	"errors"
	"slices"
	"testing"
)

// notes fails the test unless just these are noted as what must not happen.
func notes(t *testing.T, l *ledger, kinds ...string) {
	t.Helper()
	_, wrongs := l.figures()
	var noted []string
	for _, wrong := range wrongs {
		noted = append(noted, wrong.Kind)
	}
	if !slices.Equal(noted, kinds) {
		t.Errorf("%+v, want %q", wrongs, kinds)
	}
}

// TestHarmThatHitNothingExcusesNothing: a runner that a server lost can't be
// killed, and stays lost.
func TestHarmThatHitNothingExcusesNothing(t *testing.T) {
	for hit, figures := range map[bool][]string{true: nil, false: {lostClaims}} {
		s := &storm{house: &house{ledger: newLedger()}}
		s.ledger.claimed("k1", "r1")
		if s.harm("r1", func(string) bool { return hit }) != hit {
			t.Errorf("hit is %t, and told otherwise", hit)
		}
		s.ledger.gone("r1")
		notes(t, s.ledger, figures...)
	}
	s := &storm{house: &house{ledger: newLedger()}}
	s.ledger.claimed("k1", "r1")
	s.harm("r1", func(string) bool { return true })
	s.harm("r1", func(string) bool { return false })
	s.ledger.gone("r1")
	notes(t, s.ledger)
}

// TestServerThatEndedBeforeItsKill: that one was to be killed excuses nothing.
func TestServerThatEndedBeforeItsKill(t *testing.T) {
	one := &server{ended: make(chan struct{})}
	s := &storm{house: &house{ledger: newLedger()}, server: one}
	s.expectAlive()
	notes(t, s.ledger)
	one.err = errors.New("exit status 2")
	close(one.ended)
	s.expectAlive()
	notes(t, s.ledger, unaskedEnds)
}
