package api

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/runtime"
)

const counting = `#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
	long n, sum = 0;
	while (scanf("%ld", &n) == 1) sum += n;
	if (argc > 1 && !strcmp(argv[1], "spin")) for (;;);
	if (argc > 1 && !strcmp(argv[1], "abort")) abort();
	if (argc > 1 && !strcmp(argv[1], "print")) for (;;) puts("and so on");
	printf("%ld\n", sum);
	return argc > 1 ? atoi(argv[1]) : 0;
}
`

// awaitBatch follows a batch to its end, and returns it with a description of each case.
func awaitBatch(t *testing.T, b bed.Bed, id string) (batch client.GetBatchBatch, words []string) {
	t.Helper()
	if err := b.Client.FollowBatch(t.Context(), id, nil, func(client.BatchEvent) error { return nil }); err != nil {
		t.Fatal(err)
	}
	out, err := client.GetBatch(t.Context(), b.Client, id, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range out.Batch.Cases.Nodes {
		word := string(c.State)
		if c.Execution != nil {
			got := b.Await(t, c.Execution.Id)
			word = fmt.Sprint(word, " ", got.Ending)
			if got.Outcome == runtime.OutcomeExited {
				word += " " + got.Stream("STDOUT")
			}
		}
		words = append(words, word)
	}
	return out.Batch, words
}

// TestE2EBatch compiles once and runs cases, each with limits, an outcome and output of its own.
func TestE2EBatch(t *testing.T) {
	b := bed.Open(t)
	input := client.RunInput{
		EnvironmentId: "shell", WaitFor: new(120), Files: []client.FileInput{{Path: "main.c", Base64: []byte(counting)}},
		Build: &client.BuildInput{Command: []string{"cc", "-O1", "-o", "main", "main.c"}}, Command: []string{"./main"},
		Cases: []client.CaseInput{
			{Stdin: new("1 2 3")}, {}, {Args: []string{"7"}, StdinBase64: []byte("40")},
			{Args: []string{"spin"}, TimeLimit: new(1)}, {Args: []string{"abort"}},
			{Args: []string{"print"}, Limits: &client.LimitsInput{OutputBytes: new(int64(5000))}}, {Stdin: new("5")},
		},
	}
	out, err := client.RunBatch(t.Context(), b.Client, input)
	if err != nil {
		t.Fatal(err)
	}
	batch, got := awaitBatch(t, b, out.Run.Batch.Id)
	want := []string{"PASSED EXITED 0 6\n", "PASSED EXITED 0 0\n", "FAILED EXITED 7 40\n", "FAILED TIME_LIMIT", "FAILED SIGNALED SIGABRT", "FAILED OUTPUT_LIMIT", "PASSED EXITED 0 5\n"}
	if !slices.Equal(got, want) || batch.Outcome != runtime.BatchCompleted || batch.FailedCount != 4 || batch.Build == nil {
		t.Errorf("%q, want %q; %+v", got, want, batch.Batch)
	}
	input.Files[0].Base64 = []byte("int main(")
	if out, err = client.RunBatch(t.Context(), b.Client, input); err != nil {
		t.Fatal(err)
	}
	if batch, got := awaitBatch(t, b, out.Run.Batch.Id); batch.Outcome != runtime.BatchBuildFailed || batch.SkippedCount != 7 || got[0] != "SKIPPED" {
		t.Errorf("%q; %+v", got, batch.Batch)
	}
}

// TestE2EFreshRunnersShareNothing: a case doesn't find what an earlier one left.
func TestE2EFreshRunnersShareNothing(t *testing.T) {
	b := bed.Open(t)
	for fresh, want := range map[bool]string{true: "PASSED EXITED 0 1\n", false: "PASSED EXITED 0 3\n"} {
		out, err := client.RunBatch(t.Context(), b.Client, client.RunInput{EnvironmentId: "shell", WaitFor: new(120), FreshRunners: &fresh,
			Shell: new("cat f >>g; wc -l <g"), Files: []client.FileInput{{Path: "f", Base64: []byte("line\n")}}, Cases: make([]client.CaseInput, 3)})
		if err != nil {
			t.Fatal(err)
		}
		if batch, got := awaitBatch(t, b, out.Run.Batch.Id); batch.Outcome != runtime.BatchCompleted || got[2] != want {
			t.Errorf("fresh %v: %q; %+v", fresh, got, batch.Batch)
		}
	}
}
