package ledger

import (
	"testing"
	"testing/synctest"
	"time"
)

// wants fails the test unless exactly these figures of MustBeNone are above 0.
func wants(t *testing.T, l *Ledger, figures ...string) {
	t.Helper()
	counts, wrongs := l.Figures()
	wanted := map[string]bool{}
	for _, name := range figures {
		wanted[name] = true
	}
	for _, name := range MustBeNone {
		if (counts[name] > 0) != wanted[name] {
			t.Errorf("%s: %d; %+v", name, counts[name], wrongs)
		}
	}
}

func TestClaimsAreJudged(t *testing.T) {
	for name, test := range map[string]struct {
		do    func(l *Ledger)
		wrong []string
	}{
		"one runner for each claim":     {func(l *Ledger) { l.Claimed("k1", "r1"); l.Claimed("k2", "r2") }, nil},
		"repeated key, same runner":     {func(l *Ledger) { l.Claimed("k1", "r1"); l.Claimed("k1", "r1") }, nil},
		"one runner for two claims":     {func(l *Ledger) { l.Claimed("k1", "r1"); l.Claimed("k2", "r1") }, []string{DoubleClaims}},
		"released runner claimed again": {func(l *Ledger) { l.Claimed("k1", "r1"); l.Release("r1"); l.Claimed("k2", "r1") }, []string{DoubleClaims}},
		"repeated key, another runner":  {func(l *Ledger) { l.Claimed("k1", "r1"); l.Claimed("k1", "r2") }, []string{DoubleClaims}},
		"gone without a reason":         {func(l *Ledger) { l.Claimed("k1", "r1"); l.Gone("r1") }, []string{LostClaims}},
		"gone after harm":               {func(l *Ledger) { l.Claimed("k1", "r1"); l.Harm("r1"); l.Gone("r1") }, nil},
		"gone after a release":          {func(l *Ledger) { l.Claimed("k1", "r1"); l.Release("r1"); l.Gone("r1") }, nil},
		"gone after harm to another":    {func(l *Ledger) { l.Claimed("k1", "r1"); l.Harm("r2"); l.Gone("r1") }, []string{LostClaims}},
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			test.do(l)
			wants(t, l, test.wrong...)
		})
	}
}

func TestOutcomesAreJudged(t *testing.T) {
	exited := func(code int) Outcome { return Outcome{Outcome: "EXITED", ExitCode: &code} }
	signaled := func(name string) Outcome { return Outcome{Outcome: "SIGNALED", Signal: &name} }
	other := func(name string) Outcome { return Outcome{Outcome: name} }
	gone := Outcome{Outcome: "RUNNER_GONE", GoneReason: new("AGENT_DIED")}
	short := Program{Key: "p", blocks: 2, each: 1, pause: time.Second, code: 7}
	with := func(ends Ending) Program {
		p := short
		if p.Ends = ends; ends > endsBySignal {
			p.blocks = endless
		}
		return p
	}
	for name, test := range map[string]struct {
		program   Program
		after     time.Duration
		meanwhile func(l *Ledger, r *Run)
		told      Outcome
		wrong     string
	}{
		"its exit code":             {short, 2 * time.Second, nil, exited(7), ""},
		"a made-up success":         {short, 2 * time.Second, nil, exited(0), MadeUp},
		"its exit code, too early":  {short, time.Second, nil, exited(7), MadeUp},
		"no exit code":              {short, 2 * time.Second, nil, other("EXITED"), MadeUp},
		"ran twice":                 {short, 2 * time.Second, nil, exited(alreadyRan), startedTwice},
		"a signal that it has sent": {with(endsBySignal), 2 * time.Second, nil, signaled("SIGKILL"), ""},
		"another signal":            {with(endsBySignal), 2 * time.Second, nil, signaled("SIGTERM"), MadeUp},
		"a signal that nobody sent": {short, 2 * time.Second, nil, signaled("SIGKILL"), MadeUp},
		"an exit of an endless one": {with(EndsByCancel), time.Hour, nil, exited(7), MadeUp},
		"its time limit":            {with(endsByLimit), 2 * time.Second, nil, other("TIME_LIMIT"), ""},
		"its time limit, too early": {with(endsByLimit), time.Second, nil, other("TIME_LIMIT"), MadeUp},
		"a time limit without one":  {short, time.Minute, nil, other("TIME_LIMIT"), MadeUp},
		"cancelled":                 {with(EndsByCancel), 0, func(l *Ledger, r *Run) { l.Cancel(r) }, other("CANCELLED"), ""},
		"cancelled by nobody":       {short, 0, nil, other("CANCELLED"), MadeUp},
		"released":                  {with(EndsByLeave), 0, func(l *Ledger, _ *Run) { l.Release("r") }, gone, ""},
		"killed":                    {short, 0, func(l *Ledger, _ *Run) { l.Harm("r") }, gone, ""},
		"killed, without a reason":  {short, 0, func(l *Ledger, _ *Run) { l.Harm("r") }, other("RUNNER_GONE"), MadeUp},
		"gone, for no reason":       {short, 0, nil, gone, MadeUp},
		"lost with its agent":       {short, 0, func(l *Ledger, _ *Run) { l.Harm("r") }, other("LOST"), ""},
		"lost, for no reason":       {short, 0, func(l *Ledger, _ *Run) { l.Release("r") }, other("LOST"), MadeUp},
		"failed":                    {short, 0, func(l *Ledger, _ *Run) { l.Harm("r") }, other("FAILED"), MadeUp},
		"out of memory":             {short, 2 * time.Second, nil, other("MEMORY_LIMIT"), MadeUp},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New()
				r := l.Begin(test.program, "r")
				if test.meanwhile != nil {
					test.meanwhile(l, r)
				}
				<-time.After(test.after)
				l.Ended(r, test.told)
				if test.wrong == "" {
					wants(t, l)
				} else {
					wants(t, l, test.wrong)
				}
			})
		})
	}
}

