package runtime

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestLossAt(t *testing.T) {
	for name, test := range map[string]struct {
		losses string
		want   map[int64]LossCause
	}{
		"no loss":     {`[]`, map[int64]LossCause{0: "", 1000: ""}},
		"closed loss": {`[{"from":100,"to":200,"cause":"A"}]`, map[int64]LossCause{99: "", 100: "A", 199: "A", 200: "", 500: ""}},
		"open loss":   {`[{"from":100,"cause":"A"}]`, map[int64]LossCause{99: "", 100: "A", 1000: "A"}},
		"several losses": {`[{"from":100,"to":200,"cause":"A"},{"from":200,"to":300,"cause":"B"},{"from":400,"cause":"A"}]`,
			map[int64]LossCause{0: "", 150: "A", 250: "B", 350: "", 450: "A"}},
		"losses without ends": {`[{"from":0,"cause":"A"},{"from":100,"cause":"B"}]`, map[int64]LossCause{0: "A", 99: "A", 100: "B", 1000: "B"}},
	} {
		var x Execution
		if err := json.Unmarshal([]byte(test.losses), &x.Losses); err != nil {
			t.Fatal(err)
		}
		for offset, want := range test.want {
			cause, until := x.LossAt(offset)
			if last, _ := x.LossAt(until - 1); cause != want || last != want || until <= offset {
				t.Errorf("%s: at %d it is %q up to %d, where it is %q; want %q", name, offset, cause, until, last, want)
			}
			if next, _ := x.LossAt(until); next == want && until < 1000 {
				t.Errorf("%s: at %d it is %q up to %d, where it is the same", name, offset, cause, until)
			}
		}
	}
}

func TestLossesBefore(t *testing.T) {
	x := Execution{Losses: []OutputLoss{{100, 200, LossStorageFull}, {300, 0, LossUnwritable}}}
	for offset, want := range map[int64][]OutputLoss{
		100: nil,
		150: {{100, 150, LossStorageFull}},
		250: {{100, 200, LossStorageFull}},
		300: {{100, 200, LossStorageFull}},
		400: {{100, 200, LossStorageFull}, {300, 400, LossUnwritable}},
	} {
		if got := x.LossesBefore(offset); !reflect.DeepEqual(got, want) {
			t.Errorf("before %d: %v, want %v", offset, got, want)
		}
	}
	if want := (OutputLoss{300, 0, LossUnwritable}); x.Losses[1] != want {
		t.Error("it was changed:", x.Losses)
	}
}
