package main

import (
	"errors"
	"testing"
)

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
		wants(t, s.ledger, figures...)
	}
	s := &storm{house: &house{ledger: newLedger()}}
	s.ledger.claimed("k1", "r1")
	s.harm("r1", func(string) bool { return true })
	s.harm("r1", func(string) bool { return false })
	s.ledger.gone("r1")
	wants(t, s.ledger)
}

// TestServerThatEndedBeforeItsKill: that one was to be killed excuses nothing.
func TestServerThatEndedBeforeItsKill(t *testing.T) {
	one := &server{ended: make(chan struct{})}
	s := &storm{house: &house{ledger: newLedger()}, server: one}
	s.expectAlive()
	wants(t, s.ledger)
	one.err = errors.New("exit status 2")
	close(one.ended)
	s.expectAlive()
	wants(t, s.ledger, unaskedEnds)
}
