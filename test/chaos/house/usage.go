package house

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Parts returns the parts of a scheduler and its task runners whose use is counted.
func Parts() []string {
	names := make([]string, len(counted))
	for i, part := range counted {
		names[i] = part.name
	}
	return names
}

// counted are what a scheduler and its task runners count of themselves, by how
// the report calls it. They are no judgement of what happened: they say
// whether the run came by every part of them.
var counted = []struct{ name, metric string }{
	{"refreshes", "rockpool_scheduler_refreshes_total"},
	{"nacks", "rockpool_scheduler_nacks_total"},
	{"blocked", "rockpool_scheduler_blocked_total"},
	{"reblocked", "rockpool_scheduler_reblocked_total"},
	{"resubmitted", "rockpool_scheduler_resubmitted_total"},
	{"restarts", "rockpool_task_restarts_total"},
	{"restores", "rockpool_task_restores_total"},
}

// A usage adds up the counters of one server after the other, each of which
// begins at 0. Its methods may be called at once.
type usage struct {
	mu      sync.Mutex       // guards what follows
	before  map[string]int64 // of servers that have ended
	current map[string]int64 // of the one that runs, as it said last
	server  int
}

func newUsage() *usage { return &usage{before: map[string]int64{}, current: map[string]int64{}} }

// next begins a server.
func (u *usage) next() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, n := range u.current {
		u.before[name] += n
	}
	u.current = map[string]int64{}
	u.server++
}

// saw takes what a server said, unless it has ended meanwhile.
func (u *usage) saw(server int, counters map[string]int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if server == u.server {
		u.current = counters
	}
}

// told takes what a server logged at its end, by the names of the report: what
// it gave back then could not be asked for any more.
func (u *usage) told(last map[string]int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, part := range counted {
		if n := last[part.name]; n > u.current[part.metric] {
			u.current[part.metric] = n
		}
	}
}

// lastTold finds, in what a server logged, what its scheduler counted.
func lastTold(log []byte) map[string]int64 {
	all := map[string]int64{}
	for line := range bytes.Lines(log) {
		var entry struct{ Msg string }
		if json.Unmarshal(line, &entry) != nil || entry.Msg != "the scheduler has ended" {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil {
			for name, value := range fields {
				if n, ok := value.(float64); ok {
					all[name] = int64(n)
				}
			}
		}
	}
	return all
}

func (u *usage) now() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.server
}

// sum returns all that was counted.
func (u *usage) sum() map[string]int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := map[string]int64{}
	for _, part := range counted {
		all[part.name] = u.before[part.metric] + u.current[part.metric]
	}
	return all
}

// Used returns how often each of Parts was used, by all servers.
func (h *House) Used() map[string]int64 { return h.counters.sum() }

// Scrape asks for the counters, ten times in a second, until ctx ends.
func (h *House) Scrape(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		h.Look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Look asks for the counters once, if somebody answers.
func (h *House) Look(ctx context.Context) {
	if !h.up.Load() {
		return
	}
	server := h.counters.now()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/metrics", nil)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(get)
	if err != nil {
		return // it is being killed
	}
	defer response.Body.Close()
	if counters, err := readCounters(response.Body); err == nil && response.StatusCode == http.StatusOK {
		h.counters.saw(server, counters)
	}
}

// readCounters reads Prometheus's text format, and adds up what differs in
// its labels only.
func readCounters(from io.Reader) (map[string]int64, error) {
	counters := map[string]int64{}
	for lines := bufio.NewScanner(from); ; {
		if !lines.Scan() {
			return counters, lines.Err()
		}
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("no metric: %q", line)
		}
		name, _, _ := strings.Cut(line[:at], "{")
		if !strings.HasSuffix(name, "_total") {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("no metric: %q", line)
		}
		counters[name] += int64(value)
	}
}
