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

// Outside is who sees the machine around the runners. It is asked by one
// goroutine.
type Outside interface {
	// Limited reads back the limits of a runner, that it is in them, and those
	// of a group around all runners. Who calls it before a bomb doesn't throw the
	// bomb after an error.
	Limited(runner string) error
	// Left returns what of a runner that was released is still there.
	Left(runner string) []string
	// Changed returns what isn't as it was before the first attack.
	Changed() []string
	// Garble sends bytes to the socket of a runner's agent, until it has had
	// enough of them.
	Garble(ctx context.Context, runner string, bytes []byte) error
	// Came reports whether a datagram of this text came to anybody, or a name
	// ("asked x.example") was asked for.
	Came(text string) bool
	// Addresses returns those of a runner with a network.
	Addresses(runner string) (v4, v6 string)
}

// Bait is what attackers look for, and what their programs are told of it.
type Bait struct {
	Secret   string // a text that no runner may ever see
	Path     string // of the machine's file that holds it; beside it nothing may appear
	Port     string // of the machine's loopback, which answers
	Abstract string // a socket of the machine's without a file, which answers
	Hostname string // the machine's
	Uptime   string // half of the seconds that the machine runs
	Reads    string // the most MiB that it can read from a disk in a second, with some to spare; "": any number
	Share    string // the most that a runner's two threads can have of one processor, in percent
}

// A Place is where attacks are carried out.
type Place struct {
	Server  *client.Client
	Tier    runtime.Isolation
	Outside Outside
	Bait    Bait
	Images  string // the directory of the server's image files
	Image   string // of runners; "": the default one
	Sparing bool   // all attacks are tried in one runner, whose workspace is emptied: for where they take long to make

	// For who wants to see attacks succeed: other limits of runners than the corpus
	// is made for, and none of executions.
	Limits    map[string]any
	Unlimited bool
	Networks  map[string]any // of the environments with a network

	NoPython  string // why runners can't load python; "": they can
	NoNetwork string // why attackers aren't given any; "": package world's is around them
}

// A Result is what came of an attack.
type Result struct {
	Name    string  `json:"name"`
	Class   Class   `json:"class"`
	Tries   string  `json:"tries"`
	Defence Defence `json:"defence"`
	Held    bool    `json:"held"`
	Skipped string  `json:"skipped,omitempty"` // why it wasn't tried
	Why     string  `json:"why,omitempty"`     // it didn't hold
	Seen    string  `json:"seen,omitempty"`    // likewise
	Judged  bool    `json:"judged"`            // it was led to its end
	Millis  int64   `json:"ms"`
}

// A Report is what came of all.
type Report struct {
	At      time.Time         `json:"at"`
	Tier    runtime.Isolation `json:"tier"`
	Tried   int               `json:"tried"`
	Held    int               `json:"held"`
	Skipped int               `json:"skipped"`
	Seconds float64           `json:"seconds"`
	Version string            `json:"version"` // the server's
	Results []Result          `json:"results"`
}

// OK reports whether all that was tried was held off.
func (r Report) OK() bool { return r.Tried > 0 && r.Held == r.Tried }

// attackWithin is how long one may take, after which it counts as not held.
const attackWithin = time.Minute

// Run carries out the rows, one after the other, and tells each result. The
// error says why that could not be led to its end; the report is then of those
// that were tried. The environments that it
// makes are removed.
func Run(ctx context.Context, place Place, rows []Attack, told func(Result)) (report Report, err error) {
	prober, err := Prober()
	if err != nil {
		return Report{}, err
	}
	c := &crew{Place: place, prober: prober}
	report = Report{At: time.Now().UTC().Truncate(time.Second), Tier: place.Tier}
	began := time.Now()
	defer func() {
		report.Seconds = time.Since(began).Seconds()
		err = errors.Join(err, c.leave(context.WithoutCancel(ctx)))
	}()
	if report.Version, err = c.settle(ctx); err != nil {
		return report, err
	}
	for _, row := range rows {
		result := c.try(ctx, row)
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		switch {
		case result.Skipped != "":
			report.Skipped++
		case result.Held:
			report.Tried++
			report.Held++
		default:
			report.Tried++
		}
		report.Results = append(report.Results, result)
		told(result)
	}
	return report, nil
}

