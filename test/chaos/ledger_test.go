package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// wants fails the test unless just these figures of what must not happen are
// above 0.
func wants(t *testing.T, l *ledger, figures ...string) {
	t.Helper()
	counts, wrongs := l.figures()
	wanted := map[string]bool{}
	for _, name := range figures {
		wanted[name] = true
	}
	for _, name := range mustBeNone {
		if (counts[name] > 0) != wanted[name] {
			t.Errorf("%s: %d; %+v", name, counts[name], wrongs)
		}
	}
}

func TestClaimsAreJudged(t *testing.T) {
	for name, test := range map[string]struct {
		do    func(l *ledger)
		wrong []string
	}{
		"one each":                 {func(l *ledger) { l.claimed("k1", "r1"); l.claimed("k2", "r2") }, nil},
		"a key that is repeated":   {func(l *ledger) { l.claimed("k1", "r1"); l.claimed("k1", "r1") }, nil},
		"two holders of one":       {func(l *ledger) { l.claimed("k1", "r1"); l.claimed("k2", "r1") }, []string{doubleClaims}},
		"one after the other":      {func(l *ledger) { l.claimed("k1", "r1"); l.release("r1"); l.claimed("k2", "r1") }, []string{doubleClaims}},
		"another for the same key": {func(l *ledger) { l.claimed("k1", "r1"); l.claimed("k1", "r2") }, []string{doubleClaims}},
		"gone by itself":           {func(l *ledger) { l.claimed("k1", "r1"); l.gone("r1") }, []string{lostClaims}},
		"gone by our hand":         {func(l *ledger) { l.claimed("k1", "r1"); l.harm("r1"); l.gone("r1") }, nil},
		"gone as it was let go":    {func(l *ledger) { l.claimed("k1", "r1"); l.release("r1"); l.gone("r1") }, nil},
		"another one was harmed":   {func(l *ledger) { l.claimed("k1", "r1"); l.harm("r2"); l.gone("r1") }, []string{lostClaims}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			test.do(l)
			wants(t, l, test.wrong...)
		})
	}
}

