package turns

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLanesWalk compares lanes with a plain list of keys in the order of their turns.
func TestLanesWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var lanes Lanes[string, int]
		var model []string
		drawKey := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		there := func(t *rapid.T) string {
			if len(model) == 0 {
				t.Skip()
			}
			return rapid.SampledFrom(model).Draw(t, "key")
		}
		t.Repeat(map[string]func(*rapid.T){
			"lane": func(t *rapid.T) {
				key := drawKey.Draw(t, "key")
				lane := lanes.Lane(key)
				if !slices.Contains(model, key) {
					model = append(model, key)
					if lane.Queue != 0 {
						t.Fatalf("a new lane has %d", lane.Queue)
					}
				}
				lane.Queue++
			},
			"took": func(t *rapid.T) {
				key := there(t)
				lanes.EndTurn(lanes.Find(key))
				at := slices.Index(model, key)
				model = append(slices.Delete(model, at, at+1), key)
			},
			"remove": func(t *rapid.T) {
				key := there(t)
				lanes.Remove(lanes.Find(key))
				at := slices.Index(model, key)
				model = slices.Delete(model, at, at+1)
			},
			"": func(t *rapid.T) {
				var got []string
				for lane := range lanes.All() {
					if got = append(got, lane.Key); lanes.Find(lane.Key) != lane || lane.Queue == 0 {
						t.Fatalf("the lane of %s isn't found, or is empty", lane.Key)
					}
				}
				if !slices.Equal(got, model) || lanes.Len() != len(model) {
					t.Fatalf("%q, %d, want %q", got, lanes.Len(), model)
				}
				if first := lanes.First(); (first == nil) != (len(model) == 0) || first != nil && first.Key != model[0] {
					t.Fatalf("first is %+v, want that of %q", first, model)
				}
				if lanes.Find("none") != nil {
					t.Fatal("a lane that doesn't exist is found")
				}
			},
		})
	})
}

// TestAllStopsWithItsLoop ends a loop early.
func TestAllStopsWithItsLoop(t *testing.T) {
	var lanes Lanes[int, int]
	for key := range 3 {
		lanes.Lane(key)
	}
	for lane := range lanes.All() {
		if lane.Key == 1 {
			break
		}
		if lane.Key == 2 {
			t.Error("it continued")
		}
	}
}
