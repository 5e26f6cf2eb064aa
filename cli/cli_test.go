package cli

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli/command"
)

// execute runs a command like the program.
func execute(in io.Reader, out, errs io.Writer, arguments ...string) int {
	return Execute(&struct{ Commands }{}, "", arguments, command.Streams{In: in, Out: out, Err: errs}, kong.Bind(Private{}))
}

func TestRunWithoutAServerSaysHowToStartOne(t *testing.T) {
	var out, errs bytes.Buffer
	code := execute(nil, &out, &errs, "run", "--env", "shell", "--server", "http://127.0.0.1:1", "--", "true")
	if code != command.CodeOurs || !strings.Contains(errs.String(), "rockpool serve") || !strings.Contains(errs.String(), "--server") {
		t.Errorf("%d %q", code, errs.String())
	}
}

func TestRunWithoutEnvironmentAndFileIsAUsageError(t *testing.T) {
	for _, arguments := range [][]string{{"run"}, {"run", "--", "true"}, {"run", "--time-limit", "1"}} {
		var out, errs bytes.Buffer
		if code := execute(nil, &out, &errs, arguments...); code != command.CodeUsage || !strings.Contains(errs.String(), "give an environment with --env") || !strings.Contains(errs.String(), "`rockpool run --help`") {
			t.Errorf("%q: %d %q", arguments, code, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := execute(nil, &out, &errs, "run", "--help"); code != 0 || errs.Len() > 0 {
		t.Errorf("--help: %d %q", code, errs.String())
	}
}

func TestRunNamesTheWrongArgument(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"run", "--", "true"}, "--env"},
		{[]string{"run", "--env", "python"}, "no program is given"},
		{[]string{"run", "--env", "python", "missing.py"}, "missing.py"},
		{[]string{"run", "--env", "python", "--time-limit=-1", "--", "x"}, "0 to 86400"},
		{[]string{"run", "--env", "python", "--server", "localhost", "--", "x"}, "--server"},
	} {
		var out, errs bytes.Buffer
		if code := execute(nil, &out, &errs, test.arguments...); code == 0 || !strings.Contains(errs.String(), test.says) {
			t.Errorf("%v: %d %q", test.arguments, code, errs.String())
		}
	}
}

func TestSplitProgram(t *testing.T) {
	ours, program := splitProgram([]string{"run", "--env", "c", "--", "ls", "--", "--help"})
	if !slices.Equal(ours, []string{"run", "--env", "c"}) || !slices.Equal(program, []string{"ls", "--", "--help"}) {
		t.Errorf("%q %q", ours, program)
	}
}

func TestErrorsDontControlTheTerminal(t *testing.T) {
	var errs bytes.Buffer
	ExitCode(&errs, errors.New("one\x1b[2J\ntwo\u009b"))
	if errs.String() != "rockpool: one·[2J\ntwo·\n" {
		t.Errorf("%q", errs.String())
	}
}
