package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/ledger"
)

// notes fails the test unless exactly these wrongs were recorded.
func notes(t *testing.T, l *ledger.Ledger, kinds ...string) {
	t.Helper()
	_, wrongs := l.Figures()
	var noted []string
	for _, wrong := range wrongs {
		noted = append(noted, wrong.Kind)
	}
	if !slices.Equal(noted, kinds) {
		t.Errorf("%+v, want %q", wrongs, kinds)
	}
}

// TestFaultThatHitNothingExcusesNothing: a runner that a server lost can't be killed, and stays
// lost.
func TestFaultThatHitNothingExcusesNothing(t *testing.T) {
	for hit, figures := range map[bool][]string{true: nil, false: {ledger.LostClaims}} {
		s := &storm{House: &house.House{Ledger: ledger.New()}}
		s.Ledger.Claimed("k1", "r1")
		if s.harm("r1", func(string) bool { return hit }) != hit {
			t.Errorf("hit is %t, but harm returned the opposite", hit)
		}
		s.Ledger.Gone("r1")
		notes(t, s.Ledger, figures...)
	}
	s := &storm{House: &house.House{Ledger: ledger.New()}}
	s.Ledger.Claimed("k1", "r1")
	s.harm("r1", func(string) bool { return true })
	s.harm("r1", func(string) bool { return false })
	s.Ledger.Gone("r1")
	notes(t, s.Ledger)
}

// TestServerThatEndedBeforeItsKillIsAFailure: a planned kill doesn't excuse a server that ended
// before it.
func TestServerThatEndedBeforeItsKillIsAFailure(t *testing.T) {
	one := &house.Server{Ended: make(chan struct{})}
	s := &storm{House: &house.House{Ledger: ledger.New()}, server: one}
	s.expectAlive()
	notes(t, s.Ledger)
	one.Err = errors.New("exit status 2")
	close(one.Ended)
	s.expectAlive()
	notes(t, s.Ledger, ledger.UnaskedEnds)
}
