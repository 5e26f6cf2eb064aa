package sandboxtest

import "testing"

// TestEditsFindTheirText fails if a source has changed so that an edit no longer applies.
func TestEditsFindTheirText(t *testing.T) {
	for _, w := range []*weak{&weakAgent, &weakHelper} {
		for _, e := range w.edits {
			if _, err := apply([]edit{e}, sources()); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
		}
		if _, err := apply(w.edits, sources()); err != nil {
			t.Errorf("%s, all edits: %v", w.name, err)
		}
	}
}
