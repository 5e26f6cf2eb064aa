package files

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"path"
	"slices"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime/paths"
)

// Limits of a search, in addition to those of a list.
const (
	mostSearched  = 64 << 20  // bytes read
	mostAnswered  = 700 << 10 // bytes of the response
	searchTime    = 5 * time.Second
	shownOfLine   = 512 // bytes of a matching line in the response
	searchBuffer  = 64 << 10
	matchOverhead = 300 // bytes of a match's JSON without its texts
)

// A search is one Search in progress. One goroutine uses it.
type search struct {
	agent.Search
	ctx     context.Context
	files   *Files
	until   time.Time // when the search ends early
	reader  *bufio.Reader
	longest int      // bytes of a path that a client can name
	later   []string // deep directories that are searched at the end
	found   agent.Found
	entries int   // inspected so far
	read    int64 // bytes of files, so far
	size    int   // of the response, in bytes
}

// Search implements serve.Executor.
func (f *Files) Search(ctx context.Context, wanted agent.Search) (agent.Found, error) {
	var err error
	if wanted.Name, err = paths.Bytes(wanted.Name); err != nil {
		return agent.Found{}, &agent.Error{Code: agent.ErrInvalid, Field: "name", Message: err.Error()}
	}
	fd, top, longest, err := f.openTop(wanted.Path)
	if err != nil {
		return agent.Found{}, err
	}
	defer func() { _ = unix.Close(top) }()
	s := &search{Search: wanted, ctx: ctx, files: f, until: time.Now().Add(searchTime), longest: longest, reader: bufio.NewReaderSize(nil, searchBuffer)}
	if pseudo(fd) {
		_ = unix.Close(fd)
		return agent.Found{}, &agent.Error{Code: agent.ErrDenied, Path: wanted.Path, Message: "is in a file system of the kernel, such as /proc, which can't be searched"}
	}
	s.directory(fd, "", 0)
	for len(s.later) > 0 && !s.over() {
		at := s.later[0]
		s.later = s.later[1:]
		s.below(top, at, at, 0)
	}
	return s.found, nil
}

func (s *search) over() bool {
	switch s.found.Limit {
	case agent.LimitMatches, agent.LimitBytes, agent.LimitTime:
		return true
	}
	switch {
	case s.read >= mostSearched:
		s.found.Limit = agent.LimitBytes
	case s.ctx.Err() != nil || !time.Now().Before(s.until):
		s.found.Limit = agent.LimitTime
	default:
		return false
	}
	return true
}

// directory searches fd, which it closes, and the entries below.
func (s *search) directory(fd int, prefix string, depth int) {
	dir := os.NewFile(uintptr(fd), "directory")
	defer func() { _ = dir.Close() }()
	for _, name := range s.names(dir) {
		if s.over() {
			return
		}
		var stat unix.Stat_t
		if unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil { // else it was removed meanwhile
			s.entry(fd, prefix+name, name, &stat, depth)
		}
	}
}

// names returns a directory's names, sorted, as many as the search may still inspect.
func (s *search) names(dir *os.File) []string {
	var names []string
	for !s.over() {
		if s.entries == maxEntries {
			s.found.Limit = agent.LimitEntries
			break
		}
		some, err := dir.Readdirnames(min(1024, maxEntries-s.entries))
		names = append(names, some...)
		s.entries += len(some)
		if err != nil {
			if err != io.EOF {
				s.found.Skipped++
			}
			break
		}
	}
	slices.Sort(names)
	return names
}

func (s *search) entry(parent int, at, name string, stat *unix.Stat_t, depth int) {
	named := true
	if s.Name != "" {
		named, _ = path.Match(s.Name, name) // the pattern was checked
	}
	info := s.files.info(parent, name, at, stat)
	switch {
	case named && len(s.Text) == 0:
		s.add(agent.Match{File: info})
	case named && info.Type == "file":
		s.file(parent, name, info)
	}
	if info.Type == "directory" && !s.over() {
		s.below(parent, at, name, depth+1)
	}
}

func (s *search) below(parent int, at, name string, depth int) {
	switch {
	case len(at) > s.longest:
		s.found.Limit = cmp.Or(s.found.Limit, agent.LimitDepth)
		return
	case depth > maxDepth:
		s.later = append(s.later, at)
		return
	}
	fd, err := s.files.openBelow(parent, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		s.found.Skipped++
		return
	}
	s.directory(fd, at+"/", depth)
}

// add adds a match, if the response has space for it.
func (s *search) add(match agent.Match) {
	size := matchOverhead + (len(match.File.Path)+len(match.Text)+len(match.File.LinkTarget))*4/3 + 6*(len(match.File.Owner)+len(match.File.Group))
	if len(s.found.Matches) == s.Most || s.size+size > mostAnswered {
		s.found.Limit = agent.LimitMatches
		return
	}
	s.size += size
	s.found.Matches = append(s.found.Matches, match)
}

// file searches a regular file. It opens the file for reading only after it knows that it is
// regular, because user code can put a FIFO in its place.
func (s *search) file(parent int, name string, info agent.FileInfo) {
	whole := false
	defer func() {
		if !whole {
			s.found.Skipped++
		}
	}()
	at, err := s.files.openIn(parent, name, unix.O_PATH|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(at) }()
	var stat unix.Stat_t
	if unix.Fstat(at, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || pseudo(at) {
		return
	}
	fd, err := s.files.reopen(at)
	if err != nil {
		return
	}
	content := os.NewFile(uintptr(fd), "file")
	defer func() { _ = content.Close() }()
	s.reader.Reset(countingReader{content, &s.read})
	whole = s.lines(info)
}

// lines searches the lines of a file. It reports whether it reached the file's end or a limit of
// the search.
func (s *search) lines(info agent.FileInfo) (whole bool) {
	line, matched := 1, false
	var carried []byte // the end of the searched part of a long line
	for {
		piece, err := s.reader.ReadSlice('\n')
		// A file with a NUL is binary.
		if bytes.IndexByte(piece, 0) >= 0 || err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return false
		}
		text := piece
		if len(carried) > 0 {
			text = slices.Concat(carried, piece)
		}
		if i := bytes.Index(text, s.Text); i >= 0 && !matched {
			matched = true
			s.add(agent.Match{File: info, Line: line, Text: shown(text, i, len(s.Text))})
		}
		switch {
		case err == io.EOF, s.over():
			return true
		case err == nil:
			line, matched, carried = line+1, false, nil
		default:
			// The text may span two pieces of the line, so the end that could be its beginning is
			// kept.
			carried = bytes.Clone(text[len(text)-min(len(text), len(s.Text)-1):])
		}
	}
}

// countingReader counts the bytes that are read, also if they are discarded.
type countingReader struct {
	from io.Reader
	n    *int64
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	*c.n += int64(n)
	return n, err
}

// shown returns the part of a line that a match shows. It contains the text, which begins at i.
func shown(line []byte, i, length int) []byte {
	line = bytes.TrimRight(line, "\r\n")
	from := 0
	if i+length > shownOfLine {
		from = i - min(i, max(0, (shownOfLine-length)/2))
	}
	to := min(len(line), from+shownOfLine)
	// No character is cut in half.
	for from > 0 && from < i && !utf8.RuneStart(line[from]) {
		from++
	}
	for to < len(line) && to > i+length && !utf8.RuneStart(line[to]) {
		to--
	}
	return bytes.Clone(line[from:to])
}
