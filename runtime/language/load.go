package language

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/rockpool/rockpool/runtime"
)

// An Error is a fault in a file of recipes.
type Error struct {
	File     string
	Language string // id of the faulty language; "" means none
	Field    string // "" means the whole file or language
	Wrong    string
}

func (e *Error) Error() string { return e.File + ": " + e.InFile() }

// InFile returns the message without the name of the file.
func (e *Error) InFile() (text string) {
	if e.Language != "" {
		text += "language " + e.Language + ": "
	}
	if e.Field != "" {
		text += e.Field + " "
	}
	return text + e.Wrong
}

// Limits of a file of recipes, and of a set. One answer of the API contains a whole set.
const (
	maxFile      = 1 << 20
	maxLanguages = 256
)

// Load returns the default set with the changes of a file. A recipe with a known id gets the fields
// that the file names and keeps the others; any other recipe is added. The error is an [*Error].
func Load(file string) (*Set, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, unreadable(file, err)
	}
	defer f.Close()
	// One byte more than allowed shows that a file is too large.
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, unreadable(file, err)
	case len(text) > maxFile:
		return nil, &Error{File: file, Wrong: fmt.Sprintf("must have at most %d bytes", maxFile)}
	}
	return Default().extend(file, text)
}

// unreadable returns the error of a file that can't be read, without repeating its path.
func unreadable(file string, err error) *Error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	return &Error{File: file, Wrong: "is unreadable: " + err.Error()}
}

// An entry is a recipe in a file; a nil field is missing there.
type entry struct {
	ID             string                   `yaml:"id"`
	Name           *string                  `yaml:"name"`
	Aliases        *[]string                `yaml:"aliases"`
	Extensions     *[]string                `yaml:"extensions"`
	FileName       *string                  `yaml:"fileName"`
	Build          *[]string                `yaml:"build"`
	Run            *[]string                `yaml:"run"`
	Version        *[]string                `yaml:"version"`
	VersionPattern *string                  `yaml:"versionPattern"`
	Environments   *[]runtime.EnvironmentID `yaml:"environments"`
	Image          *string                  `yaml:"image"`
	Debian         *[]string                `yaml:"debian"`
	Cache          *cache                   `yaml:"cache"`
	Limits         *limits                  `yaml:"limits"`
}

// A cache is that of a file; nil means unchanged.
type cache struct {
	Make      *[]string `yaml:"make"`
	Variables *[]string `yaml:"variables"`
}

// limits are the limits that a file sets; nil means unchanged.
type limits struct {
	MemoryMiB    *int `yaml:"memoryMiB"`
	Processes    *int `yaml:"processes"`
	WorkspaceMiB *int `yaml:"workspaceMiB"`
	Seconds      *int `yaml:"seconds"`
}

