package reference

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// settingHelp has the parts of a setting's help: what it does, what is allowed, the default, and the variable.
var settingHelp = regexp.MustCompile(`^(.*?)(?: Allowed: (.*)\.)? \((?:(.*); )?\$(ROCKPOOL_[A-Z0-9_]+)\)$`)

// A setting is a flag whose help is taken apart.
type setting struct {
	flag                             *kong.Flag
	what, allowed, fallback, varName string
}

func settingOf(flag *kong.Flag) setting {
	parts := settingHelp.FindStringSubmatch(flag.Help)
	if parts == nil {
		return setting{flag: flag, what: flag.Help}
	}
	return setting{flag, parts[1], parts[2], parts[3], parts[4]}
}

// defaultCell returns the default for a table.
func (s setting) defaultCell() string {
	switch {
	case s.flag.IsBool():
		return "`false`"
	case s.fallback != "" && s.fallback == s.flag.Default || strings.HasPrefix(s.fallback, "$") && !strings.Contains(s.fallback, " "):
		return code(s.fallback)
	}
	return prose(s.fallback)
}

// allowedCell returns the allowed values for a table.
func (s setting) allowedCell() string {
	holder := s.flag.PlaceHolder
	switch {
	case s.flag.IsBool():
		return "`true`, `false`"
	case s.allowed == "":
		return code(holder)
	case holder == "TIME" || holder == "SIZE":
		return code(holder) + ": " + prose(s.allowed)
	}
	return prose(s.allowed)
}

func settingsTable(flags []*kong.Flag) string {
	t := table{head: []string{"flag", "variable", "default", "allowed", "what"}}
	for _, flag := range flags {
		s := settingOf(flag)
		t.add(code("--"+flag.Name), code(s.varName), s.defaultCell(), s.allowedCell(), prose(s.what))
	}
	return t.String()
}

// Example returns a settings file with every setting and its default, by the groups of the page that
// Fill has read.
func (r *Reference) Example(head string) string {
	var out strings.Builder
	out.WriteString(comment(head))
	for _, group := range r.groups {
		fmt.Fprintf(&out, "\n# == %s ==\n", group.heading)
		for _, flag := range group.flags {
			s := settingOf(flag)
			text := s.what
			if s.allowed != "" {
				text += " Allowed: " + s.allowed + "."
			}
			if s.fallback != flag.Default && s.fallback != "" {
				text += " Default: " + s.fallback + "."
			}
			fmt.Fprintf(&out, "\n%s%s: %s\n", comment(text), flag.Name, yamlValue(flag))
		}
	}
	return out.String()
}

func comment(text string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(wrap(text, 98), "\n") {
		out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	return out.String()
}

// plainYAML are texts that mean the same with and without quotes.
var plainYAML = regexp.MustCompile(`^[a-z0-9/_][A-Za-z0-9/_.:-]*$`)

func yamlValue(flag *kong.Flag) string {
	kind := flag.Target.Kind()
	switch {
	case flag.IsBool():
		return cmp.Or(flag.Default, "false")
	case kind == reflect.Slice:
		return "[" + strings.Join(strings.FieldsFunc(flag.Default, func(r rune) bool { return r == ',' }), ", ") + "]"
	case kind == reflect.String && (flag.Default == "off" || flag.Name == "tls-min-version" || !plainYAML.MatchString(flag.Default)):
		return fmt.Sprintf("%q", flag.Default)
	}
	return flag.Default
}
