package cli

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/config/quantity"
)

// TestTimesAndSizes checks every flag that is a time or a size. The help shows the format. The error
// for a negative or too large value names the flag. The shell completes the value.
func TestTimesAndSizes(t *testing.T) {
	parser, err := kong.New(&struct{ Commands }{}, quantity.Flags())
	if err != nil {
		t.Fatal(err)
	}
	seen, forms := 0, regexp.MustCompile("TIME: .* or 2d|SIZE: .* or 1GiB")
	for _, node := range parser.Model.Leaves(true) {
		for _, flag := range node.Flags {
			if !quantity.Is(flag.Value) {
				if p := flag.PlaceHolder; p == "TIME" && !slices.Contains([]string{"from", "to", "since"}, flag.Name) || slices.Contains([]string{"SIZE", "SECONDS", "BYTES", "MIB", "MS"}, p) {
					t.Errorf("%s --%s is %s, but no quantity", node.Path(), flag.Name, p)
				}
				continue
			}
			seen++
			for _, value := range []string{"-1", "99999999999999999999", "soon"} {
				var out, errs bytes.Buffer
				arguments := append(strings.Fields(commandOf(node)), "--"+flag.Name+"="+value)
				if code := execute(nil, &out, &errs, arguments...); code == 0 || !strings.Contains(errs.String(), "--"+flag.Name) {
					t.Errorf("%q: %d %s", arguments, code, errs.String())
				}
			}
			var out, errs bytes.Buffer
			execute(nil, &out, &errs, append(strings.Fields(commandOf(node)), "--help")...)
			if !forms.MatchString(strings.Join(strings.Fields(out.String()), " ")) {
				t.Errorf("%s doesn't say how to write --%s", node.Path(), flag.Name)
			}
			out.Reset()
			execute(nil, &out, &errs, append(append([]string{"__complete", "--"}, strings.Fields(commandOf(node))...), "--"+flag.Name, "")...)
			if !forms.MatchString(out.String()) {
				t.Errorf("%s --%s is completed with %q", node.Path(), flag.Name, out.String())
			}
		}
	}
	if seen < 11 {
		t.Errorf("only %d flags are times or sizes", seen)
	}
}

// commandOf returns the words that name a command.
func commandOf(node *kong.Node) string {
	if node.Parent == nil {
		return ""
	}
	return strings.TrimSpace(commandOf(node.Parent) + " " + node.Name)
}
