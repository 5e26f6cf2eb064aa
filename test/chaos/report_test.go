package main

import (
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/chaos/ledger"
)

func TestReportFails(t *testing.T) {
	fine := Report{Counts: map[string]int64{}, Parts: map[string]int64{}}
	always, long := fine.wanted()
	for _, name := range append(always, long...) {
		fine.Counts[name] = 1
	}
	if failures := fine.Failures(); len(failures) > 0 {
		t.Fatalf("%q", failures)
	}
	for _, name := range ledger.MustBeNone {
		fine.Counts[name] = 1
		if failures := fine.Failures(); len(failures) != 1 || !strings.Contains(failures[0], name) {
			t.Errorf("with one of %s: %q", name, failures)
		}
		fine.Counts[name] = 0
	}
	for _, name := range append(always, long...) {
		fine.Counts[name] = 0
		if failures := fine.Failures(); len(failures) != 1 || !strings.Contains(failures[0], name) {
			t.Errorf("without %s: %q", name, failures)
		}
		fine.Counts[name] = 1
	}
	short := Report{Short: true, Counts: map[string]int64{}}
	for _, name := range always {
		short.Counts[name] = 1
	}
	if failures := short.Failures(); len(failures) > 0 {
		t.Errorf("a short run: %q", failures)
	}
	var table strings.Builder
	short.Counts[ledger.DoubleClaims] = 2
	short.Wrongs = []ledger.Wrong{{Kind: ledger.DoubleClaims, Detail: "runner r1", At: time.Now()}}
	if err := short.Table(&table); err != nil || !strings.Contains(table.String(), "2  double claims  FAILED") || !strings.Contains(table.String(), "runner r1") {
		t.Errorf("%v\n%s", err, table.String())
	}
}
