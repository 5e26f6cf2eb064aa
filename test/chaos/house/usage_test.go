package house

import (
	"strings"
	"testing"
)

func TestCountersAddUpOverServers(t *testing.T) {
	text := `# HELP rockpool_scheduler_nacks_total Given back.
# TYPE rockpool_scheduler_nacks_total counter
rockpool_scheduler_nacks_total 2
rockpool_task_restarts_total{why="a b"} 3
rockpool_task_restarts_total{why="c"} 4
rockpool_scheduler_queue{state="ready"} 100
`
	counters, err := readCounters(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	u := newUsage()
	u.saw(u.now(), map[string]int64{"rockpool_task_restarts_total": 1})
	u.saw(u.now(), counters) // of the same server: it isn't added
	u.next()
	u.saw(0, counters) // comes too late
	u.saw(1, map[string]int64{"rockpool_task_restarts_total": 10})
	u.addLogged(loggedCounters([]byte("no JSON\n" + `{"msg":"the scheduler has begun","nacks":50}` + "\n" + `{"msg":"the scheduler has ended","nacks":5,"refreshes":0}` + "\n")))
	sum := u.sum()
	if sum["restarts"] != 17 || sum["nacks"] != 7 || sum["refreshes"] != 0 {
		t.Errorf("%v", sum)
	}
	if _, err := readCounters(strings.NewReader("rockpool_x_total\n")); err == nil {
		t.Error("what is no metric was read")
	}
}
