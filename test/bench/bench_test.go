package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func names(rows []Row) (all []string) {
	for _, row := range rows {
		all = append(all, row.Name)
	}
	return all
}

func TestSelect(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  []string
	}{
		{nil, names(Rows())},
		{[]string{"keystroke"}, []string{"keystroke"}},
		{[]string{"claim"}, []string{"claim"}},
		{[]string{"flat/cl"}, []string{"flat/claim/runners", "flat/claim/history"}},
		{[]string{"true/graphql/*"}, []string{"true/graphql/1", "true/graphql/2", "true/graphql/8", "true/graphql/32"}},
		{[]string{"run/", "first-output/sse"}, []string{"first-output/sse", "run/one-call", "run/four-calls"}},
		{[]string{"lag", "lag/1"}, []string{"lag/1", "lag/100", "lag/1000"}},
	} {
		rows, err := Select(Rows(), test.names)
		if got := names(rows); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, %v", test.names, got, err)
		}
	}
	if _, err := Select(Rows(), []string{"claim", "nothing"}); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("a name that selects nothing: %v", err)
	}
}

func TestRowsSayWhatTheyAre(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range append(Rows(), NomadRows()...) {
		if seen[row.Name] {
			t.Errorf("%s is there twice", row.Name)
		}
		seen[row.Name] = true
		for _, sentence := range []string{row.What, row.Floor} {
			if !strings.HasSuffix(sentence, ".") {
				t.Errorf("%s: %q is no sentence", row.Name, sentence)
			}
		}
		if row.Unit == "" || row.Open == nil {
			t.Errorf("%s: no unit, or nothing to measure", row.Name)
		}
	}
}

// TestRowAndFloorTakeTurns measures sleeps, in a bubble in which they take
// exactly as long.
func TestRowAndFloorTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		sleeper := func(name string, d time.Duration) probe {
			return func(_ context.Context, r *round) error {
				order = append(order, name)
				return r.time(func() error { time.Sleep(d); return nil })
			}
		}
		b := &bed{}
		var result Result
		p := pair{row: sleeper("row", 6*time.Millisecond), floor: sleeper("floor", 2*time.Millisecond)}
		if err := alternate(t.Context(), b, p, 3, &result); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(order, " "); got != "row floor row floor row floor" {
			t.Errorf("the order is %s", got)
		}
		if result.Row.P50 != 6 || result.Floor.P50 != 2 || result.Ratio != 3 || result.Row.N != 3 {
			t.Errorf("%+v", result)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &round{}
		if err := r.rate(50, func() error { time.Sleep(500 * time.Millisecond); return nil }); err != nil || !slices.Equal(r.samples, []float64{100}) {
			t.Errorf("%v, %v", r.samples, err)
		}
		if err := r.rate(50, func() error { return errors.New("broken") }); err == nil || len(r.samples) != 1 {
			t.Errorf("what failed is a sample: %v, %v", r.samples, err)
		}
	})
}

func TestGoals(t *testing.T) {
	measured := Result{Row: Summary{P50: 3, P99: 20}, Ratio: 1.4}
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
		{Goal{Of: "p42", AtMost: 1000}, false, "p42 ≤ 1000: MISSED"},
	} {
		r := measured
		r.judge([]Goal{test.goal})
		if len(r.Goals) != 1 || r.Goals[0].Met != test.met || r.Goals[0].String() != test.text {
			t.Errorf("%+v: %v", test.goal, r.Goals)
		}
	}
	failed := Result{Error: "no runner"}
	if failed.judge([]Goal{{Of: "p50", AtMost: 3}}); len(failed.Goals) > 0 {
		t.Errorf("what could not be measured reached %v", failed.Goals)
	}
}

func TestTable(t *testing.T) {
	report := Report{Rows: []Result{
		{Name: "claim", Unit: Milliseconds, Per: "claim", Row: Summary{N: 1, Min: 1, P10: 2, P50: 3, P99: 4}, Floor: Summary{N: 1, P50: 0.5}, Ratio: 6, CPU: &CPU{Server: 0.25}},
		{Name: "keystroke", Error: "no terminal"},
	}}
	var out strings.Builder
	if err := report.Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1.00  2.00  3.00  4.00", "×6.00", "0.25 ms/claim", "keystroke  FAILED: no terminal"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q isn't in\n%s", want, out.String())
		}
	}
}

// TestMessages reads times and ends out of messages as they come.
func TestMessages(t *testing.T) {
	at := time.Unix(1700000000, 123)
	message := fmt.Appendf(nil, `{"id":"1","type":"next","payload":{"data":{"executionEvents":{"__typename":"ExecutionOutput","text":"%s`, pacePiece(at))
	if got, ok := printedAt(message); !ok || !got.Equal(at) {
		t.Errorf("printed at %v, %v", got, ok)
	}
	for _, text := range []string{"", "at=", "at=12", "at=x;", "no time"} {
		if _, ok := printedAt([]byte(text)); ok {
			t.Errorf("%q has a time", text)
		}
	}
	if isLast(message) || !isLast(lastMessage) || !isLast([]byte(`{"id":"17","type":"complete"}`)) {
		t.Error("ends aren't told apart")
	}
}
