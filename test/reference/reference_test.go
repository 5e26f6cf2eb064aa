package reference

import (
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

type settings struct {
	Listen string        `env:"ROCKPOOL_LISTEN" default:"127.0.0.1:80" placeholder:"ADDRESS" help:"Address to use | or not. (${default}; $$${env})"`
	Keep   time.Duration `env:"ROCKPOOL_KEEP" default:"1h" placeholder:"TIME" help:"How long. See --listen. Allowed: 1s to 1d; 0: forever. (${default}; $$${env})"`
	Dir    string        `env:"ROCKPOOL_DIR" placeholder:"DIR" help:"Directory. (below $$HOME; $$${env})"`
	On     bool          `env:"ROCKPOOL_ON" help:"Whether it's on. ($$${env})"`
	Names  []string      `env:"ROCKPOOL_NAMES" default:"a,b" placeholder:"NAME,…" help:"Names. (${default}; $$${env})"`
}

type runCommand struct {
	Server string `placeholder:"URL" help:"The server."`
	Fast   bool   `short:"f" help:"Be fast."`
	File   string `arg:"" help:"The file."`
}

func (runCommand) Help() string {
	return "Runs it, see docs/guides/x.md.\n\n    rockpool run a\n\nExit codes:\n    0    it ended\n    2    a flag is wrong"
}

type commands struct {
	Run runCommand `cmd:"" help:"Run a file."`
}

const schema = `
type Query {
  "All things."
  things("At most this many." first: Int): [Thing!]!
}
"A thing."
type Thing {
  """
  Its
  colour.
  """
  color: Color!
}
enum Color { "Like fire." RED }
"The codes."
enum ErrorCode { "Too much." LIMIT_EXCEEDED "No." FORBIDDEN }
`

func newReference(t *testing.T) *Reference {
	t.Helper()
	flags, err := kong.New(&settings{})
	if err != nil {
		t.Fatal(err)
	}
	app, err := kong.New(&commands{}, kong.Name("rockpool"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := gqlparser.LoadSchema(&ast.Source{Input: schema})
	if err != nil {
		t.Fatal(err)
	}
	return New(Sources{
		Settings: flags.Model.Flags, Commands: app.Model, Schema: parsed,
		Metrics:   []Metric{{Name: "rockpool_a_total", Type: "counter", Help: "All of state READY. Alert on any.", Labels: []string{"state"}}},
		Retryable: func(code string) bool { return code == "LIMIT_EXCEEDED" },
	})
}

func TestPartsAreGenerated(t *testing.T) {
	for _, c := range []struct {
		directive string
		want      []string
	}{
		{"settings listen", []string{"| `--listen` | `ROCKPOOL_LISTEN` | `127.0.0.1:80` | `ADDRESS` | Address to use \\| or not. |"}},
		{"settings keep", []string{"| `1h` | `TIME`: 1s to 1d; 0: forever | How long. See `--listen`. |"}},
		{"settings dir on", []string{"| below `$HOME` | `DIR` | Directory. |", "| `false` | `true`, `false` | Whether it's on. |"}},
		{"summary", []string{"| [rockpool run](#rockpool-run) | Run a file. |"}},
		{"commands run", []string{"### rockpool run", "\n```text\nrockpool run <file> [flags]\n```\n", "see [docs/guides/x.md](../guides/x.md).", "\n```sh skip: examples of the help, without what they need\nrockpool run a\n```\n", "| 2 | a flag is wrong |", "| `-f, --fast` | Be fast. |", "| `file` | The file. |"}},
		{"exit-codes run", []string{"| 0 | it ended |"}},
		{"metrics rockpool_*", []string{"| `rockpool_a_total` | counter | `state` | All of state `READY`. **Alert** on any. |"}},
		{"queries things", []string{"### Query things", "Returns [`[Thing!]!`](#thing).", "| `first` | `Int` | At most this many. |"}},
		{"types Thing", []string{"### Thing\n\nType. A thing.", "| `color` | [`Color!`](#color) | Its colour. |"}},
		{"values Color", []string{"| `RED` | Like fire. |"}},
		{"error-codes", []string{"| `LIMIT_EXCEEDED` | yes | Too much. |", "| `FORBIDDEN` | no | No. |"}},
	} {
		t.Run(c.directive, func(t *testing.T) {
			got, err := newReference(t).Fill("# Page\n\n<!-- generate " + c.directive + " -->\nold\n<!-- end -->\n\nAfter.\n")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			if strings.Contains(got, "old") || !strings.HasPrefix(got, "# Page\n") || !strings.HasSuffix(got, "\n<!-- end -->\n\nAfter.\n") {
				t.Errorf("wrong around it:\n%s", got)
			}
			again, err := newReference(t).Fill(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("a second time it differs: %s", diff)
			}
		})
	}
}

func TestWrongPagesAreRefused(t *testing.T) {
	for _, c := range []struct{ page, want string }{
		{"<!-- generate settings nonesuch -->\n<!-- end -->", "there is no nonesuch"},
		{"<!-- generate settings listen listen -->\n<!-- end -->", "listen is named twice"},
		{"<!-- generate settings l* -->\n<!-- end --><!-- generate settings listen -->\n<!-- end -->", "listen is named twice"},
		{"<!-- generate nonesuch -->\n<!-- end -->", "no such kind"},
		{"<!-- generate settings listen -->\n", "no end"},
		{"<!-- generate values Thing -->\n<!-- end -->", "no enum"},
		{"<!-- generate exit-codes walk -->\n<!-- end -->", "no command"},
		{"<!-- generate shared-flags slow -->\n<!-- end -->", "no command has --slow"},
	} {
		if _, err := newReference(t).Fill(c.page); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.page, err, c.want)
		}
	}
}

func TestMissingThingsAreReported(t *testing.T) {
	r := newReference(t)
	if _, err := r.Fill("<!-- generate settings listen keep dir on -->\n<!-- end --><!-- generate types * -->\n<!-- end -->"); err != nil {
		t.Fatal(err)
	}
	err := r.Unused()
	want := "no page has the setting names\nno page has the command run\nno page has the metric rockpool_a_total\nno page has the query things"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestSharedFlagsAreDescribedOnce(t *testing.T) {
	got, err := newReference(t).Fill("<!-- generate shared-flags server -->\n<!-- end -->\n<!-- generate commands run -->\n<!-- end -->")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(got, "The server.") != 1 || !strings.Contains(got, "#flags-of-many-commands") {
		t.Error(got)
	}
}

func TestExampleHasEveryDefault(t *testing.T) {
	r := newReference(t)
	if _, err := r.Fill("## First\n<!-- generate settings listen keep -->\n<!-- end -->\n## Second\n<!-- generate settings * -->\n<!-- end -->"); err != nil {
		t.Fatal(err)
	}
	want := `# Head.

# == First ==

# Address to use | or not.
listen: 127.0.0.1:80

# How long. See --listen. Allowed: 1s to 1d; 0: forever.
keep: 1h

# == Second ==

# Directory. Default: below $HOME.
dir: ""

# Whether it's on.
on: false

# Names.
names: [a, b]
`
	if diff := cmp.Diff(want, r.Example("Head.")); diff != "" {
		t.Error(diff)
	}
}

func TestProse(t *testing.T) {
	for text, want := range map[string]string{
		"With --cluster=nomad, see $HOME/x.": "With `--cluster=nomad`, see `$HOME/x`.",
		"<a> and *.py, `*.go`":               "&lt;a> and \\*.py, `*.go`",
		"The CPU is READY; a=ADMIN,b=CLIENT": "The CPU is `READY`; `a=ADMIN,b=CLIENT`",
		"rockpool_a_total in the docs/a.md.": "`rockpool_a_total` in the [docs/a.md](../a.md).",
	} {
		if got := prose(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
