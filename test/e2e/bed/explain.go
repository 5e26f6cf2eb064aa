package bed

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rockpool/rockpool/test/artifacts"
	"github.com/rockpool/rockpool/test/wait"
)

// A KeptLog holds a server's log. When it has more than mostKept bytes, it drops the older half.
type KeptLog struct {
	mu        sync.Mutex // guards the fields below
	text      []byte
	forgotten int // bytes dropped before text
}

const mostKept = 8 << 20

// Write implements io.Writer.
func (l *KeptLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, text...)
	if over := len(l.text) - mostKept; over > 0 {
		drop := len(l.text) / 2
		l.text = append([]byte(nil), l.text[drop:]...)
		l.forgotten += drop
	}
	return len(text), nil
}

// String returns the bytes that it still has.
func (l *KeptLog) String() string { return l.since(0) }

// size returns how many bytes were written in all.
func (l *KeptLog) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forgotten + len(l.text)
}

// since returns what was written after the first begin bytes.
func (l *KeptLog) since(begin int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text[min(max(begin-l.forgotten, 0), len(l.text)):])
}

// Logger returns a logger for a server in this process that writes to l.
func (l *KeptLog) Logger() *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(config), zapcore.AddSync(l), zap.InfoLevel))
}

// An explanation collects facts for the message of a failed test: the logs of its servers since the
// test began, and the task events of its runners.
type explanation struct {
	mu      sync.Mutex // guards the fields below
	servers []explainedServer
	runners []string            // that the test claimed
	events  map[string][]string // by runner
}

// An explainedServer server had logged begin bytes when the test began.
type explainedServer struct {
	log   *KeptLog
	begin int
}

// explanations has those of the running tests, by name.
var explanations sync.Map

// Explain makes a failed test print, after its other cleanups, the server's log since now, the task
// events of its runners and the machine's load.
func Explain(t testing.TB, log *KeptLog) {
	t.Helper()
	fresh := &explanation{events: map[string][]string{}}
	found, old := explanations.LoadOrStore(t.Name(), fresh)
	x := found.(*explanation)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.ContainsFunc(x.servers, func(s explainedServer) bool { return s.log == log }) {
		x.servers = append(x.servers, explainedServer{log, log.size()})
	}
	if !old {
		t.Cleanup(func() {
			explanations.Delete(t.Name())
			if t.Failed() {
				x.print(t)
			}
		})
	}
}

// explanationOf returns the explanation of a test, or of the test that it is a part of.
func explanationOf(t testing.TB) (*explanation, bool) {
	for name := t.Name(); ; {
		if x, ok := explanations.Load(name); ok {
			return x.(*explanation), true
		}
		at := strings.LastIndexByte(name, '/')
		if at < 0 {
			return nil, false
		}
		name = name[:at]
	}
}

// claimed records a runner that a test claimed.
func claimed(t testing.TB, runner string) {
	if x, ok := explanationOf(t); ok {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.runners = append(x.runners, runner)
	}
}

// CollectEvents requests the events of a failed test's runners from a server that still answers. The
// test claimed these runners, or the logs name them.
func (b Bed) CollectEvents(t testing.TB) {
	x, ok := explanationOf(t)
	if !ok || !t.Failed() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	// A server that doesn't answer must not hold up the explanation.
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	for _, runner := range x.named() {
		var out struct {
			Cluster struct {
				TaskEvents []struct {
					At            time.Time
					Kind, Message string
				}
			}
		}
		err := b.Do(ctx, `query($id: ID!) { cluster { taskEvents(runnerId: $id) { at kind message } } }`, object{"id": runner}, &out)
		var events []string
		for _, e := range out.Cluster.TaskEvents {
			events = append(events, fmt.Sprintf("%s %s %s", e.At.Format(time.RFC3339Nano), e.Kind, e.Message))
		}
		if err != nil {
			events = append(events, fmt.Sprint("not asked for: ", err))
		}
		if len(events) > 0 && (err == nil || x.events[runner] == nil) {
			x.events[runner] = events
		}
	}
}

// namedRunner matches a runner in a log: {"runner": "…"} or "runner …".
var namedRunner = regexp.MustCompile(`\brunner"?:? "?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})`)

// named returns the runners that the test claimed, and the last ones in the logs. x.mu is held.
func (x *explanation) named() []string {
	const most = 20
	all := slices.Clone(x.runners)
	for _, s := range x.servers {
		for _, match := range namedRunner.FindAllStringSubmatch(s.log.since(s.begin), -1) {
			if !slices.Contains(all, match[1]) {
				all = append(all, match[1])
			}
		}
	}
	return all[max(0, len(all)-most):]
}

// print prints the explanation with the last lines of each log, and keeps the whole among the
// artifacts.
func (x *explanation) print(t testing.TB) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	const shown = 40 // lines of a log
	var whole, short bytes.Buffer
	both := func(format string, args ...any) {
		fmt.Fprintf(&whole, format, args...)
		fmt.Fprintf(&short, format, args...)
	}
	for i, s := range x.servers {
		// The log of a shared server also has lines of parallel tests.
		text := strings.TrimSpace(s.log.since(s.begin))
		fmt.Fprintf(&whole, "log of server %d of %d, since the test began:\n%s\n", i+1, len(x.servers), text)
		if i < len(x.servers)-2 {
			continue // of many servers the last two are the most useful
		}
		lines := strings.Split(text, "\n")
		fmt.Fprintf(&short, "log of server %d of %d, since the test began (the last of %d lines):\n%s\n", i+1, len(x.servers), len(lines),
			strings.Join(lines[max(0, len(lines)-shown):], "\n"))
	}
	for _, runner := range slices.Sorted(maps.Keys(x.events)) {
		both("task events of runner %s:\n  %s\n", runner, strings.Join(x.events[runner], "\n  "))
	}
	both("%s\n", wait.Load())
	if path := artifacts.Keep(t, "explanation.txt", whole.Bytes()); path != "" {
		fmt.Fprintf(&short, "all of it is kept in %s\n", path)
	}
	t.Logf("the failure's circumstances:\n%s", short.String())
}
