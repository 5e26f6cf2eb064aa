package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// waiting returns a server on which claims of environment a wait, and a function that gives a
// runner to one of them.
func waiting(t *testing.T) (s *server, serve func()) {
	s = newServer(t)
	s.works("env", "put", "a", "--pool-size", "1")
	wait.For(t, "a runner is idle", func() bool {
		p, _ := s.engine.Environments.PoolStatus(runtime.Environment{ID: "a"})
		return p.Idle == 1
	})
	s.fake.StartDelay(time.Hour)
	s.works("runner", "claim", "a")
	return s, func() {
		t.Helper()
		s.fake.StartDelay(0)
		runners, err := s.fake.Runners(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runners {
			if r.State == runtime.RunnerStarting {
				s.fake.Kill(r.ID, runtime.GoneStartFailed)
			}
		}
	}
}

// TestClaimForAHolder: the same holder gets the same runner, and the command reports that on stderr.
func TestClaimForAHolder(t *testing.T) {
	s := newServer(t)
	s.works("env", "put", "a", "--pool-size", "1")
	first := strings.TrimSpace(s.works("runner", "claim", "a", "--holder", "ada/exercise 3"))
	out, errs, code := s.command("runner", "claim", "a", "--holder", "ada/exercise 3")
	if code != 0 || strings.TrimSpace(out) != first || !strings.Contains(errs, "resumed runner "+first) {
		t.Errorf("%s, then %d %s %s", first, code, out, errs)
	}
	if other := strings.TrimSpace(s.works("runner", "claim", "a", "--holder", "eve", "--json")); strings.Contains(other, first) || !strings.Contains(other, `"holder": "eve"`) {
		t.Errorf("%s, then %s", first, other)
	}
	for ticket, resumed := range map[string]bool{"ada/exercise 3": true, "bob": false} {
		var got client.Ticket
		if err := json.Unmarshal([]byte(s.works("runner", "claim", "a", "--ticket", "--json", "--holder", ticket)), &got); err != nil || got.Resumed != resumed {
			t.Errorf("%s: %+v, %v", ticket, got, err)
		}
	}
	s.fails("holder", "runner", "claim", "a", "--holder", "")
	s.fails("--key", "runner", "claim", "a", "--holder", "ada", "--key", "k")
}

func TestTicketCommands(t *testing.T) {
	s, serve := waiting(t)
	first := strings.TrimSpace(s.works("runner", "claim", "a", "--ticket", "--key", "mine"))
	if again := strings.TrimSpace(s.works("runner", "claim", "a", "--ticket", "--key", "mine")); again != first {
		t.Errorf("the same key made %s, then %s", first, again)
	}
	var second client.Ticket
	if err := json.Unmarshal([]byte(s.works("runner", "claim", "a", "--ticket", "--wait", "20m", "--json")), &second); err != nil || second.State != client.TicketStateWaiting {
		t.Fatal(second, err)
	}
	if d := second.ExpiresAt.Sub(second.CreatedAt); d != 20*time.Minute {
		t.Errorf("it waits for %v", d)
	}
	shown := ""
	wait.For(t, "its position is known", func() bool {
		shown = s.works("ticket", "show", first)
		return strings.Contains(shown, "at position 1")
	})
	for _, want := range []string{first, "WAITING", "at position 1", "59 min from now"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in %s", want, shown)
		}
	}
	if got := strings.Fields(s.works("ticket", "show", second.Id, "-o", "yaml")); len(got) == 0 || got[0] != "id:" {
		t.Errorf("%q", got)
	}

	watched := s.start("ticket", "watch", second.Id)
	watched.errs.has(t, "waiting for a runner of a, at position 2")
	if out := s.works("ticket", "cancel", first); !strings.Contains(out, "CANCELLED") || !strings.Contains(out, "yes") {
		t.Error(out)
	}
	watched.errs.has(t, "at position 1")
	s.fails("claim again", "ticket", "watch", first)
	s.works("ticket", "cancel", first)
	if shown := s.works("ticket", "show", first); !strings.Contains(shown, "CANCELLED") || !strings.Contains(shown, "claim again") {
		t.Error(shown)
	}

	serve()
	if code := wait.Receive(t, watched.code, "the watcher ends"); code != 0 {
		t.Fatal(code, watched.errs.String())
	}
	runner := strings.TrimSpace(watched.out.String())
	if shown := s.works("ticket", "show", second.Id); !strings.Contains(shown, runner) || !strings.Contains(shown, "CLAIMED") {
		t.Errorf("%s isn't the runner of %s", runner, shown)
	}
	s.fails("rockpool runner release "+runner, "ticket", "cancel", second.Id)
	s.works("runner", "release", runner)
	s.fails("is gone: claim again", "ticket", "watch", second.Id)
	s.fails("TICKET_NOT_FOUND", "ticket", "show", "nobody's")
	s.fails("TICKET_NOT_FOUND", "ticket", "cancel", "nobody's")
	s.fails("TICKET_NOT_FOUND", "ticket", "watch", "nobody's")
}

