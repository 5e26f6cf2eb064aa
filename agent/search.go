package agent

import (
	"context"
	"fmt"
	"io"
	"net"
)

// MaxMatches bounds the matches of a Search.
const MaxMatches = 1000

// Search asks for the entries below a directory whose names match a pattern, and for the lines of regular
// files that contain a text. At least one of Name and Text is set. With both, only files whose
// names match are read.
type Search struct {
	Path string `json:"path"`           // "": the workspace
	Name string `json:"name,omitempty"` // a pattern of path.Match, for the last element of a path
	Text []byte `json:"text,omitempty"` // without a line feed and NUL
	Most int    `json:"most"`           // matches, 1 to MaxMatches
}

// Found are the matches of a Search, sorted by path, element by element, then by line.
type Found struct {
	Matches []Match `json:"matches,omitempty"`
	Limit   string  `json:"limit,omitempty"`   // the bound at which the search ended early; "": all was searched
	Skipped int     `json:"skipped,omitempty"` // files that weren't read to their end, and directories that weren't read: binary, not readable, or views of the kernel
}

// A Match is an entry, or a line of a file. Its path is relative to the directory.
type Match struct {
	File FileInfo `json:"file"`
	Line int      `json:"line,omitempty"` // from 1 on; 0: its name matches
	Text []byte   `json:"text,omitempty"` // the line, or 512 bytes of it that contain the text
}

// The bounds of a Search.
const (
	LimitMatches = "matches" // Search.Most, or the size of the answer
	LimitEntries = "entries" // 65536 entries of directories
	LimitBytes   = "bytes"   // 64 MiB read
	LimitTime    = "time"    // 5 s
	LimitDepth   = "depth"   // directories 128 deep, or whose path has more than 4096 bytes
)

// mostFound bounds the frame that answers a Search.
const mostFound = maxJSON + headerSize

// SearchFiles returns what a search finds. There are no more matches than asked for. An [*Error] is the
// agent's: ErrIncompatible says that it is too old. Ctx bounds the whole. It closes conn.
func SearchFiles(ctx context.Context, conn net.Conn, search Search) (Found, error) {
	if err := checkPath(conn, search.Path); err != nil {
		return Found{}, err
	}
	x, response, err := open(ctx, atMost{conn, io.LimitReader(conn, mostFound)}, Request{Search: &search})
	if err != nil {
		return Found{}, err
	}
	x.close()
	if response.Found == nil {
		return Found{}, fmt.Errorf("%w: no answer to a search", ErrProtocol)
	}
	return *response.Found, response.Found.check(search.Most)
}

func (f Found) check(most int) error {
	if len(f.Matches) > most || f.Skipped < 0 {
		return fmt.Errorf("%w: %d matches of at most %d, %d skipped", ErrProtocol, len(f.Matches), most, f.Skipped)
	}
	switch f.Limit {
	case "", LimitMatches, LimitEntries, LimitBytes, LimitTime, LimitDepth:
	default:
		return fmt.Errorf("%w: a search with an unknown limit", ErrProtocol)
	}
	for _, m := range f.Matches {
		if m.Line < 0 {
			return fmt.Errorf("%w: line %d", ErrProtocol, m.Line)
		}
		if err := m.File.check(); err != nil {
			return err
		}
	}
	return nil
}