// try carries out one attack, and judges it.
func (c *crew) try(ctx context.Context, a Attack) Result {
	result := Result{Name: a.Name, Class: a.Class, Tries: a.Tries, Defence: a.Defence}
	if !a.In(c.Tier) {
		result.Skipped = fmt.Sprintf("it is for %v, not for %s", a.Tiers, c.Tier)
		return result
	}
	if a.Reach != Offline && c.NoNetwork != "" {
		result.Skipped = "it is for runners with network access, which is unavailable here: " + c.NoNetwork
		return result
	}
	if a.Warm && c.NoPython != "" {
		result.Skipped = "it is for runners that have python loaded: " + c.NoPython
		return result
	}
	if a.Disk && c.Bait.Reads == "" {
		result.Skipped = "this machine can't limit what a runner reads from its disks"
		return result
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, attackWithin)
	defer cancel()
	s := &scene{crew: c, attack: a}
	err := s.play(ctx)
	left, gone := s.clear(context.WithoutCancel(ctx))
	why := c.judge(a, s)
	result.Judged = err == nil
	switch {
	case err != nil:
		why = "it could not be led to its end: " + err.Error()
	case gone != nil:
		why = gone.Error()
	case len(left) > 0:
		why = "left of the runner: " + strings.Join(left, ", ")
	}
	if why == "" {
		why = c.around(ctx)
	}
	result.Held = why == ""
	if !result.Held {
		result.Why, result.Seen = printable(why), printable(s.seen())
	}
	result.Millis = time.Since(began).Milliseconds()
	return result
}

// printable is a text without what a terminal could take for more than text, and
// no more of it than one wants to read.
func printable(text string) string {
	const most = 1 << 10 // of the beginning, and of the end
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

// judge says what is wrong with what was seen; "" if nothing is.
func (c *crew) judge(a Attack, s *scene) string {
	if why := c.succeeded(a, s.seen()); why != "" {
		return why
	}
	switch {
	case !c.pattern(a.heldIn(c.Tier)).MatchString(s.seen()):
		return "what was seen isn't what is seen when it is held off"
	case a.Apart && s.alike:
		return "it succeeded: the same was seen twice"
	}
	return ""
}

// succeeded says by what an attack shows in what was seen; "" if by nothing.
func (c *crew) succeeded(a Attack, seen string) string {
	switch {
	case strings.Contains(seen, c.Bait.Secret):
		return "a secret of the machine was seen"
	case a.Never != "" && c.pattern(a.Never).MatchString(seen):
		return "it succeeded"
	}
	return ""
}

// pattern compiles what is to be seen. A wrong one is one of ours, and the test
// of the corpus finds it.
func (c *crew) pattern(text string) *regexp.Regexp {
	return regexp.MustCompile("(?m)" + c.fill(text, regexp.QuoteMeta))
}

// fill puts the bait into a text.
func (c *crew) fill(text string, quote func(string) string) string {
	return strings.NewReplacer(
		"{secret}", quote(c.Bait.Path), "{port}", quote(c.Bait.Port), "{abstract}", quote(c.Bait.Abstract),
		"{hostname}", quote(c.Bait.Hostname), "{uptime}", quote(c.Bait.Uptime), "{share}", quote(c.Bait.Share), "{reads}", quote(c.Bait.Reads),
	).Replace(text)
}

// around looks outside, after an attack.
func (c *crew) around(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if changed := c.Outside.Changed(); len(changed) > 0 {
		return "outside the runner: " + strings.Join(changed, ", ")
	}
	if seen, err := c.execute(ctx, c.neighbour, shell("echo undisturbed")); err != nil || !strings.HasPrefix(seen, "undisturbed\n=> EXITED 0") {
		return fmt.Sprintf("a neighbour doesn't run as it should: %q, %v", seen, err)
	}
	return ""
}
