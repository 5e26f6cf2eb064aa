package model

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

func self(s string) string { return s }

// Reading all pages returns each lasting entry exactly once, in order, whatever is added and
// removed between two pages.
func TestPagesMissNothingAndRepeatNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := func(label, prefix string) []string {
			var out []string
			for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 999), 0, 40, rapid.ID).Draw(t, label) {
				out = append(out, fmt.Sprintf("%03d%s", n, prefix))
			}
			slices.Sort(out)
			return out
		}
		staying := keys("staying", "")
		descending := rapid.Bool().Draw(t, "descending")
		var seen []string
		var after *string
		for {
			items := append(slices.Clone(staying), keys("passing", "x")...)
			slices.Sort(items)
			if descending {
				slices.Reverse(items)
			}
			first := rapid.IntRange(1, 10).Draw(t, "first")
			page, err := ParsePage(&first, after)
			if err != nil {
				t.Fatal(err)
			}
			page.Descending = descending
			cut := CutPage(items, self, page)
			if len(cut.Nodes) > first || cut.TotalCount != len(items) {
				t.Fatalf("%d of %d entries, %d told", len(cut.Nodes), len(items), cut.TotalCount)
			}
			for _, edge := range cut.Edges() {
				seen = append(seen, edge.Node)
			}
			if info := cut.PageInfo(); info.HasNextPage {
				after = info.EndCursor
				continue
			}
			break
		}
		if descending {
			slices.Reverse(seen)
		}
		if !slices.IsSorted(seen) {
			t.Fatalf("out of order: %v", seen)
		}
		stayed := slices.DeleteFunc(seen, func(s string) bool { return len(s) > 3 })
		if !slices.Equal(stayed, staying) {
			t.Fatalf("saw %v of %v", stayed, staying)
		}
	})
}

func TestLoadedDropsTheExtraEntry(t *testing.T) {
	page := Page{First: 2}
	for _, test := range []struct {
		items []string
		more  bool
	}{{nil, false}, {[]string{"a", "b"}, false}, {[]string{"a", "b", "c"}, true}} {
		c := LoadedPage(test.items, self, page, 9)
		if c.PageInfo().HasNextPage != test.more || len(c.Nodes) != min(len(test.items), 2) || c.TotalCount != 9 {
			t.Errorf("%v: %+v", test.items, c)
		}
	}
	if end := LoadedPage(nil, self, page, 0).PageInfo().EndCursor; end != nil {
		t.Errorf("an empty page ends at %q", *end)
	}
}

func TestParseRefusesValuesOutOfRange(t *testing.T) {
	number := func(n int) *int { return &n }
	text := func(s string) *string { return &s }
	for _, test := range []struct {
		first *int
		after *string
		field string
	}{
		{number(0), nil, "first"}, {number(-1), nil, "first"}, {number(1001), nil, "first"},
		{nil, text(""), "after"}, {nil, text("not a cursor"), "after"}, {nil, text("YR"), "after"},
	} {
		_, err := ParsePage(test.first, test.after)
		var typed *runtime.Error
		if !errors.As(err, &typed) || typed.Code != runtime.CodeInvalidInput || typed.Field != test.field {
			t.Errorf("%v %v: %v", test.first, test.after, err)
		}
	}
	if page, err := ParsePage(nil, nil); err != nil || page.First != 100 || page.After != "" {
		t.Errorf("the default is %+v, %v", page, err)
	}
}
