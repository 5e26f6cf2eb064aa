package attack

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// Outside observes the machine around the runners. One goroutine calls it.
type Outside interface {
	// Limited reads back the limits of a runner, checks that its processes are in the limited
	// groups, and reads back the limits around all runners. After an error, a bomb must not run.
	Limited(runner string) error
	// Left returns what remains of a released runner.
	Left(runner string) []string
	// Changed returns what has changed since before the first attack.
	Changed() []string
	// Garble sends bytes to the socket of a runner's agent. It ends early if the agent closes the connection.
	Garble(ctx context.Context, runner string, bytes []byte) error
	// Received reports whether a datagram with this text arrived anywhere, or ("asked x.example")
	// whether a name was queried.
	Received(text string) bool
	// Addresses returns the addresses of a runner with network access.
	Addresses(runner string) (v4, v6 string)
}

// Bait has the targets of attacks, which their programs get as arguments.
type Bait struct {
	Secret   string // a text that no runner may see
	Path     string // the machine's file with the secret; no other file may appear next to it
	Port     string // a port on the machine's loopback that accepts connections
	Abstract string // an abstract socket of the machine that accepts connections
	Hostname string // the machine's host name
	Uptime   string // half of the machine's uptime, in seconds
	Reads    string // maximum MiB per second that a runner can read from a disk, with a margin; empty if unlimited
	Share    string // maximum CPU time of a runner's two threads, in percent of one CPU
}

// A Target is the server to attack and its surroundings.
type Target struct {
	Server  *client.Client
	Tier    runtime.Isolation
	Outside Outside
	Bait    Bait
	Images  string // the directory of the server's image files
	Image   string // image of the runners; empty for the default one
	Sparing bool   // run all attacks in one runner and empty its workspace in between, because creating runners is slow

	// For tests in which attacks must succeed: other limits of runners than the corpus expects, and
	// no limits of executions.
	Limits    map[string]any
	Unlimited bool
	Networks  map[string]any // of the environments with network access

	NoPython  string // why runners can't load Python, if they can't
	NoNetwork string // why runners get no network access, if they don't; else they have that of package world
}

// A Result is the result of an attack.
type Result struct {
	Name    string `json:"name"`
	Class   Class  `json:"class"`
	Tries   string `json:"tries"`
	Defence string `json:"defence"`
	Held    bool   `json:"held"`
	Skipped string `json:"skipped,omitempty"` // why it was skipped
	Why     string `json:"why,omitempty"`     // why it counts as not stopped
	Seen    string `json:"seen,omitempty"`    // its output, if it wasn't stopped
	Judged  bool   `json:"judged"`            // it ran to its end
	Millis  int64  `json:"ms"`
}

// A Report has the results of all attacks.
type Report struct {
	At      time.Time         `json:"at"`
	Tier    runtime.Isolation `json:"tier"`
	Tried   int               `json:"tried"`
	Held    int               `json:"held"`
	Skipped int               `json:"skipped"`
	Seconds float64           `json:"seconds"`
	Version string            `json:"version"` // of the server
	Results []Result          `json:"results"`
}

// OK reports whether all attacks that ran were stopped.
func (r Report) OK() bool { return r.Tried > 0 && r.Held == r.Tried }

// attackWithin is the time limit of an attack. A longer one counts as not stopped.
const attackWithin = time.Minute

// Run runs the attacks one after the other and calls report with each result. On an error it ends
// early; the returned Report then has the results so far. Run removes the environments that it
// creates.
func Run(ctx context.Context, target Target, rows []Attack, report func(Result)) (all Report, err error) {
	prober, err := Prober()
	if err != nil {
		return Report{}, err
	}
	c := &executor{Target: target, prober: prober}
	all = Report{At: time.Now().UTC().Truncate(time.Second), Tier: target.Tier}
	began := time.Now()
	defer func() {
		all.Seconds = time.Since(began).Seconds()
		err = errors.Join(err, c.cleanUp(context.WithoutCancel(ctx)))
	}()
	if all.Version, err = c.prepare(ctx); err != nil {
		return all, err
	}
	for _, row := range rows {
		result := c.try(ctx, row)
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		switch {
		case result.Skipped != "":
			all.Skipped++
		case result.Held:
			all.Held++
			fallthrough
		default:
			all.Tried++
		}
		all.Results = append(all.Results, result)
		report(result)
	}
	return all, nil
}

