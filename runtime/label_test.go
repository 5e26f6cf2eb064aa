package runtime

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestExecutionLabelsOverrideClaimLabels(t *testing.T) {
	claim := []Label{{"user", "ada"}, {"course", "c"}, {"user", "eve"}}
	for name, test := range map[string]struct{ own, want []Label }{
		"none":             {nil, claim},
		"another name":     {[]Label{{"step", "1"}}, append(slices.Clone(claim), Label{"step", "1"})},
		"the same name":    {[]Label{{"user", "bob"}}, []Label{{"course", "c"}, {"user", "bob"}}},
		"two of one name":  {[]Label{{"user", "x"}, {"user", "y"}}, []Label{{"course", "c"}, {"user", "x"}, {"user", "y"}}},
		"names have cases": {[]Label{{"User", "x"}}, append(slices.Clone(claim), Label{"User", "x"})},
	} {
		if got, err := WithLabels(claim, test.own); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, not %v", name, got, test.want)
		}
	}
}

func TestLabelsAreBounded(t *testing.T) {
	long := strings.Repeat("x", MaxLabelBytes)
	for _, good := range [][]Label{nil, {{long, long}}, {{"a", ""}}, slices.Repeat([]Label{{"a", "b"}}, MaxLabels)} {
		if err := ValidateLabels(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range [][]Label{{{"", "x"}}, {{long + "x", ""}}, {{"a", long + "x"}}, {{"a", "\xff"}}, slices.Repeat([]Label{{"a", "b"}}, MaxLabels+1)} {
		if err := ValidateLabels(bad); CodeOf(err) != CodeInvalidInput {
			t.Error(bad, err)
		}
	}
	if err := ValidateLabelFilters([]LabelFilter{{"a", nil}, {"b", new(long)}}); err != nil {
		t.Error(err)
	}
	if err := ValidateLabelFilters([]LabelFilter{{"a", new(long + "x")}}); CodeOf(err) != CodeInvalidInput {
		t.Error(err)
	}
}

func TestCommandLineIsVerbatim(t *testing.T) {
	for want, x := range map[string]Execution{
		`echo "$HOME" | wc`:        {Command: []string{"/bin/sh", "-c", `echo "$HOME" | wc`}, Shell: true},
		`./x "$@" 1 'two words'`:   {Command: []string{"/bin/sh", "-c", `./x "$@"`, "sh", "1", "two words"}, Shell: true},
		`/bin/sh -c 'echo x'`:      {Command: []string{"/bin/sh", "-c", "echo x"}},
		`python3 main.py --n=1`:    {Command: []string{"python3", "main.py", "--n=1"}},
		`echo '' 'It'\''s' '$x' ä`: {Command: []string{"echo", "", "It's", "$x", "ä"}},
		"":                         {},
		"hello.c ARGS":             {Command: []string{"sh", "-c", "script"}, Shell: true, Line: "hello.c ARGS"},
	} {
		if got := x.CommandLine(); got != want {
			t.Errorf("%s, not %s", got, want)
		}
		for most := range len(want) + 2 {
			if got := x.CommandLineStart(most); got != want[:min(most, len(want))] {
				t.Errorf("the first %d bytes of %s: %s", most, want, got)
			}
		}
	}
}

func TestValidateCommandLine(t *testing.T) {
	for line, valid := range map[string]bool{
		"": true, "ä 👩‍💻\u00a0\tx\ny": true, strings.Repeat("x", MaxCommandLineBytes): true,
		strings.Repeat("x", MaxCommandLineBytes+1): false, "\x1b[31m": false, "a\x00": false, "a\rb": false, "\u0085": false, "\xff": false,
	} {
		if err := ValidateCommandLine(line); (err == nil) != valid || err != nil && CodeOf(err) != CodeInvalidInput {
			t.Errorf("%.20q: %v", line, err)
		}
	}
}

// TestQuotedCommandLinesParseInAShell checks that a shell reads the same arguments.
func TestQuotedCommandLinesParseInAShell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arguments := rapid.SliceOfN(rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 })), 1, 5).Draw(t, "arguments")
		line := Execution{Command: append([]string{"printf", `%s\0`}, arguments...)}.CommandLine()
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", line).Output()
		if want := strings.Join(arguments, "\x00") + "\x00"; err != nil || string(out) != want {
			t.Errorf("%q is read as %q, not %q: %v", line, out, want, err)
		}
	})
}