func TestOutcomesStayTheSame(t *testing.T) {
	code := 7
	told := Outcome{Outcome: "EXITED", ExitCode: &code, OutputBytes: 160, FinishedAt: time.Unix(1, 0)}
	for name, change := range map[string]func(*Outcome){
		"":                 func(*Outcome) {},
		"another outcome":  func(o *Outcome) { o.Outcome, o.ExitCode = "LOST", nil },
		"another code":     func(o *Outcome) { zero := 0; o.ExitCode = &zero },
		"fewer bytes":      func(o *Outcome) { o.OutputBytes-- },
		"at another time":  func(o *Outcome) { o.FinishedAt = time.Unix(2, 0) },
		"a signal as well": func(o *Outcome) { s := "SIGKILL"; o.Signal = &s },
	} {
		l := New()
		r := l.Begin(ten, "r")
		l.Ended(r, told)
		again := told
		change(&again)
		l.Ended(r, again)
		if name == "" {
			wants(t, l)
		} else {
			wants(t, l, ChangedOutcomes)
		}
	}
}

func TestBytesAreJudged(t *testing.T) {
	const all = 10 * recordBytes
	code := 7
	for name, test := range map[string]struct {
		outcome string
		text    string
		lost    int64 // reported as lost
		before  func(l *Ledger)
		wrong   []string
	}{
		"all of it":                       {"EXITED", printed(0, all), 0, nil, nil},
		"a byte is dropped":               {"EXITED", printed(0, 80) + printed(81, all), 0, nil, []string{bytesSilent}},
		"a byte is doubled":               {"EXITED", printed(0, 80) + printed(79, all), 0, nil, []string{bytesRepeated}},
		"a byte is another":               {"EXITED", printed(0, 80) + "x" + printed(81, all), 0, nil, []string{bytesForeign}},
		"lost aloud, for no reason":       {"EXITED", printed(0, 80), 80, nil, []string{bytesCauseless}},
		"lost aloud, as the disk is full": {"EXITED", printed(0, 80), 80, (*Ledger).FillDisk, nil},
		"lost aloud, as its agent died":   {"RUNNER_GONE", printed(0, 80), 80, func(l *Ledger) { l.Harm("r") }, nil},
		"lost aloud, yet there":           {"EXITED", printed(0, all), 80, (*Ledger).FillDisk, []string{bytesCauseless}},
		"cut with its runner":             {"RUNNER_GONE", printed(0, 85), 0, func(l *Ledger) { l.Harm("r") }, nil},
		"a hole before it was cut":        {"RUNNER_GONE", printed(0, 16) + printed(48, 80), 0, func(l *Ledger) { l.Harm("r") }, []string{bytesSilent}},
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			if test.before != nil {
				test.before(l)
			}
			r := l.Begin(ten, "r")
			o := Outcome{Outcome: test.outcome}
			switch o.Outcome {
			case "EXITED":
				o.ExitCode = &code
			case "RUNNER_GONE":
				o.GoneReason = new("AGENT_DIED")
			}
			l.Ended(r, o)
			var found Reading
			found.declared = test.lost
			found.Take(stdout, []byte(test.text))
			l.Judge(r, found, "a test")
			wants(t, l, test.wrong...)
		})
	}
}

