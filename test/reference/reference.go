// Package reference generates the parts of the pages in docs/reference that follow from the settings, the
// commands, the metrics and the schema. A page names each of these things once, or generating it fails.
package reference

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/vektah/gqlparser/v2/ast"
)

// Sources are what the pages are generated from.
type Sources struct {
	Settings  []*kong.Flag      // of rockpool serve
	Commands  *kong.Application // all commands
	Schema    *ast.Schema
	Metrics   []Metric
	Retryable func(code string) bool // of an error code
}

// A Metric documents the metrics of one name.
type Metric struct {
	Name, Type, Help string
	Labels           []string
}

// A Reference has the generated parts. It isn't safe for concurrent use.
type Reference struct {
	settings  list[*kong.Flag]
	commands  list[*kong.Node]
	metrics   list[Metric]
	queries   list[*ast.FieldDefinition]
	mutations list[*ast.FieldDefinition]
	changes   list[*ast.FieldDefinition]
	types     list[*ast.Definition]
	schema    *ast.Schema
	retryable func(string) bool

	shared map[string]string // the help of flags that many commands have, by name
	groups []group           // of settings, in the order of the page
}

// A group are settings below one heading.
type group struct {
	heading string
	flags   []*kong.Flag
}

// New returns the reference of these sources.
func New(s Sources) *Reference {
	r := &Reference{schema: s.Schema, retryable: s.Retryable, shared: map[string]string{}}
	for _, flag := range s.Settings {
		if !flag.Hidden && flag.Name != "help" && flag.Name != "config" {
			r.settings.add(flag.Name, flag)
		}
	}
	for _, node := range s.Commands.Leaves(true) {
		r.commands.add(commandName(node), node)
	}
	for _, m := range s.Metrics {
		r.metrics.add(m.Name, m)
	}
	for root, fields := range map[*ast.Definition]*list[*ast.FieldDefinition]{s.Schema.Query: &r.queries, s.Schema.Mutation: &r.mutations, s.Schema.Subscription: &r.changes} {
		if root == nil {
			continue
		}
		for _, field := range root.Fields {
			if !strings.HasPrefix(field.Name, "__") {
				fields.add(field.Name, field)
			}
		}
	}
	for _, d := range s.Schema.Types {
		if !d.BuiltIn && d != s.Schema.Query && d != s.Schema.Mutation && d != s.Schema.Subscription {
			r.types.add(d.Name, d)
		}
	}
	slices.Sort(r.types.names)
	return r
}

var directive = regexp.MustCompile(`(?s)<!-- generate ([a-z-]+)(.*?)-->\n(.*?)<!-- end -->`)

// Fill returns a page with its generated parts as they are now. Such a part stands between two comments:
//
//	<!-- generate KIND NAME… -->
//	<!-- end -->
//
// A name may be a pattern of [path.Match], for everything that no part has named yet.
func (r *Reference) Fill(page string) (string, error) {
	var failed []error
	heading := ""
	rest := page
	var out strings.Builder
	for {
		at := directive.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		for line := range strings.SplitSeq(rest[:at[0]], "\n") {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				heading = title
			}
		}
		kind, names := rest[at[2]:at[3]], strings.Fields(rest[at[4]:at[5]])
		part, err := r.part(kind, heading, names)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w", heading, kind, err))
		}
		fmt.Fprintf(&out, "%s\n%s\n<!-- end -->", rest[:at[6]], strings.TrimRight(part, "\n")+"\n")
		rest = rest[at[1]:]
	}
	if strings.Contains(rest, "<!-- generate ") {
		failed = append(failed, errors.New("a generated part has no end"))
	}
	out.WriteString(rest)
	return out.String(), errors.Join(failed...)
}

// Unused returns an error that names everything that no page has.
func (r *Reference) Unused() error {
	return errors.Join(r.settings.unused("setting"), r.commands.unused("command"), r.metrics.unused("metric"), r.queries.unused("query"),
		r.mutations.unused("mutation"), r.changes.unused("subscription"), r.types.unused("type"))
}

func (r *Reference) part(kind, heading string, names []string) (string, error) {
	switch kind {
	case "settings":
		return each(&r.settings, names, func(flags []*kong.Flag) string {
			r.groups = append(r.groups, group{heading, flags})
			return settingsTable(flags)
		})
	case "summary":
		return r.summary(), nil
	case "shared-flags":
		return r.sharedFlags(names)
	case "commands":
		return each(&r.commands, names, joined(r.command))
	case "exit-codes":
		return r.exitCodes(names)
	case "metrics":
		return each(&r.metrics, names, metricsTable)
	case "queries":
		return each(&r.queries, names, joined(r.operation("Query")))
	case "mutations":
		return each(&r.mutations, names, joined(r.operation("Mutation")))
	case "subscriptions":
		return each(&r.changes, names, joined(r.operation("Subscription")))
	case "types":
		return each(&r.types, names, joined(r.definition))
	case "values":
		return r.values(names)
	case "error-codes":
		return r.errorCodes()
	}
	return "", errors.New("there is no such kind of part")
}

func each[T any](l *list[T], names []string, write func([]T) string) (string, error) {
	picked, err := l.pick(names)
	return write(picked), err
}

func joined[T any](write func(T) string) func([]T) string {
	return func(all []T) string {
		var texts []string
		for _, one := range all {
			texts = append(texts, strings.TrimRight(write(one), "\n")+"\n")
		}
		return strings.Join(texts, "\n")
	}
}

// A list are the things of one kind, each of which the pages must have once.
type list[T any] struct {
	names []string
	items map[string]T
	used  map[string]bool
}

func (l *list[T]) add(name string, item T) {
	if l.items == nil {
		l.items, l.used = map[string]T{}, map[string]bool{}
	}
	l.names = append(l.names, name)
	l.items[name] = item
}

func (l *list[T]) pick(patterns []string) (all []T, err error) {
	var failed []error
	for _, pattern := range patterns {
		var found []string
		if _, is := l.items[pattern]; is {
			found = []string{pattern}
		} else {
			for _, name := range l.names {
				if ok, _ := path.Match(pattern, name); ok && !l.used[name] {
					found = append(found, name)
				}
			}
		}
		if len(found) == 0 {
			failed = append(failed, fmt.Errorf("there is no %s", pattern))
		}
		for _, name := range found {
			if l.used[name] {
				failed = append(failed, fmt.Errorf("%s is named twice", name))
			}
			l.used[name] = true
			all = append(all, l.items[name])
		}
	}
	return all, errors.Join(failed...)
}

func (l *list[T]) unused(kind string) error {
	var failed []error
	for _, name := range l.names {
		if !l.used[name] {
			failed = append(failed, fmt.Errorf("no page has the %s %s", kind, name))
		}
	}
	return errors.Join(failed...)
}
