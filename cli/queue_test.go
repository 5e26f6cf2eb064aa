package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/wait"
)

func TestQueueCommand(t *testing.T) {
	s, _ := waiting(t)
	if out, errs, code := s.command("queue"); code != 0 || out != "" || errs != "rockpool: no claims are waiting\n" {
		t.Errorf("nothing waits: %d %q %q", code, out, errs)
	}
	s.works("runner", "claim", "a", "--ticket")
	s.works("runner", "claim", "a", "--ticket", "--wait", "20m")
	var all []client.WaitingClaim
	wait.For(t, "both have a position", func() bool {
		if err := json.Unmarshal([]byte(s.works("queue", "--json", "--env", "a", "--tenant", "default")), &all); err != nil {
			t.Fatal(err)
		}
		return len(all) == 2 && all[0].Position != nil && all[1].Position != nil && *all[0].Position != *all[1].Position
	})
	for i, w := range all {
		if w.EnvironmentId != "a" || w.Tenant != "default" || *w.Position != i+1 || w.Since.IsZero() {
			t.Errorf("%+v", w)
		}
	}
	for _, want := range []string{"a 1 - default", "a 2 - default", "19 min from now"} {
		if out := strings.Join(strings.Fields(s.works("queue")), " "); !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if out := strings.TrimSpace(s.works("queue", "--json", "--env", "b")); out != "[]" {
		t.Errorf("for another environment: %s", out)
	}
}

// TestQueueIsSorted by environment, then by position; claims without a position come last.
func TestQueueIsSorted(t *testing.T) {
	now := time.Now()
	table := queueTable([]client.WaitingClaim{
		{EnvironmentId: "b", Position: new(1), EstimatedWaitMs: new(90_100.0), Tenant: "t", Since: now.Add(-90 * time.Second), ExpiresAt: now.Add(time.Hour + time.Minute)},
		{EnvironmentId: "a", Tenant: "u"}, {EnvironmentId: "a", Position: new(12)}, {EnvironmentId: "a", Position: new(2)},
	})
	var rows []string
	for _, r := range table.Rows {
		rows = append(rows, strings.Join(r, "|"))
	}
	const want = "a|2|-||-|-\na|12|-||-|-\na|-|-|u|-|-\nb|1|1m30s|t|1 min ago|1 h from now"
	if got := strings.Join(rows, "\n"); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
}
