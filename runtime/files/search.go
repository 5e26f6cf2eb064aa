package files

import (
	"context"
	"net"
	"path"
	"strings"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/paths"
)

// Bounds of searches.
const (
	maxText        = 256 // bytes
	defaultMatches = 100

	noPattern = "must be a pattern such as *.py: * matches any text, ? one character, [a-z] a range; \\ escapes the next character"
)

// A Search selects entries by name, lines by text, or lines by text in files selected by name.
type Search struct {
	Path       string // a directory; "" means the workspace
	Name       string // a pattern for the last element of a path; see [path.Match]
	Text       string // text that a line contains, 1 to 256 bytes
	MaxMatches *int   // 1 to 1000; nil means 100
}

// check validates a search and returns the most matches that it returns.
func (s Search) check() (matches int, err error) {
	if s.Path != "" {
		if err := ValidatePath("path", s.Path); err != nil {
			return 0, err
		}
	}
	name, wrong := paths.Bytes(s.Name)
	_, malformed := path.Match(name, "")
	switch {
	case s.Name == "" && s.Text == "":
		return 0, runtime.Invalid("name", "give name, containing or both")
	case wrong != nil:
		return 0, runtime.Invalid("name", "%s", wrong)
	case len(name) > paths.MaxNameBytes || strings.ContainsAny(s.Name, "/\x00"):
		return 0, runtime.Invalid("name", "must be a pattern of at most %d bytes for a name, without / and NUL: name a directory in path", paths.MaxNameBytes)
	case malformed != nil:
		return 0, runtime.Invalid("name", noPattern)
	case len(s.Text) > maxText || strings.ContainsAny(s.Text, "\n\x00"):
		return 0, runtime.Invalid("containing", "must be at most %d bytes of one line, without NUL", maxText)
	case s.MaxMatches == nil:
		return defaultMatches, nil
	}
	return *s.MaxMatches, runtime.Between("maxMatches", int64(*s.MaxMatches), 1, agent.MaxMatches, "matches")
}

// SearchFiles searches a directory of a claimed runner and everything below it, inside the runner.
// It doesn't follow links. It returns LIMIT_EXCEEDED if too many other searches run. Searches are
// limited: FileSearch.Limit names the limit that was reached.
func (a *Access) SearchFiles(ctx context.Context, id runtime.RunnerID, search Search) (found runtime.FileSearch, err error) {
	most, err := search.check()
	if err != nil {
		return runtime.FileSearch{}, err
	}
	err = a.useWithin(ctx, id, a.searches, func(ctx context.Context, conn net.Conn) error {
		answer, err := agent.SearchFiles(ctx, conn, agent.Search{Path: search.Path, Name: search.Name, Text: []byte(search.Text), Most: most})
		if err != nil {
			return err
		}
		found = runtime.FileSearch{Limit: runtime.FileSearchLimit(strings.ToUpper(answer.Limit)), Skipped: answer.Skipped}
		for _, m := range answer.Matches {
			found.Matches = append(found.Matches, runtime.FileMatch{File: below(id, search.Path, m.File), Line: m.Line, Text: string(m.Text)})
		}
		return nil
	})
	return found, err
}

func below(id runtime.RunnerID, dir string, info agent.FileInfo) runtime.File {
	entry := file(id, info)
	if dir != "" {
		entry.At = strings.TrimRight(dir, "/") + "/" + entry.Path
	}
	return entry
}
