// Package cases runs a program on a server once for each case in a directory. The server compares
// its output with the expected output.
package cases

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/client"
)

// The server's limits for one batch.
const (
	maxCases = 1000
	maxBytes = 16 << 20 // of all standard inputs together, and of all expected outputs
)

// A Case has the files of one name in a directory: NAME.in, NAME.args and NAME.out.
type Case struct {
	Name  string
	Input client.CaseInput
}

// Read returns the cases of a directory, sorted by name; numbers in names sort by value. It ignores
// other files.
func Read(dir string) ([]Case, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	byName := map[string]*Case{}
	sizes := map[string]int64{}
	for _, entry := range entries {
		name, kind := split(entry.Name())
		if kind == "" {
			continue
		}
		if byName[name] == nil {
			byName[name] = &Case{Name: name}
		}
		// Before it is read: the files may be larger than the memory.
		if info, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil {
			sizes[kind] += info.Size()
		}
		if sizes[kind] > maxBytes {
			return nil, fmt.Errorf("the .%s files in %s have more than %d MiB together, which is the limit for one run: move some cases into another directory", kind, dir, maxBytes>>20)
		}
		if err := byName[name].load(filepath.Join(dir, entry.Name()), kind); err != nil {
			return nil, err
		}
	}
	var all []Case
	for name, c := range byName {
		if c.Input.StdinBase64 == nil && c.Input.Args == nil {
			return nil, fmt.Errorf("%s has %s.out, but neither %s.in nor %s.args: a case needs one of them", dir, name, name, name)
		}
		all = append(all, *c)
	}
	if len(all) == 0 || len(all) > maxCases {
		return nil, fmt.Errorf("%s has %d cases, but must have 1 to %d: files such as 1.in, 1.args and 1.out", dir, len(all), maxCases)
	}
	slices.SortFunc(all, func(a, b Case) int { return compareNames(a.Name, b.Name) })
	return all, nil
}

// split splits a file name into its case's name and its kind: in, args or out; "" for other files.
func split(file string) (name, kind string) {
	ext := filepath.Ext(file)
	name = strings.TrimSuffix(file, ext)
	switch kind = strings.TrimPrefix(ext, "."); kind {
	case "in", "args", "out":
		if name != "" {
			return name, kind
		}
	}
	return "", ""
}

// load reads one file of the case. An empty .out file expects no output; a missing one expects any.
func (c *Case) load(path, kind string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("case %s: %w", c.Name, err)
	}
	switch kind {
	case "in":
		c.Input.StdinBase64 = append([]byte{}, data...)
	case "args":
		c.Input.Args = lines(string(data))
	case "out":
		c.Input.ExpectedOutputBase64 = append([]byte{}, data...)
	}
	return nil
}

// lines returns each line as one argument. A final line end doesn't start another argument.
func lines(text string) []string {
	text = strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if text == "" {
		return []string{}
	}
	return strings.Split(text, "\n")
}

// compareNames orders names; numbers in them count by value: 2 comes before 10.
func compareNames(a, b string) int {
	for x, y := a, b; x != "" && y != ""; {
		n, m := digits(x), digits(y)
		if n == 0 || m == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		left, right := strings.TrimLeft(x[:n], "0"), strings.TrimLeft(y[:m], "0")
		if c := cmp.Or(cmp.Compare(len(left), len(right)), cmp.Compare(left, right)); c != 0 {
			return c
		}
		x, y = x[n:], y[m:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func digits(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}