func TestOutcomesAreJudged(t *testing.T) {
	exited := func(code int) outcome { return outcome{Outcome: "EXITED", ExitCode: &code} }
	signaled := func(name string) outcome { return outcome{Outcome: "SIGNALED", Signal: &name} }
	other := func(name string) outcome { return outcome{Outcome: name} }
	gone := outcome{Outcome: "RUNNER_GONE", GoneReason: new("AGENT_DIED")}
	short := program{key: "p", blocks: 2, each: 1, pause: time.Second, code: 7}
	with := func(ends ending) program {
		p := short
		if p.ends = ends; ends > endsBySignal {
			p.blocks = endless
		}
		return p
	}
	for name, test := range map[string]struct {
		program   program
		after     time.Duration
		meanwhile func(l *ledger, r *run)
		told      outcome
		wrong     string
	}{
		"its own code":              {short, 2 * time.Second, nil, exited(7), ""},
		"a made-up success":         {short, 2 * time.Second, nil, exited(0), madeUp},
		"too early":                 {short, time.Second, nil, exited(7), madeUp},
		"no code at all":            {short, 2 * time.Second, nil, other("EXITED"), madeUp},
		"it ran twice":              {short, 2 * time.Second, nil, exited(alreadyRan), startedTwice},
		"a signal that it has sent": {with(endsBySignal), 2 * time.Second, nil, signaled("SIGKILL"), ""},
		"another signal":            {with(endsBySignal), 2 * time.Second, nil, signaled("SIGTERM"), madeUp},
		"a signal of nobody's":      {short, 2 * time.Second, nil, signaled("SIGKILL"), madeUp},
		"an exit of an endless one": {with(endsByCancel), time.Hour, nil, exited(7), madeUp},
		"its limit":                 {with(endsByLimit), 2 * time.Second, nil, other("TIME_LIMIT"), ""},
		"its limit, too early":      {with(endsByLimit), time.Second, nil, other("TIME_LIMIT"), madeUp},
		"a limit that it hasn't":    {short, time.Minute, nil, other("TIME_LIMIT"), madeUp},
		"cancelled":                 {with(endsByCancel), 0, func(l *ledger, r *run) { l.cancel(r) }, other("CANCELLED"), ""},
		"cancelled by nobody":       {short, 0, nil, other("CANCELLED"), madeUp},
		"released":                  {with(endsByLeave), 0, func(l *ledger, _ *run) { l.release("r") }, gone, ""},
		"killed":                    {short, 0, func(l *ledger, _ *run) { l.harm("r") }, gone, ""},
		"killed, without a reason":  {short, 0, func(l *ledger, _ *run) { l.harm("r") }, other("RUNNER_GONE"), madeUp},
		"gone, for no reason":       {short, 0, nil, gone, madeUp},
		"lost with its agent":       {short, 0, func(l *ledger, _ *run) { l.harm("r") }, other("LOST"), ""},
		"lost, for no reason":       {short, 0, func(l *ledger, _ *run) { l.release("r") }, other("LOST"), madeUp},
		"failed":                    {short, 0, func(l *ledger, _ *run) { l.harm("r") }, other("FAILED"), madeUp},
		"out of memory":             {short, 2 * time.Second, nil, other("MEMORY_LIMIT"), madeUp},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger()
				r := l.begin(test.program, "r")
				if test.meanwhile != nil {
					test.meanwhile(l, r)
				}
				<-time.After(test.after)
				l.ended(r, test.told)
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
	told := outcome{Outcome: "EXITED", ExitCode: &code, OutputBytes: 160, FinishedAt: time.Unix(1, 0)}
	for name, change := range map[string]func(*outcome){
		"":                 func(*outcome) {},
		"another outcome":  func(o *outcome) { o.Outcome, o.ExitCode = "LOST", nil },
		"another code":     func(o *outcome) { zero := 0; o.ExitCode = &zero },
		"fewer bytes":      func(o *outcome) { o.OutputBytes-- },
		"at another time":  func(o *outcome) { o.FinishedAt = time.Unix(2, 0) },
		"a signal as well": func(o *outcome) { s := "SIGKILL"; o.Signal = &s },
	} {
		l := newLedger()
		r := l.begin(ten, "r")
		l.ended(r, told)
		again := told
		change(&again)
		l.ended(r, again)
		if name == "" {
			wants(t, l)
		} else {
			wants(t, l, changedOutcomes)
		}
	}
}

func TestBytesAreJudged(t *testing.T) {
	const all = 10 * recordBytes
	code := 7
	for name, test := range map[string]struct {
		outcome string
		text    string
		lost    int64 // said to be
		before  func(l *ledger)
		wrong   []string
	}{
		"all of it":                       {"EXITED", printed(0, all), 0, nil, nil},
		"a byte is dropped":               {"EXITED", printed(0, 80) + printed(81, all), 0, nil, []string{bytesSilent}},
		"a byte is doubled":               {"EXITED", printed(0, 80) + printed(79, all), 0, nil, []string{bytesRepeated}},
		"a byte is another":               {"EXITED", printed(0, 80) + "x" + printed(81, all), 0, nil, []string{bytesForeign}},
		"lost aloud, for no reason":       {"EXITED", printed(0, 80), 80, nil, []string{bytesCauseless}},
		"lost aloud, as the disk is full": {"EXITED", printed(0, 80), 80, (*ledger).fillDisk, nil},
		"lost aloud, as its agent died":   {"RUNNER_GONE", printed(0, 80), 80, func(l *ledger) { l.harm("r") }, nil},
		"lost aloud, yet there":           {"EXITED", printed(0, all), 80, (*ledger).fillDisk, []string{bytesCauseless}},
		"cut with its runner":             {"RUNNER_GONE", printed(0, 85), 0, func(l *ledger) { l.harm("r") }, nil},
		"a hole before it was cut":        {"RUNNER_GONE", printed(0, 16) + printed(48, 80), 0, func(l *ledger) { l.harm("r") }, []string{bytesSilent}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			if test.before != nil {
				test.before(l)
			}
			r := l.begin(ten, "r")
			o := outcome{Outcome: test.outcome}
			switch o.Outcome {
			case "EXITED":
				o.ExitCode = &code
			case "RUNNER_GONE":
				o.GoneReason = new("AGENT_DIED")
			}
			l.ended(r, o)
			var found reading
			found.declared = test.lost
			found.take(stdout, []byte(test.text))
			l.judge(r, found, "a test")
			wants(t, l, test.wrong...)
		})
	}
}