// TestReadersGetTheSameAmount: if an outcome doesn't say how much was printed, each reader's output
// is compared with the first reader's.
func TestReadersGetTheSameAmount(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		declared int64
		wrong    []string
	}{
		"same output":                 {printed(0, 80), 0, nil},
		"missing end":                 {printed(0, 79), 0, []string{bytesSilent}},
		"no output":                   {"", 0, []string{bytesSilent}},
		"declared loss of the end":    {printed(0, 48), 32, nil},
		"declared loss in the middle": {printed(0, 16) + printed(48, 80), 32, nil},
		"more output":                 {printed(0, 96), 0, []string{bytesSilent}}, // the first reader got no report about them
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			l.Harm("r")
			r := l.Begin(Program{Key: "p", blocks: endless, each: 1, Ends: EndsByCancel}, "r")
			l.Ended(r, Outcome{Outcome: "RUNNER_GONE", GoneReason: new("AGENT_DIED")})
			var first, second Reading
			first.Take(stdout, []byte(printed(0, 80)))
			l.Judge(r, first, "a watcher")
			second.declared = test.declared
			second.Take(stdout, []byte(test.text))
			l.Judge(r, second, "pages")
			wants(t, l, test.wrong...)
		})
	}
}

func TestStartsAreJudged(t *testing.T) {
	l := New()
	r := l.Begin(ten, "r")
	l.Started(r, "x1")
	l.Started(r, "x1")
	wants(t, l)
	l.Started(r, "x2")
	wants(t, l, startedTwice)
}

func TestFullDiskExcusesForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		if l.WasFull(time.Now()) {
			t.Error("it never was full")
		}
		began := time.Now()
		<-time.After(time.Second)
		l.FillDisk()
		<-time.After(time.Second)
		if !l.WasFull(time.Now()) {
			t.Error("it is full")
		}
		l.FreeDisk()
		if !l.WasFull(began) {
			t.Error("it was full meanwhile")
		}
		<-time.After(diskGrace + time.Second)
		if l.WasFull(time.Now()) {
			t.Error("it isn't full any more")
		}
	})
}

// TestDrainsExcuseOnlyRunnersOfTheirTime: a drain excuses the loss of runners that were claimed
// before its end, but not of those claimed well after it.
func TestDrainsExcuseOnlyRunnersOfTheirTime(t *testing.T) {
	for name, test := range map[string]struct {
		before, during, after time.Duration // the claim's time: before the drain, since its end
		wrong                 []string
	}{
		"claimed before it":     {before: time.Second},
		"claimed during it":     {during: time.Second},
		"claimed right after":   {after: drainGrace - time.Second},
		"claimed well after it": {after: drainGrace + time.Second, wrong: []string{LostClaims}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New()
				claim := func(now time.Duration) {
					if now > 0 {
						l.Claimed("k", "r")
						time.Sleep(now)
					}
				}
				claim(test.before)
				over := l.Drain()
				claim(test.during)
				over()
				if test.after > 0 {
					time.Sleep(test.after)
					claim(test.after)
				}
				time.Sleep(time.Minute)
				l.Gone("r")
				wants(t, l, test.wrong...)
				if held := l.Held(); (len(held) == 0) != (test.wrong == nil) {
					t.Errorf("to be harmed: %v", held)
				}
			})
		})
	}
	l := New()
	l.Drain()
	l.Gone("r") // no holder knew it
	wants(t, l, LostClaims)
}