func (s *Set) extend(file string, text []byte) (*Set, error) {
	var in struct {
		Languages []entry `yaml:"languages"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := decoder.Decode(&in); err != nil && !errors.Is(err, io.EOF) { // an empty file gives io.EOF
		return nil, &Error{File: file, Wrong: strings.TrimSpace(yaml.FormatError(err, false, false))}
	}
	// A copy, so that s stays as it is.
	set := &Set{recipes: s.All()}
	seen := map[string]bool{}
	for _, e := range in.Languages {
		if seen[e.ID] {
			return nil, &Error{file, e.ID, "id", "occurs twice"}
		}
		seen[e.ID] = true
		at := slices.IndexFunc(set.recipes, func(r Recipe) bool { return r.ID == e.ID })
		if at < 0 {
			at = len(set.recipes)
			set.recipes = append(set.recipes, Recipe{ID: e.ID, Name: e.ID})
		}
		e.change(&set.recipes[at])
		if err := set.recipes[at].Check(); err != nil {
			err.File = file
			return nil, err
		}
		set.recipes[at].compile()
	}
	if len(set.recipes) > maxLanguages {
		return nil, &Error{File: file, Wrong: fmt.Sprintf("must result in at most %d languages including the built-in ones, not %d", maxLanguages, len(set.recipes))}
	}
	return set, set.unambiguous(file)
}

func (e entry) change(r *Recipe) {
	override(&r.Name, e.Name)
	override(&r.Aliases, e.Aliases)
	override(&r.Extensions, e.Extensions)
	override(&r.FileName, e.FileName)
	override(&r.Build, e.Build)
	override(&r.Run, e.Run)
	override(&r.Version, e.Version)
	override(&r.VersionPattern, e.VersionPattern)
	override(&r.Environments, e.Environments)
	override(&r.Image, e.Image)
	override(&r.Debian, e.Debian)
	if e.Cache != nil {
		override(&r.Cache.Make, e.Cache.Make)
		override(&r.Cache.Variables, e.Cache.Variables)
	}
	if e.Limits != nil {
		override(&r.Limits.MemoryMiB, e.Limits.MemoryMiB)
		override(&r.Limits.Processes, e.Limits.Processes)
		override(&r.Limits.WorkspaceMiB, e.Limits.WorkspaceMiB)
		override(&r.Limits.Seconds, e.Limits.Seconds)
	}
}

func override[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// The valid names of languages, file extensions and Debian's packages.
var (
	ids        = regexp.MustCompile(`^[a-z0-9][a-z0-9+._-]{0,31}$`)
	variables  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^\x00-\x1f]*$`)
	packages   = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,63}$`)
	extensions = regexp.MustCompile(`^\.[A-Za-z0-9+_-]{1,16}$`)
)

// most bounds a recipe's aliases, extensions, environments, and arguments of a command.
const most = 64

// Check returns the recipe's first fault, without a file; nil means that it is valid.
func (r Recipe) Check() *Error {
	wrong := func(field, format string, args ...any) *Error {
		return &Error{Language: r.ID, Field: field, Wrong: fmt.Sprintf(format, args...)}
	}
	for _, l := range []struct {
		field string
		n     int
	}{{"cache.variables", len(r.Cache.Variables)}, {"aliases", len(r.Aliases)}, {"extensions", len(r.Extensions)}, {"environments", len(r.Environments)}, {"debian", len(r.Debian)}} {
		if l.n > most {
			return wrong(l.field, "must be at most %d, not %d", most, l.n)
		}
	}
	for _, name := range slices.Concat([]string{r.ID}, r.Aliases) {
		if !ids.MatchString(name) {
			field := "aliases"
			if name == r.ID {
				field = "id"
			}
			return wrong(field, "must be 1 to 32 lower-case letters, digits, '+', '.', '_' and '-', beginning with a letter or a digit, not %q", name)
		}
	}
	if r.Name == "" || len(r.Name) > 64 || !plain(r.Name) {
		return wrong("name", "must be 1 to 64 bytes of text in one line")
	}
	for _, extension := range r.Extensions {
		if !extensions.MatchString(extension) {
			return wrong("extensions", "must be a dot and 1 to 16 letters, digits, '+', '_' and '-', for example .py, not %q", extension)
		}
	}
	if r.FileName == "" || len(r.FileName) > 64 || r.FileName != path.Base(r.FileName) || strings.HasPrefix(r.FileName, ".") || !plain(r.FileName) {
		return wrong("fileName", "must be a file's name without a directory, for example main.py, not %q", r.FileName)
	}
	for _, t := range []struct {
		field        string
		template     []string
		placeholders bool
	}{{"build", r.Build, true}, {"run", r.Run, true}, {"version", r.Version, false}, {"cache.make", r.Cache.Make, false}} {
		if why := wrongTemplate(t.template, t.placeholders); why != "" {
			return wrong(t.field, "%s", why)
		}
	}
	if len(r.Run) == 0 {
		return wrong("run", `must be a command, for example [python3, "{file}", "{args}"]`)
	}
	if r.VersionPattern != "" || len(r.Version) > 0 {
		if pattern, err := regexp.Compile(r.VersionPattern); err != nil || pattern.NumSubexp() != 1 {
			return wrong("versionPattern", "must be a regular expression (RE2) with one group, not %q", r.VersionPattern)
		}
	}
	for _, id := range r.Environments {
		if id.Validate() != nil {
			return wrong("environments", "must be ids of environments, not %q", id)
		}
	}
	if len(r.Image) > 512 || !plain(r.Image) {
		return wrong("image", "must be at most 512 bytes of text in one line")
	}
	for _, name := range r.Debian {
		if !packages.MatchString(name) {
			return wrong("debian", "must be names of Debian's packages, not %q", name)
		}
	}
	for _, variable := range r.Cache.Variables {
		if !variables.MatchString(variable) {
			return wrong("cache.variables", "must be NAME=value, not %q", variable)
		}
	}
	for _, l := range []struct {
		field string
		value int
		high  int
	}{
		{"limits.memoryMiB", r.Limits.MemoryMiB, 1 << 20}, {"limits.processes", r.Limits.Processes, 1 << 16},
		{"limits.workspaceMiB", r.Limits.WorkspaceMiB, 1 << 20}, {"limits.seconds", r.Limits.Seconds, 86400},
	} {
		if l.value < 0 || l.value > l.high {
			return wrong(l.field, "must be 0 to %d, not %d", l.high, l.value)
		}
	}
	return nil
}

// wrongTemplate returns a template's fault; "" means that it is valid. allowed says whether it may contain
// placeholders.
func wrongTemplate(template []string, allowed bool) string {
	if len(template) > most {
		return fmt.Sprintf("must be at most %d arguments", most)
	}
	for i, argument := range template {
		if !utf8.ValidString(argument) || strings.ContainsRune(argument, 0) || argument == "" && i == 0 {
			return "must be a command: a list of arguments, the first of which isn't empty"
		}
		for _, placeholder := range placeholders.FindAllString(argument, -1) {
			switch {
			case !allowed:
				return "can't contain placeholders such as " + placeholder
			case values[placeholder] != nil:
			case lists[placeholder] == nil:
				return "contains the unknown placeholder " + placeholder + "; valid are {file} {stem} {directory} {program} {class} {buildArgs} {linkArgs} {interpreterArgs} {args}"
			case i == 0:
				return "can't begin with " + placeholder
			case argument != placeholder:
				return placeholder + " must be an argument on its own, since it becomes any number of arguments"
			}
		}
	}
	return ""
}

// plain reports whether a text is valid UTF-8 without ASCII control characters.
func plain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// unambiguous returns an error unless each name and each extension belongs to one language.
func (s *Set) unambiguous(file string) error {
	names, endings := map[string]string{}, map[string]string{}
	twice := func(id, field, text string) error {
		return &Error{file, id, field, fmt.Sprintf("contains %s twice", text)}
	}
	for _, r := range s.recipes {
		for _, name := range slices.Concat([]string{r.ID}, r.Aliases) {
			other, taken := names[name]
			switch {
			case taken && other == r.ID && name == r.ID:
				return &Error{file, r.ID, "aliases", fmt.Sprintf("contains %s, which is the id", name)}
			case taken && other == r.ID:
				return twice(r.ID, "aliases", name)
			case taken:
				return &Error{file, r.ID, "aliases", fmt.Sprintf("contains %s, which is a name of the language %s; change that language's aliases", name, other)}
			}
			names[name] = r.ID
		}
		for _, extension := range r.Extensions {
			other, taken := endings[extension]
			switch {
			case taken && other == r.ID:
				return twice(r.ID, "extensions", extension)
			case taken:
				return &Error{file, r.ID, "extensions", fmt.Sprintf("contains %s, which is an extension of the language %s; change that language's extensions", extension, other)}
			}
			endings[extension] = r.ID
		}
	}
	return nil
}
