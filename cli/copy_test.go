package cli

import (
	"testing"
)

func TestPlacesOfCopies(t *testing.T) {
	for text, want := range map[string][2]string{
		"a": {"a", ""}, "r:a": {"a", "r"}, "r:": {"", "r"}, "./a:b": {"./a:b", ""}, "/x/a:b": {"/x/a:b", ""}, "r:/x:y": {"/x:y", "r"}, ":a": {":a", ""}, "-": {"-", ""},
	} {
		if path, runner := splitPlace(text); path != want[0] || runner != want[1] {
			t.Errorf("%q: %q in %q", text, path, runner)
		}
	}
}
