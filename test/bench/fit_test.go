package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRowsThatDoNotFitSayWhatTheyNeed(t *testing.T) {
	each := room{CPUMHz: 2000, MemoryMiB: 512}
	for _, test := range []struct {
		free    room
		runners int
		want    string
	}{
		{room{1_200_000, 196_608}, 500, "500 runners of 512 MiB need 256000 MiB, and runners can be promised 196608 MiB here"},
		{room{999_999, 300_000}, 500, "500 runners of 2000 MHz need 1000000 MHz, and runners can be promised 999999 MHz here"},
		{room{1_000_000, 256_000}, 500, ""},
		{room{}, 0, ""},
	} {
		if got := test.free.lacks(test.runners, each); got != test.want {
			t.Errorf("%d runners in %+v: %q, want %q", test.runners, test.free, got, test.want)
		}
	}
}

func TestRowsThatDoNotFitAreNoFailures(t *testing.T) {
	report := Report{Rows: []Result{{Name: "large"}, {Name: "broken"}, {Name: "fine"}}}
	for i, err := range []error{fmt.Errorf("%w: 500 runners", errNoFit), errors.New("no runner"), nil} {
		report.Rows[i].failed(err)
		report.Rows[i].judge([]Goal{{Of: "p50", AtMost: 3}})
	}
	var out strings.Builder
	if err := report.Table(&out); err != nil || !strings.Contains(out.String(), "large  LEFT OUT: it doesn't fit this machine: 500 runners") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if report.Failed() != 1 || len(report.Rows[0].Goals) > 0 || len(report.Rows[2].Goals) != 1 {
		t.Errorf("%d failed: %+v", report.Failed(), report.Rows)
	}
}