func TestTicketsGetIdleRunnersImmediately(t *testing.T) {
	s := newServer(t)
	s.works("env", "put", "a", "--pool-size", "1")
	ticket := strings.TrimSpace(s.works("runner", "claim", "a", "--ticket"))
	if runner, errs, code := s.command("ticket", "watch", ticket); code != 0 || strings.Count(runner, "\n") != 1 || !strings.Contains(s.works("runner", "list", "--state", "CLAIMED"), strings.TrimSpace(runner)) {
		t.Errorf("%d %s %s", code, runner, errs)
	}
}

// TestWatchedTicketsAsJSON prints a line per change. An interrupted watch says what happens to the ticket.
func TestWatchedTicketsAsJSON(t *testing.T) {
	s, serve := waiting(t)
	ticket := strings.TrimSpace(s.works("runner", "claim", "a", "--ticket"))
	watched := s.start("ticket", "watch", ticket, "--json")
	watched.out.has(t, "\n")
	var got client.Ticket
	if err := json.Unmarshal([]byte(watched.out.String()), &got); err != nil || got.Id != ticket || got.Position == nil {
		t.Errorf("%v: %s", err, watched.out.String())
	}
	if code := watched.interrupts(t); code != command.CodeInterrupted || !strings.Contains(watched.errs.String(), "cancels the ticket in 30 s") {
		t.Error(code, watched.errs.String())
	}
	serve()
	out, errs, code := s.command("ticket", "watch", ticket, "--json")
	if code != 0 {
		t.Fatal(code, errs)
	}
	for line := range strings.Lines(out) {
		got = client.Ticket{}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if got.State != client.TicketStateClaimed || got.Runner == nil {
		t.Errorf("the last line is %+v", got)
	}
}

func TestEndedTicketsSayWhatToDo(t *testing.T) {
	message := "no runner of a was idle"
	for want, ticket := range map[string]client.Ticket{
		"longer --wait":             {State: client.TicketStateExpired, Message: &message},
		"FAILED: no runner":         {State: client.TicketStateFailed, Message: &message},
		"FAILED: claim again":       {State: client.TicketStateFailed},
		"is gone: claim again":      {State: client.TicketStateClaimed},
		"CANCELLED: no runner of a": {State: client.TicketStateCancelled, Message: &message},
	} {
		if got := ended(ticket).Error(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", want, got)
		}
	}
}

func TestPositions(t *testing.T) {
	for want, ticket := range map[string]client.Ticket{
		"at position 3":                  {Position: new(3)},
		"at position 3, for about 1m30s": {Position: new(3), EstimatedWaitMs: new(90_100.0)},
		"at position 1, for about 1s":    {Position: new(1), EstimatedWaitMs: new(3.0)},
	} {
		if got := position(ticket); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if got := position(client.Ticket{}); !strings.Contains(got, "quota") {
		t.Error(got)
	}
}

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
		t.Errorf("for another environment: got %s, want []", out)
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