func (c *executor) try(ctx context.Context, a Attack) Result {
	result := Result{Name: a.Name, Class: a.Class, Tries: a.Tries, Defence: a.Defence}
	switch {
	case !a.In(c.Tier):
		result.Skipped = fmt.Sprintf("it applies to %v, not to %s", a.Tiers, c.Tier)
	case a.Reach != Offline && c.NoNetwork != "":
		result.Skipped = "it needs runners with network access, which is unavailable: " + c.NoNetwork
	case a.Warm && c.NoPython != "":
		result.Skipped = "it needs runners with Python loaded: " + c.NoPython
	case a.Disk && c.Bait.Reads == "":
		result.Skipped = "this machine can't limit disk reads of runners"
	}
	if result.Skipped != "" {
		return result
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, attackWithin)
	defer cancel()
	s := &attempt{executor: c, attack: a}
	err := s.run(ctx)
	// Also after an error: what the runners leave behind is part of the verdict.
	left, gone := s.cleanUp(context.WithoutCancel(ctx))
	why := c.judge(a, s)
	result.Judged = err == nil
	switch {
	case err != nil:
		why = "it couldn't run to its end: " + err.Error()
	case gone != nil:
		why = gone.Error()
	case len(left) > 0:
		why = "remains of the runner: " + strings.Join(left, ", ")
	}
	if why == "" {
		why = c.checkOutside(ctx)
	}
	result.Held = why == ""
	if !result.Held {
		result.Why, result.Seen = printable(why), printable(s.seen())
	}
	result.Millis = time.Since(began).Milliseconds()
	return result
}

// printable replaces unprintable characters, and shortens a text to its beginning and end.
func printable(text string) string {
	const most = 1 << 10 // bytes of the beginning and of the end
	if len(text) > 2*most {
		text = text[:most] + "\n[…]\n" + text[len(text)-most:]
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// judge returns why the attack counts as not stopped; "" if it was stopped.
func (c *executor) judge(a Attack, s *attempt) string {
	if why := c.succeeded(a, s.seen()); why != "" {
		return why
	}
	switch {
	case !c.pattern(a.heldIn(c.Tier)).MatchString(s.seen()):
		return "the output isn't that of a stopped attack"
	case a.Distinct && s.alike:
		return "it succeeded: the same was seen twice"
	}
	return ""
}

// succeeded returns how the output shows that the attack succeeded; "" if it doesn't.
func (c *executor) succeeded(a Attack, seen string) string {
	switch {
	case strings.Contains(seen, c.Bait.Secret):
		return "a secret of the machine was seen"
	case a.Never != "" && c.pattern(a.Never).MatchString(seen):
		return "it succeeded"
	}
	return ""
}

// pattern compiles a pattern of the corpus. It panics if the pattern is invalid, which a test of
// the corpus excludes.
func (c *executor) pattern(text string) *regexp.Regexp {
	return regexp.MustCompile("(?m)" + c.fill(text, regexp.QuoteMeta))
}

func (c *executor) fill(text string, quote func(string) string) string {
	return strings.NewReplacer(
		"{secret}", quote(c.Bait.Path), "{port}", quote(c.Bait.Port), "{abstract}", quote(c.Bait.Abstract),
		"{hostname}", quote(c.Bait.Hostname), "{uptime}", quote(c.Bait.Uptime), "{share}", quote(c.Bait.Share), "{reads}", quote(c.Bait.Reads),
	).Replace(text)
}

// checkOutside returns what an attack changed outside of its runner, if anything.
func (c *executor) checkOutside(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if changed := c.Outside.Changed(); len(changed) > 0 {
		return "outside the runner: " + strings.Join(changed, ", ")
	}
	if seen, err := c.execute(ctx, c.neighbour, shell("echo undisturbed")); err != nil || !strings.HasPrefix(seen, "undisturbed\n=> EXITED 0") {
		return fmt.Sprintf("a neighbour doesn't work: %q, %v", seen, err)
	}
	return ""
}
