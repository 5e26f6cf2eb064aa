// Package similar suggests what a mistyped name may mean.
package similar

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Question returns "did you mean A, B or C?" with up to three of ids that resemble a name; "" if
// none does.
func Question(name string, ids []string) string {
	near := nearest(name, ids)
	switch len(near) {
	case 0:
		return ""
	case 1:
		return "did you mean " + near[0] + "?"
	default:
		return "did you mean " + strings.Join(near[:len(near)-1], ", ") + " or " + near[len(near)-1] + "?"
	}
}

// nearest returns up to three ids that resemble a name, the nearest first. An id resembles it if at
// most a third is mistyped, or if one of the two begins with the other.
func nearest(name string, ids []string) []string {
	const most = 3
	if name == "" {
		return nil
	}
	distances := map[string]int{}
	name = strings.ToLower(name)
	for _, id := range ids {
		d := levenshtein.ComputeDistance(name, strings.ToLower(id))
		begins := len(name) > 1 && strings.HasPrefix(id, name) || len(id) > 1 && strings.HasPrefix(name, id)
		if begins || d <= max(1, min(len(name), len(id))/3) {
			distances[id] = d
		}
	}
	near := slices.DeleteFunc(slices.Sorted(slices.Values(ids)), func(id string) bool { _, is := distances[id]; return !is })
	slices.SortStableFunc(near, func(a, b string) int { return distances[a] - distances[b] })
	return near[:min(most, len(near))]
}
