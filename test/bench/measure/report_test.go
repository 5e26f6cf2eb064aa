package measure

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestGoals(t *testing.T) {
	measured := Result{Row: Summary{P50: 3, P99: 20}, Floor: Summary{P99: 8}, Ratio: 1.4}
	for _, test := range []struct {
		goal Goal
		met  bool
		text string
	}{
		{Goal{Of: "p50", AtMost: 3}, true, "p50 ≤ 3: reached"},
		{Goal{Of: "p50", AtMost: 2.9}, false, "p50 ≤ 2.9: MISSED"},
		{Goal{Of: "p50", AtLeast: 3}, true, "p50 ≥ 3: reached"},
		{Goal{Of: "p99", AtMost: 10}, false, "p99 ≤ 10: MISSED"},
		{Goal{Of: "ratio", AtMost: 1.5}, true, "ratio ≤ 1.5: reached"},
		{Goal{Of: "p99 ratio", AtMost: 2.5}, true, "p99 ratio ≤ 2.5: reached"},
		{Goal{Of: "p99 ratio", AtMost: 2.4}, false, "p99 ratio ≤ 2.4: MISSED"},
		{Goal{Of: "p42", AtMost: 1000}, false, "p42 ≤ 1000: MISSED"},
	} {
		r := measured
		r.Judge([]Goal{test.goal})
		if len(r.Goals) != 1 || r.Goals[0].Met != test.met || r.Goals[0].String() != test.text {
			t.Errorf("%+v: %v", test.goal, r.Goals)
		}
	}
	failed := Result{Error: "no runner"}
	if failed.Judge([]Goal{{Of: "p50", AtMost: 3}}); len(failed.Goals) > 0 {
		t.Errorf("what could not be measured reached %v", failed.Goals)
	}
}

func TestRowsThatDoNotFitAreNotFailures(t *testing.T) {
	report := Report{Rows: []Result{{Name: "large"}, {Name: "broken"}, {Name: "fine"}}}
	for i, err := range []error{fmt.Errorf("%w: 500 runners", ErrNoFit), errors.New("no runner"), nil} {
		report.Rows[i].Fail(err)
		report.Rows[i].Judge([]Goal{{Of: "p50", AtMost: 3}})
	}
	var out strings.Builder
	if err := report.Table(&out); err != nil || !strings.Contains(out.String(), "large  LEFT OUT: it doesn't fit this machine: 500 runners") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if report.Failed() != 1 || len(report.Rows[0].Goals) > 0 || len(report.Rows[2].Goals) != 1 {
		t.Errorf("%d failed: %+v", report.Failed(), report.Rows)
	}
}
