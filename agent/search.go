package agent

import (
	"context"
	"fmt"
	"io"
	"net"
)

// MaxMatches is the most matches that a Search may request.
const MaxMatches = 1000

// Search requests the entries below a directory whose names match a pattern, and the lines of
// regular files that contain a text. At least one of Name and Text is set. With both, only files
// whose names match are searched for the text.
type Search struct {
	Path string `json:"path"`           // "" means the workspace
	Name string `json:"name,omitempty"` // a pattern of path.Match for the last element of a path
	Text []byte `json:"text,omitempty"` // must not contain a line feed or NUL
	Most int    `json:"most"`           // the most matches to return, 1 to MaxMatches
}

// Found are the matches of a Search, sorted by path, element by element, then by line.
type Found struct {
	Matches []Match `json:"matches,omitempty"`
	Limit   string  `json:"limit,omitempty"`   // the bound at which the search ended early, "" if it is complete
	Skipped int     `json:"skipped,omitempty"` // files and directories not read to their end: binary, unreadable, or file systems of the kernel
}

// A Match is an entry, or a line of a file. Its path is relative to the directory.
type Match struct {
	File FileInfo `json:"file"`
	Line int      `json:"line,omitempty"` // line number from 1 on, 0 if only the name matches
	Text []byte   `json:"text,omitempty"` // the line, or 512 bytes of it that contain the text
}

// The values of Found.Limit.
const (
	LimitMatches = "matches" // Search.Most, or the size of the response
	LimitEntries = "entries" // 65536 entries of directories
	LimitBytes   = "bytes"   // 64 MiB read
	LimitTime    = "time"    // 5 s
	LimitDepth   = "depth"   // directories whose path has more than 4095 bytes
)

// mostFound is the maximum size of the frame that answers a Search, in bytes.
const mostFound = maxJSON + headerSize

// SearchFiles returns the matches of a search, never more than search.Most. An [*Error] is the
// agent's answer. Ctx bounds the whole call. It closes conn.
func SearchFiles(ctx context.Context, conn net.Conn, search Search) (Found, error) {
	response, err := ask(ctx, atMost{conn, io.LimitReader(conn, mostFound)}, Request{Search: &search})
	if err != nil {
		return Found{}, err
	}
	if response.Found == nil {
		return Found{}, fmt.Errorf("%w: the response has no matches", ErrProtocol)
	}
	return *response.Found, response.Found.check(search.Most)
}

// check returns ErrProtocol for matches that no agent may send.
func (f Found) check(most int) error {
	if len(f.Matches) > most || f.Skipped < 0 {
		return fmt.Errorf("%w: the response has %d matches (at most %d were requested) and %d skipped files", ErrProtocol, len(f.Matches), most, f.Skipped)
	}
	switch f.Limit {
	case "", LimitMatches, LimitEntries, LimitBytes, LimitTime, LimitDepth:
	default:
		return fmt.Errorf("%w: the response names an unknown limit of the search", ErrProtocol)
	}
	for _, m := range f.Matches {
		if m.Line < 0 {
			return fmt.Errorf("%w: a match has the line number %d", ErrProtocol, m.Line)
		}
		if err := m.File.check(); err != nil {
			return err
		}
	}
	return nil
}
