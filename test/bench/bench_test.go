package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
	"github.com/rockpool/rockpool/test/bench/rows/onnomad"
)

func names(rows []rows.Row) (all []string) {
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
		{[]string{"flat/cl"}, []string{"flat/claim/runners", "flat/claim/history", "flat/claim/tenants"}},
		{[]string{"fair"}, []string{"fair/flood", "fair/tenants"}},
		{[]string{"true/graphql/*"}, []string{"true/graphql/1", "true/graphql/2", "true/graphql/8", "true/graphql/32"}},
		{[]string{"run/", "first-output/sse"}, []string{"first-output/sse", "run/one-call", "run/four-calls", "run/sustained/true", "run/sustained/python", "run/sustained/python-warm", "run/sustained/jobe", "run/sustained/c"}},
		{[]string{"lag", "lag/1"}, []string{"lag/1", "lag/100", "lag/1000"}},
	} {
		rows, err := rows.Select(Rows(), test.names)
		if got := names(rows); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, %v", test.names, got, err)
		}
	}
	if _, err := rows.Select(Rows(), []string{"claim", "nothing"}); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("a name that selects nothing: %v", err)
	}
}

func TestAgainstMeasuresOnlyWhatThePeerCanDo(t *testing.T) {
	against := rows.Against(Rows(), "The peer.")
	if want := []string{"run/sustained/true", "run/sustained/python", "run/sustained/c"}; !slices.Equal(names(against), want) || against[0].Floor != "The peer." {
		t.Errorf("%q beside %q", names(against), against[0].Floor)
	}
	for _, value := range []string{"judge0=http://127.0.0.1:1", "http://127.0.0.1:1", "go-judge=nowhere"} {
		if _, err := (&grammar{Against: value}).peer(t.Context()); err == nil {
			t.Errorf("--against %s is accepted", value)
		}
	}
}

func TestRowsAreUniqueAndDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range append(Rows(), onnomad.Rows()...) {
		if seen[row.Name] {
			t.Errorf("%s exists twice", row.Name)
		}
		seen[row.Name] = true
		for _, sentence := range []string{row.What, row.Floor} {
			if !strings.HasSuffix(sentence, ".") {
				t.Errorf("%s: %q isn't a sentence", row.Name, sentence)
			}
		}
		if row.Unit == "" || row.Open == nil {
			t.Errorf("%s: no unit, or nothing to measure", row.Name)
		}
	}
}

// TestRowAndFloorTakeTurns measures sleeps under synctest, where they take exactly their time.
func TestRowAndFloorTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		sleeper := func(name string, d time.Duration) rows.Probe {
			return func(_ context.Context, r *measure.Round) error {
				order = append(order, name)
				return r.Time(func() error { time.Sleep(d); return nil })
			}
		}
		b := &bed.Bed{}
		var result measure.Result
		p := rows.Pair{Row: sleeper("row", 6*time.Millisecond), Floor: sleeper("floor", 2*time.Millisecond)}
		if err := alternate(t.Context(), b, p, 3, &result); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(order, " "); got != "row floor row floor row floor" {
			t.Errorf("the order is %s, want row floor row floor row floor", got)
		}
		if result.Row.P50 != 6 || result.Floor.P50 != 2 || result.Ratio != 3 || result.Row.N != 3 {
			t.Errorf("%+v", result)
		}
	})
}
