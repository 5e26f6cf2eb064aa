package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// TestInputsCountUntilTheirEnd: stdin, expected output, variables and commands, also after a restart.
func TestInputsCountUntilTheirEnd(t *testing.T) {
	const mib = 1 << 20
	b, r := keeping(t, Config{Keep: time.Hour, KeepBytes: 64 * mib})
	kept := func() int64 { return b.logs.Figures().Kept }
	before := kept()
	of := request.Batch{Cases: []request.Case{{Stdin: make([]byte, 3*mib)}, {Expected: make([]byte, 5*mib)}}}
	started, _, err := b.Batches.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "3600"}}, of)
	if err != nil {
		t.Fatal(err)
	}
	// Stdin is stored in base64.
	wait.For(t, "the batch counts", func() bool { return kept()-before >= 9*mib && kept()-before < 9*mib+mib/8 })
	b.stop()
	b.start(t)
	wait.For(t, "it counts after a restart", func() bool { return kept()-before >= 9*mib && kept()-before < 9*mib+mib/8 })
	if _, err := b.Batches.Cancel(asServer(t), started.ID); err != nil {
		t.Fatal(err)
	}
	b.awaitBatch(t, started.ID)
	wait.For(t, "only its records count", func() bool { return kept()-before < mib/8 })

	// A tenant gets half of half of the space, after its first input.
	large := request.Batch{Cases: []request.Case{{Expected: make([]byte, 10*mib)}}}
	in := request.Start{RunnerID: r.ID, Command: []string{"sleep", "3600"}}
	first, _, err := b.Batches.Start(asServer(t), in, large)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = b.Batches.Start(asServer(t), in, large)
	refusal.Want(t, err, runtime.CodeQuotaExceeded, "")
	if n := kept() - before; n > 11*mib {
		t.Errorf("the refused batch counts: %d bytes", n)
	}
	if _, _, err := b.Batches.Start(asServer(t), in, request.Batch{Cases: []request.Case{{Stdin: []byte("small")}}}); err != nil {
		t.Error("a small input is refused:", err)
	}
	if _, err := b.Batches.Cancel(asServer(t), first.ID); err != nil {
		t.Fatal(err)
	}
	b.awaitBatch(t, first.ID)
	if _, _, err := b.Batches.Start(asServer(t), in, large); err != nil {
		t.Error("after the first has ended:", err)
	}
}

// TestBatchesThatBeganAreNotRefused begins a batch that takes nearly its tenant's whole share. Each of its cases
// takes more than a small input.
func TestBatchesThatBeganAreNotRefused(t *testing.T) {
	const mib = 1 << 20
	b, r := keeping(t, Config{Keep: time.Hour, KeepBytes: 64 * mib})
	in := request.Start{RunnerID: r.ID, Command: []string{"true"}}
	for _, name := range []string{"A", "B", "C", "D"} {
		in.Variables = append(in.Variables, runtime.Variable{Name: name, Value: strings.Repeat("x", 30_000)})
	}
	started, _, err := b.Batches.Start(asServer(t), in, request.Batch{Cases: []request.Case{{Stdin: make([]byte, 12*mib)}, {}}})
	if err != nil {
		t.Fatal(err)
	}
	if end := b.awaitBatch(t, started.ID); end.Outcome != runtime.BatchCompleted {
		t.Errorf("it ended as %s: %s", end.Outcome, end.Message)
	}
}

// TestInputsBeyondAllSpaceAreRefused: STORAGE_FULL, and nothing is stored.
func TestInputsBeyondAllSpaceAreRefused(t *testing.T) {
	const mib = 1 << 20
	b, r := keeping(t, Config{KeepBytes: 16 * mib})
	in := request.Start{RunnerID: r.ID, Command: []string{"true"}}
	_, _, err := b.Batches.Start(asServer(t), in, request.Batch{Cases: []request.Case{{Stdin: make([]byte, 16*mib)}}})
	refusal.Want(t, err, runtime.CodeStorageFull, "")
	if all, _, err := b.Batches.List(asServer(t), request.Batches{}, 10, ""); err != nil || len(all) > 0 || b.logs.Figures().Kept > mib {
		t.Errorf("%+v, %v, %d bytes are kept", all, err, b.logs.Figures().Kept)
	}
	if _, err := b.Executions.Start(asServer(t), in); err != nil {
		t.Error("another execution:", err)
	}
}
