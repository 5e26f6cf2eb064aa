package plain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/agent"
)

const (
	maxEntries = 1 << 16  // of one list
	maxDepth   = 128      // of one list
	mostListed = 64 << 20 // bytes of one list, as stat and find print it

	// filesWithin is for how long a list or the beginning of a file may take.
	filesWithin = 60 * time.Second
)

// filesMark names a script that may have to be ended from outside.
func (r *Runner) filesMark() string { return r.owner + r.instance + ":" + secret()[:16] + "." }

// needFiles refuses a path that can't be, and all where the image lacks what it
// needs.
func (h host) needFiles(p string) error {
	if err := h.alive(); err != nil {
		return err
	}
	if !h.has("find", "stat", "cat") {
		return &agent.Error{Code: agent.ErrDenied, Message: "the image has no find, stat and cat, without which files can't be reached where the agent isn't"}
	}
	if strings.IndexByte(p, 0) >= 0 {
		return &agent.Error{Code: agent.ErrInvalid, Path: p, Message: "not a valid path"}
	}
	return nil
}

// List is of [serve.Files].
func (h host) List(list agent.ListDir, each func(agent.FileInfo) error) error {
	if err := h.needFiles(list.Path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(h.ctx, filesWithin)
	defer cancel()
	what := "list"
	if list.Recursive {
		what = "tree"
	}
	printed, word, err := h.ask(ctx, what, list.Path, mostListed)
	if err != nil {
		return err
	}
	entries, links, _ := bytes.Cut(printed, []byte{0}) // which no name holds
	all := parseInfos(entries, word)
	if len(all) > maxEntries {
		return &agent.Error{Code: agent.ErrTooMany, Path: list.Path, Message: "holds more than 65536 entries"}
	}
	targets := parseLinks(links)
	for i := range all {
		if all[i].Type == "link" {
			all[i].LinkTarget = targets[string(all[i].Path)]
		}
		all[i].Path = bytes.TrimPrefix(all[i].Path, []byte("./"))
		if bytes.Count(all[i].Path, []byte("/")) > maxDepth {
			return &agent.Error{Code: agent.ErrTooMany, Path: list.Path, Message: "holds directories more than 128 deep"}
		}
	}
	slices.SortFunc(all, func(a, b agent.FileInfo) int { return comparePaths(a.Path, b.Path) })
	for _, info := range all {
		if err := each(info); err != nil {
			return err
		}
	}
	return nil
}

// ask runs files.sh, and returns what it printed and the word before each entry.
func (r *Runner) ask(ctx context.Context, what, p string, most int) (printed []byte, word string, err error) {
	word = secret()
	err = again(ctx, func() error {
		var words []string
		var err error
		printed, words, err = r.call(ctx, r.filesKind, most, values(r.absolute(p), word, "0"), what, r.filesMark())
		if err != nil {
			return err
		}
		return refusedFile(words, p)
	})
	return printed, word, err
}

// comparePaths compares element by element.
func comparePaths(a, b []byte) int {
	return slices.CompareFunc(bytes.Split(a, []byte("/")), bytes.Split(b, []byte("/")), bytes.Compare)
}

// Stat is of [serve.Files].
func (h host) Stat(p string) (agent.FileInfo, error) {
	if err := h.needFiles(p); err != nil {
		return agent.FileInfo{}, err
	}
	ctx, cancel := context.WithTimeout(h.ctx, filesWithin)
	defer cancel()
	printed, word, err := h.ask(ctx, "stat", p, 64<<10)
	if err != nil {
		return agent.FileInfo{}, err
	}
	return oneInfo(printed, word, p)
}

func oneInfo(printed []byte, word, p string) (agent.FileInfo, error) {
	all := parseInfos(printed, word)
	if len(all) != 1 {
		return agent.FileInfo{}, fmt.Errorf("stat %s: %d answers", p, len(all))
	}
	all[0].Path = []byte(p)
	return all[0], nil
}

// refusedFile makes what files.sh says against a path the client's.
func refusedFile(words []string, p string) error {
	e := &agent.Error{Path: p}
	switch strings.Join(words, " ") {
	case "ended 0":
		return nil
	case "refused notFound":
		e.Code, e.Message = agent.ErrNotFound, "no such file or directory"
	case "refused wrongType":
		e.Code, e.Message = agent.ErrWrongType, "not a directory"
	case "refused directory":
		e.Code, e.Message = agent.ErrWrongType, "a directory, not a file"
	case "refused irregular":
		e.Code, e.Message = agent.ErrWrongType, "not a regular file"
	case "refused denied":
		e.Code, e.Message = agent.ErrDenied, "permission denied"
	default:
		return fmt.Errorf("the runner's answer isn't understood: %q", words)
	}
	return e
}

// parseInfos takes apart what stat printed, each entry after the word.
func parseInfos(printed []byte, word string) (all []agent.FileInfo) {
	for i, entry := range bytes.Split(printed, []byte(word+" ")) {
		fields := bytes.SplitN(bytes.TrimSuffix(entry, []byte("\n")), []byte(" "), 10)
		if i == 0 || len(fields) < 10 {
			continue
		}
		if info, ok := parseInfo(fields); ok {
			all = append(all, info)
		}
	}
	return all
}

// parseInfo takes apart: mode in hex, size, date, time, zone, user's number and
// name, group's number and name, path.
func parseInfo(fields [][]byte) (agent.FileInfo, bool) {
	mode, err := strconv.ParseUint(string(fields[0]), 16, 32)
	if err != nil {
		return agent.FileInfo{}, false
	}
	size, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil || size < 0 {
		return agent.FileInfo{}, false
	}
	at, err := time.Parse("2006-01-02 15:04:05 -0700", string(bytes.Join(fields[2:5], []byte(" "))))
	if err != nil {
		return agent.FileInfo{}, false
	}
	info := agent.FileInfo{
		Path: fields[9], Size: size, Mode: uint32(mode) & 0o7777, ModifiedAt: at.UTC(),
		Owner: named(fields[5], fields[6]), Group: named(fields[7], fields[8]),
	}
	switch mode & 0o170000 {
	case 0o100000:
		info.Type = "file"
	case 0o040000:
		info.Type = "directory"
	case 0o120000:
		info.Type = "link"
	default:
		info.Type = "other"
	}
	return info, true
}

// named returns a name, or the number of who has none.
func named(number, name []byte) string {
	if string(name) == "UNKNOWN" {
		return string(number)
	}
	return string(name)
}

// parseLinks takes apart: path, NUL, target, NUL …
func parseLinks(printed []byte) map[string][]byte {
	targets := map[string][]byte{}
	parts := bytes.Split(printed, []byte{0})
	for i := 0; i+1 < len(parts); i += 2 {
		targets[string(parts[i])] = parts[i+1]
	}
	return targets
}

// Open is of [serve.Files].
func (h host) Open(p string) (agent.FileInfo, io.ReadSeekCloser, error) {
	if err := h.needFiles(p); err != nil {
		return agent.FileInfo{}, nil, err
	}
	f := &file{r: h.Runner, path: p}
	if err := again(h.ctx, func() error { return f.open(0) }); err != nil {
		return agent.FileInfo{}, nil, err
	}
	return f.info, f, nil
}

// A file is one that is being read. It is for one goroutine.
type file struct {
	r    *Runner
	path string
	info agent.FileInfo

	script  *script
	mark    string
	content *io.PipeReader
	ended   chan struct{} // closed when all of it came
}

// open begins to read at an offset.
func (f *file) open(offset int64) error {
	content, out := io.Pipe()
	header := &bounded{most: 64 << 10}
	begun := make(chan []string, 1)
	ended := make(chan struct{})
	into := &switched{now: header}
	word := secret()
	f.mark, f.content, f.ended = f.r.filesMark(), content, ended
	f.script = f.r.run(f.r.ctx, launch{
		kind: f.r.filesKind, args: []string{"read", f.mark}, stdout: into,
		told: values(f.r.absolute(f.path), word, strconv.FormatInt(offset, 10)),
		heard: func(s *script, _ int, words []string) {
			switch {
			case len(words) == 1 && words[0] == "content":
				into.now = out
			case len(words) == 2 && words[0] == "ended":
				_ = out.Close()
				select {
				case <-ended:
				default:
					close(ended)
				}
				s.release(false)
			default:
				s.release(false)
			}
			select {
			case begun <- words:
			default:
			}
		},
	}, secret())
	s := f.script
	f.r.running.Go(func() {
		<-s.done
		_ = out.CloseWithError(fmt.Errorf("read in the runner: %w", s.result())) // nothing, after the end
	})
	late := time.NewTimer(filesWithin)
	defer late.Stop()
	var words []string
	select {
	case words = <-begun:
	case <-s.done:
		select {
		case words = <-begun:
		default:
			return fmt.Errorf("read in the runner: %w", s.result())
		}
	case <-late.C:
		f.abort()
		return fmt.Errorf("read in the runner: no answer for %s", filesWithin)
	}
	if len(words) != 1 || words[0] != "content" {
		return refusedFile(words, f.path)
	}
	printed, _ := header.take()
	var err error
	if f.info, err = oneInfo(printed, word, f.path); err != nil {
		f.abort()
	}
	return err
}

// Read is of [io.Reader].
func (f *file) Read(p []byte) (int, error) { return f.content.Read(p) }

// Seek is of [io.Seeker], from the start only and before the first Read.
func (f *file) Seek(offset int64, _ int) (int64, error) {
	if offset == 0 {
		return 0, nil
	}
	f.abort()
	return offset, again(f.r.ctx, func() error { return f.open(offset) })
}

// Close is of [io.Closer].
func (f *file) Close() error {
	select {
	case <-f.ended:
	default:
		f.abort()
	}
	return f.content.Close()
}

// abort ends the script in the middle.
func (f *file) abort() {
	_ = f.content.Close()
	s, r, mark := f.script, f.r, f.mark
	r.running.Go(func() { r.abandon(s, mark) })
}

// abandon ends a script that doesn't wait for its stdin, and its exec.
func (r *Runner) abandon(s *script, mark string) {
	ctx, cancel := context.WithTimeout(r.ctx, signalWithin)
	defer cancel()
	told := values(mark, "", "", "", "")
	err := again(ctx, func() error {
		_, _, err := r.call(ctx, r.killKind, 0, told, "end")
		return err
	})
	if err != nil && r.ctx.Err() == nil {
		r.config.Report(fmt.Errorf("end what reads a file: %w", err))
	}
	s.cancel(errClosed)
}

// switched writes to what is now; it is switched between two writes.
type switched struct{ now io.Writer }

func (w *switched) Write(b []byte) (int, error) { return w.now.Write(b) }