// TestReadersGetAsMuch: where an outcome doesn't tell how much was printed, each
// reader's output is held against that of the first.
func TestReadersGetAsMuch(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		declared int64
		wrong    []string
	}{
		"the same":                     {printed(0, 80), 0, nil},
		"its end is missing":           {printed(0, 79), 0, []string{bytesSilent}},
		"nothing came":                 {"", 0, []string{bytesSilent}},
		"its end was lost, as is said": {printed(0, 48), 32, nil},
		"some of it, as is said":       {printed(0, 16) + printed(48, 80), 32, nil},
		"more came":                    {printed(0, 96), 0, []string{bytesSilent}}, // that the first was not told
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			l.harm("r")
			r := l.begin(program{key: "p", blocks: endless, each: 1, ends: endsByCancel}, "r")
			l.ended(r, outcome{Outcome: "RUNNER_GONE", GoneReason: new("AGENT_DIED")})
			var first, second reading
			first.take(stdout, []byte(printed(0, 80)))
			l.judge(r, first, "a watcher")
			second.declared = test.declared
			second.take(stdout, []byte(test.text))
			l.judge(r, second, "pages")
			wants(t, l, test.wrong...)
		})
	}
}

func TestStartsAreJudged(t *testing.T) {
	l := newLedger()
	r := l.begin(ten, "r")
	l.started(r, "x1")
	l.started(r, "x1")
	wants(t, l)
	l.started(r, "x2")
	wants(t, l, startedTwice)
}

func TestFullDiskExcusesForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		if l.wasFull(time.Now()) {
			t.Error("it never was full")
		}
		began := time.Now()
		<-time.After(time.Second)
		l.fillDisk()
		<-time.After(time.Second)
		if !l.wasFull(time.Now()) {
			t.Error("it is full")
		}
		l.freeDisk()
		if !l.wasFull(began) {
			t.Error("it was full meanwhile")
		}
		<-time.After(diskGrace + time.Second)
		if l.wasFull(time.Now()) {
			t.Error("it isn't full any more")
		}
	})
}

// TestDrainsExcuseWhatTheyHit: whoever had a runner before the end of a drain, and
// nobody who gets one well after it.
func TestDrainsExcuseWhatTheyHit(t *testing.T) {
	for name, test := range map[string]struct {
		before, during, after time.Duration // the claim's time: before the drain, since its end
		wrong                 []string
	}{
		"claimed before it":     {before: time.Second},
		"claimed during it":     {during: time.Second},
		"claimed right after":   {after: drainGrace - time.Second},
		"claimed well after it": {after: drainGrace + time.Second, wrong: []string{lostClaims}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger()
				claim := func(now time.Duration) {
					if now > 0 {
						l.claimed("k", "r")
						time.Sleep(now)
					}
				}
				claim(test.before)
				over := l.drain()
				claim(test.during)
				over()
				if test.after > 0 {
					time.Sleep(test.after)
					claim(test.after)
				}
				time.Sleep(time.Minute)
				l.gone("r")
				wants(t, l, test.wrong...)
				if held := l.held(); (len(held) == 0) != (test.wrong == nil) {
					t.Errorf("to be harmed: %v", held)
				}
			})
		})
	}
	l := newLedger()
	l.drain()
	l.gone("r") // that nobody was told of
	wants(t, l, lostClaims)
}
