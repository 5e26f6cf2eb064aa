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

// counted maps a report's names to metrics of a scheduler and its task runners. They don't judge
// what happened. They show whether the run used every part.
var counted = []struct{ name, metric string }{
	{"refreshes", "rockpool_scheduler_refreshes_total"},
	{"nacks", "rockpool_scheduler_nacks_total"},
	{"blocked", "rockpool_scheduler_blocked_total"},
	{"reblocked", "rockpool_scheduler_reblocked_total"},
	{"restarts", "rockpool_task_restarts_total"},
	{"restores", "rockpool_task_restores_total"},
}

// A usage adds up the counters of a sequence of servers. Each server's counters begin at 0. Its
// methods are safe for concurrent use.
type usage struct {
	mu      sync.Mutex       // guards the fields below
	before  map[string]int64 // of servers that have ended
	current map[string]int64 // of the current server, as last scraped
	server  int
}

// newUsage returns a usage without servers.
func newUsage() *usage { return &usage{before: map[string]int64{}, current: map[string]int64{}} }

// next begins the counters of a new server.
func (u *usage) next() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, n := range u.current {
		u.before[name] += n
	}
	u.current = map[string]int64{}
	u.server++
}

// saw records the counters of a scrape, unless that server has ended meanwhile.
func (u *usage) saw(server int, counters map[string]int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if server == u.server {
		u.current = counters
	}
}

// addLogged records the last counters of a server from its log, by the report's names: after the last
// scrape it counted more.
func (u *usage) addLogged(last map[string]int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, part := range counted {
		if n := last[part.name]; n > u.current[part.metric] {
			u.current[part.metric] = n
		}
	}
}

// loggedCounters finds the last counters of a scheduler in its server's log.
func loggedCounters(log []byte) map[string]int64 {
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

// now returns the number of the current server, for saw.
func (u *usage) now() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.server
}

// sum returns the totals.
func (u *usage) sum() map[string]int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := map[string]int64{}
	for _, part := range counted {
		all[part.name] = u.before[part.metric] + u.current[part.metric]
	}
	return all
}

// Used returns how often all servers used each of Parts.
func (h *House) Used() map[string]int64 { return h.counters.sum() }

// Scrape reads the counters ten times per second, until ctx ends.
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

// Look reads the counters once, if a server answers.
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

// readCounters reads Prometheus's text format, and sums counters that differ only in labels.
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
