package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/rockpool/rockpool/config/quantity"
	"github.com/rockpool/rockpool/runtime/similar"
)

// A File is a YAML file of settings. Its keys are the flags' names. Flags and variables override it.
type File struct {
	Path   string // empty if no file was read
	values map[string]setting
}

// A setting is a value for kong, and its line in the file.
type setting struct {
	value any
	line  int
}

// settingsPaths returns the default paths, in the order in which they are tried.
func settingsPaths() []string {
	home := os.Getenv("XDG_CONFIG_HOME")
	if home == "" {
		home = filepath.Join(os.Getenv("HOME"), ".config")
	}
	var paths []string
	if filepath.IsAbs(home) {
		paths = append(paths, filepath.Join(home, "rockpool", "config.yaml"))
	}
	return append(paths, "/etc/rockpool/config.yaml")
}

// ReadFile reads the named file, or without a name the first default path that exists. An error names file,
// line and key.
func ReadFile(named string, flags []*kong.Flag) (File, error) {
	paths := settingsPaths()
	if named != "" {
		paths = []string{named}
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if named == "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return File{}, fmt.Errorf("read the settings: %w", err)
		}
		return parseFile(path, text, flags)
	}
	return File{}, nil
}

// Len returns how many settings the file has.
func (s File) Len() int { return len(s.values) }

// parseFile parses the text of the file at path.
func parseFile(path string, text []byte, flags []*kong.Flag) (File, error) {
	s := File{Path: path, values: map[string]setting{}}
	parsed, err := parser.ParseBytes(text, 0)
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	if len(parsed.Docs) > 1 {
		return s, fmt.Errorf("%s: the file must have a single YAML document", path)
	}
	for _, doc := range parsed.Docs {
		pairs, err := pairsOf(doc.Body)
		if err != nil {
			return s, fmt.Errorf("%s: %w", path, err)
		}
		for _, pair := range pairs {
			if err := s.take(pair, flags); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// pairsOf returns the keys and values of a file. A file with only comments has none.
func pairsOf(body ast.Node) ([]*ast.MappingValueNode, error) {
	switch node := body.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return nil, nil
	case *ast.MappingNode:
		return node.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{node}, nil
	default:
		return nil, fmt.Errorf("line %d: the file must have one setting per line, as KEY: VALUE", node.GetToken().Position.Line)
	}
}

// take stores one setting. A null value is the same as a missing key.
func (s *File) take(pair *ast.MappingValueNode, flags []*kong.Flag) error {
	line := pair.Key.GetToken().Position.Line
	key := pair.Key.GetToken().Value
	var names []string
	for _, flag := range flags {
		if flag.Hidden || flag.Name == "help" || flag.Name == "config" {
			continue
		}
		if flag.Name != key {
			names = append(names, flag.Name)
			continue
		}
		value, wanted := flagValue(pair.Value, flag)
		if wanted != "" {
			return fmt.Errorf("%s:%d: %s must be %s, not %s", s.Path, line, key, wanted, strings.TrimSpace(pair.Value.String()))
		}
		if value != nil {
			s.values[key] = setting{value, line}
		}
		return nil
	}
	if question := similar.Question(key, names); question != "" {
		return fmt.Errorf("%s:%d: unknown setting %q; %s", s.Path, line, key, question)
	}
	return fmt.Errorf("%s:%d: unknown setting %q; `rockpool serve --help` lists the settings", s.Path, line, key)
}

// flagValue is settingValue, also for times and sizes.
func flagValue(node ast.Node, flag *kong.Flag) (value any, wanted string) {
	if !quantity.Is(flag.Value) {
		return settingValue(node, flag.Target.Type())
	}
	switch n := node.(type) {
	case *ast.NullNode:
		return nil, ""
	case *ast.IntegerNode:
		value = fmt.Sprint(n.Value)
	case *ast.StringNode:
		value = n.Value
	default:
		value = node.String() // quantity.Wrong reports the error
	}
	return value, quantity.Wrong(flag.Value, value.(string))
}

// settingValue returns a value for kong, or else wanted: the form that the value should have. Null means that
// the key is missing.
func settingValue(node ast.Node, kind reflect.Type) (value any, wanted string) {
	if _, null := node.(*ast.NullNode); null {
		return nil, ""
	}
	switch {
	case kind.Kind() == reflect.Slice:
		list, ok := node.(*ast.SequenceNode)
		if !ok {
			return nil, "a list"
		}
		all := []any{}
		for _, item := range list.Values {
			one, wanted := settingValue(item, kind.Elem())
			if wanted != "" || one == nil {
				return nil, "a list, each of it text"
			}
			all = append(all, one)
		}
		return all, ""
	case kind.Kind() == reflect.Bool:
		if b, ok := node.(*ast.BoolNode); ok {
			return b.Value, ""
		}
		return nil, "true or false"
	case reflect.Zero(kind).CanInt():
		if n, ok := node.(*ast.IntegerNode); ok {
			return fmt.Sprint(n.Value), ""
		}
		return nil, "a whole number"
	case reflect.Zero(kind).CanFloat():
		switch n := node.(type) {
		case *ast.IntegerNode:
			return fmt.Sprint(n.Value), ""
		case *ast.FloatNode:
			return fmt.Sprint(n.Value), ""
		}
		return nil, "a number"
	default:
		switch text := node.(type) {
		case *ast.StringNode:
			return text.Value, ""
		case *ast.FloatNode: // a version, such as 1.3
			return text.GetToken().Value, ""
		}
		return nil, "text"
	}
}

// Resolve implements kong.Resolver: it returns the file's value of a flag that no variable sets.
func (s File) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	return s.values[flag.Name].value, nil
}

// Validate implements kong.Resolver. ReadFile has already reported all errors.
func (File) Validate(*kong.Application) error { return nil }
