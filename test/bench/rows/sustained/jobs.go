package sustained

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
)

// A job is one program that is run repeatedly.
type job struct {
	name, what string
	argv       []string
	source     string  // in C, compiled to "program"; "" means nothing to compile
	goal       float64 // runs per second; 0 means none
	warm       bool    // the runner has python loaded
	jobe       bool    // sent to the API for Jobe's clients
}

// jobs are the programs, the cheapest first.
var jobs = []job{
	{name: "true", what: "`true`", argv: []string{"/usr/bin/true"}, goal: 250},
	{name: "python", what: "`python3 -c 'print(1)'`", argv: []string{"/usr/bin/python3", "-c", "print(1)"}, goal: 110},
	{name: "python-warm", what: "`python3 -c 'print(1)'` from an interpreter that each runner has loaded", argv: []string{"/usr/bin/python3", "-c", "print(1)"}, goal: 200, warm: true},
	{name: "jobe", what: "`print(1)` in Python, as CodeRunner sends it to a Jobe server (`--compat jobe`)", argv: []string{"/usr/bin/python3", "-c", "print(1)"}, goal: 100, jobe: true},
	{name: "c", what: "a compiled C program that prints a line, uploaded with each run", argv: []string{"./program"}, source: cSource},
}

// cSource is compiled once, before the measurement.
const cSource = `#include <stdio.h>
int main(void) { puts("1"); return 0; }
`

// files are the files that a job needs, by name.
type files map[string][]byte

// input converts them to the input of `run`.
func (f files) input() []client.FileInput {
	all := []client.FileInput{}
	for name, content := range f {
		all = append(all, client.FileInput{Path: name, Base64: content, Mode: new("0755")})
	}
	return all
}

// prepare compiles the job's source. Without the job's program or a compiler the error is
// measure.ErrNoFit.
func (j job) prepare(ctx context.Context, b *bed.Bed) (files, error) {
	if j.source == "" {
		if _, err := os.Stat(j.argv[0]); err != nil {
			return nil, fmt.Errorf("%w: %w", measure.ErrNoFit, err)
		}
		return files{}, nil
	}
	program, err := compile(ctx, b, j.source)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(program)
	return files{"program": content}, err
}

// compile compiles a C program. Without a compiler the error is measure.ErrNoFit.
func compile(ctx context.Context, b *bed.Bed, source string) (program string, err error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return "", fmt.Errorf("%w: no C compiler: %w", measure.ErrNoFit, err)
	}
	dir, err := b.Directory()
	if err != nil {
		return "", err
	}
	text, program := filepath.Join(dir, "program.c"), filepath.Join(dir, "program")
	if err := os.WriteFile(text, []byte(source), 0o600); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, compiler, "-O2", "-s", "-o", program, text).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %.2000s", compiler, err, out)
	}
	return program, nil
}
