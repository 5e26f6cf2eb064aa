package isolation

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

// TestE2EEscapingSocketsAreRefused opens sockets that a network namespace doesn't
// contain. All are refused.
func TestE2EEscapingSocketsAreRefused(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "-c", `
import socket, errno
for family, kind, protocol in [(1, 1, 0), (2, 1, 0), (10, 2, 0), (16, 3, 0), (16, 3, 9), (40, 1, 0), (38, 5, 0), (17, 3, 0)]:
    try:
        socket.socket(family, kind, protocol).close(); print(family, protocol, "open")
    except OSError as e:
        print(family, protocol, errno.errorcode[e.errno])
`}})
	want := "1 0 open\n2 0 open\n10 0 open\n16 0 open\n16 9 EPROTONOSUPPORT\n40 0 EAFNOSUPPORT\n38 0 EAFNOSUPPORT\n17 0 EAFNOSUPPORT\n"
	if got.Stream("STDOUT") != want {
		t.Errorf("%q %q", got.Stream("STDOUT"), got.Stream("STDERR"))
	}
}

// TestE2ETooManyExecutionsAreRefused starts more concurrent executions than the
// runner has processes for. Those that don't fit are refused, and the runner stays alive.
func TestE2ETooManyExecutionsAreRefused(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	limit := b.LimitRead(t, "pids", runner)
	if limit > 256 {
		t.Fatalf("the limit of processes is %d", limit)
	}
	outcomes := make(chan runtime.Outcome, 500)
	var all sync.WaitGroup
	for range cap(outcomes) {
		all.Go(func() {
			outcomes <- b.Run(t, object{"runnerId": runner, "command": []string{"sleep", "2"}}).Outcome
		})
	}
	all.Wait()
	close(outcomes)
	ended := map[runtime.Outcome]int{}
	for outcome := range outcomes {
		ended[outcome]++
	}
	if ended["EXITED"] < 50 || ended["EXITED"]+ended["FAILED"] != cap(outcomes) {
		t.Errorf("they ended as %v", ended)
	}
	if got := b.Shell(t, runner, "echo usable"); got.Stream("STDOUT") != "usable\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

// TestE2EPagesHoldEveryEntryOnce lists a directory page by page.
func TestE2EPagesHoldEveryEntryOnce(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	b.Shell(t, runner, "mkdir src; touch src/Main.java src/z.txt 'src!' src-old src.zip")
	var got []string
	after := (*string)(nil)
	for {
		var out struct {
			Runner struct {
				Files struct {
					Nodes    []struct{ Path string }
					PageInfo struct {
						HasNextPage bool
						EndCursor   *string
					}
				}
			}
		}
		b.Call(t, `query($id: ID!, $after: String) { runner(id: $id) { files(recursive: true, first: 2, after: $after) {
			nodes { path } pageInfo { hasNextPage endCursor } } } }`, object{"id": runner, "after": after}, &out)
		for _, n := range out.Runner.Files.Nodes {
			got = append(got, n.Path)
		}
		if !out.Runner.Files.PageInfo.HasNextPage {
			break
		}
		after = out.Runner.Files.PageInfo.EndCursor
	}
	slices.Sort(got)
	if text := strings.Join(got, " "); text != "src src! src-old src.zip src/Main.java src/z.txt" {
		t.Errorf("got %s, want src src! src-old src.zip src/Main.java src/z.txt", text)
	}
}

// TestE2EAnswersWithTinyPiecesAreBounded prints output in the smallest pieces, and measures the
// answer.
func TestE2EAnswersWithTinyPiecesAreBounded(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "-c",
		"import os, time\nfor i in range(6000):\n  os.write(1 + i % 2, b'x'); time.sleep(0.0003)"}, "timeLimit": 60})
	if n := len(got.Output.Chunks); got.Usage.OutputBytes != 6000 || n > 4096 || n == 4096 && got.Output.End {
		t.Errorf("%d bytes in %d chunks, end: %v", got.Usage.OutputBytes, n, got.Output.End)
	}
}

func TestE2EOutputLimitIsACeiling(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	b.Refused(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`,
		object{"in": object{"runnerId": runner, "shell": "yes", "limits": object{"outputBytes": 1 << 30}}}, "INVALID_INPUT", "limits.outputBytes")
}
