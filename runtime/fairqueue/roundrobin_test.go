package fairqueue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRoundRobinWalk compares keys with a plain list of keys in the order of their turns.
func TestRoundRobinWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var keys RoundRobin[string, int]
		var model []string
		drawKey := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		there := func(t *rapid.T) string {
			if len(model) == 0 {
				t.Skip()
			}
			return rapid.SampledFrom(model).Draw(t, "key")
		}
		t.Repeat(map[string]func(*rapid.T){
			"k": func(t *rapid.T) {
				key := drawKey.Draw(t, "key")
				k := keys.Key(key)
				if !slices.Contains(model, key) {
					model = append(model, key)
					if k.Queue != 0 {
						t.Fatalf("a new k has %d, want 0", k.Queue)
					}
				}
				k.Queue++
			},
			"took": func(t *rapid.T) {
				key := there(t)
				keys.EndTurn(keys.Find(key))
				at := slices.Index(model, key)
				model = append(slices.Delete(model, at, at+1), key)
			},
			"remove": func(t *rapid.T) {
				key := there(t)
				keys.Remove(keys.Find(key))
				at := slices.Index(model, key)
				model = slices.Delete(model, at, at+1)
			},
			"": func(t *rapid.T) {
				var got []string
				for k := range keys.All() {
					if got = append(got, k.ID); keys.Find(k.ID) != k || k.Queue == 0 {
						t.Fatalf("the k of %s isn't found, or is empty", k.ID)
					}
				}
				if !slices.Equal(got, model) || keys.Len() != len(model) {
					t.Fatalf("%q, %d, want %q", got, keys.Len(), model)
				}
				if first := keys.First(); (first == nil) != (len(model) == 0) || first != nil && first.ID != model[0] {
					t.Fatalf("first is %+v, want that of %q", first, model)
				}
				if keys.Find("none") != nil {
					t.Fatal("a k that doesn't exist is found")
				}
			},
		})
	})
}

// TestAllStopsWithItsLoop ends a loop early.
func TestAllStopsWithItsLoop(t *testing.T) {
	var keys RoundRobin[int, int]
	for key := range 3 {
		keys.Key(key)
	}
	for k := range keys.All() {
		if k.ID == 1 {
			break
		}
		if k.ID == 2 {
			t.Error("it continued")
		}
	}
}
