package similar

import (
	"slices"
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	ids := []string{"python", "pypy", "python-3", "node", "c", "cpp", "shell", "java", "python-numpy"}
	for name, want := range map[string]string{
		"pyton": "python", "Python": "python python-3 python-numpy", "py": "pypy python python-3", "nod": "node", "sh": "shell", "java8": "java", "cp": "c cpp", "xyz": "", "": "", "rust": "", "d": "c",
	} {
		if got := strings.Join(nearest(name, ids), " "); got != want {
			t.Errorf("%q: %q, not %q", name, got, want)
		}
	}
	if !slices.IsSorted(nearest("python-", []string{"python-c", "python-b", "python-a", "python-d"})) {
		t.Error("equally near ones have no order")
	}
}

func TestQuestion(t *testing.T) {
	ids := []string{"listen", "lists", "parallel"}
	for name, want := range map[string]string{"lisen": "did you mean listen?", "lis": "did you mean lists or listen?", "data": "", "": ""} {
		if got := Question(name, ids); got != want {
			t.Errorf("%q: %q, not %q", name, got, want)
		}
	}
}
