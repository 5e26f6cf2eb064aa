package plain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/agent"
)

const (
	maxPaths  = 10_000
	maxPath   = 4096
	maxName   = 255
	pieceSize = 256 << 10 // bytes of a file that go out at once: each costs processes in the runner
)

// A plan is an update whose paths are absolute and clean, and fit each other.
// What is there is checked in the runner.
type plan struct {
	r       *Runner
	deletes []deletion
	writes  []string
	files   map[string]bool // paths that become files
	dirs    map[string]bool // paths that become directories
}

// A deletion is a path that goes, or everything in it.
type deletion struct {
	path   string
	inside bool
}

func (r *Runner) plan(update agent.Update) (*plan, error) {
	if len(update.Delete)+len(update.Write) > maxPaths {
		return nil, &agent.Error{Code: agent.ErrTooMany, Field: "write", Message: "more than 10000 paths in one update"}
	}
	p := &plan{r: r, files: map[string]bool{}, dirs: map[string]bool{}}
	for i, d := range update.Delete {
		if e := p.delete(d); e != nil {
			e.Field, e.Index, e.Path = "delete", i, d
			return nil, e
		}
	}
	for i, w := range update.Write {
		if e := p.write(w); e != nil {
			e.Field, e.Index, e.Path = "write", i, w.Path
			return nil, e
		}
	}
	return p, nil
}

func (p *plan) clean(name string) (string, *agent.Error) {
	invalid := func(message string) (string, *agent.Error) {
		return "", &agent.Error{Code: agent.ErrInvalid, Message: message}
	}
	switch {
	case name == "":
		return invalid("the path is empty")
	case strings.IndexByte(name, 0) >= 0:
		return invalid("the path holds a NUL")
	case len(name) >= maxPath:
		return invalid("the path is too long")
	}
	clean := path.Clean(p.r.absolute(name))
	for element := range strings.SplitSeq(clean, "/") {
		if len(element) > maxName {
			return invalid("a name in the path is longer than 255 bytes")
		}
	}
	return clean, nil
}

// isRoot reports whether a path is the workspace, or holds it.
func (p *plan) isRoot(name string) bool {
	return name == "/" || name == p.r.workspace || isBelow(p.r.workspace, name)
}

func isBelow(name, dir string) bool {
	return strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/") && len(name) > len(dir)
}

func (p *plan) delete(name string) *agent.Error {
	clean, e := p.clean(name)
	if e != nil {
		return e
	}
	d := deletion{path: clean}
	if path.Base(clean) == "*" {
		d = deletion{path: path.Dir(clean), inside: true}
	}
	if p.isRoot(d.path) && !(d.inside && d.path == p.r.workspace) {
		return &agent.Error{Code: agent.ErrInvalid, Message: "would delete the workspace itself"}
	}
	p.deletes = append(p.deletes, d)
	return nil
}

func (p *plan) write(w agent.Write) *agent.Error {
	clean, e := p.clean(w.Path)
	if e != nil {
		return e
	}
	if p.isRoot(clean) {
		return &agent.Error{Code: agent.ErrInvalid, Message: "is the workspace itself"}
	}
	for dir := path.Dir(clean); dir != "/" && !p.dirs[dir]; dir = path.Dir(dir) {
		if p.files[dir] {
			return &agent.Error{Code: agent.ErrWrongType, Message: "lies below a file of this update"}
		}
		p.dirs[dir] = true
	}
	if p.dirs[clean] && !w.Directory || p.files[clean] && w.Directory {
		return &agent.Error{Code: agent.ErrWrongType, Message: "is both a file and a directory in this update"}
	}
	if w.Directory {
		p.dirs[clean] = true
	} else {
		p.files[clean] = true
	}
	p.writes = append(p.writes, clean)
	return nil
}

// changed reports whether what is at a path now isn't what a write finds: the
// update itself deletes it, or something above it.
func (p *plan) changed(name string) bool {
	return slices.ContainsFunc(p.deletes, func(d deletion) bool {
		return !d.inside && name == d.path || isBelow(name, d.path)
	})
}

// told is what update.sh is told before it is told the contents.
func (p *plan) told(update agent.Update, name string) []byte {
	b := values(name, strconv.Itoa(len(p.deletes)))
	for _, d := range p.deletes {
		b = append(b, values(d.path, flag(d.inside))...)
	}
	b = appendValue(b, strconv.Itoa(len(p.writes)))
	for i, w := range update.Write {
		kind, mode := "file", "744"
		if w.Directory {
			kind, mode = "directory", ""
		}
		if w.Mode != 0 {
			mode = strconv.FormatUint(uint64(w.Mode), 8)
		}
		b = append(b, values(p.writes[i], kind, mode, flag(p.changed(p.writes[i])))...)
	}
	return b
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// take says how an exact number of bytes is taken from stdin in this image: GNU's
// head takes no more than it needs, busybox's does.
func (r *Runner) take() string {
	switch {
	case r.has("head"):
		return "head"
	case r.has("dd"):
		return "dd"
	default:
		return "bytewise"
	}
}

// An updating is an update on its way.
type updating struct {
	r      *Runner
	update agent.Update
	script *script
	word   string
	info   *bounded      // what stat printed of a single file
	heard  chan []string // has room for all that is due
}

// Update is of [serve.Files].
func (h host) Update(update agent.Update) (func(content func(i int) io.Reader) (agent.Updated, error), error) {
	if err := h.needFiles(""); err != nil {
		return nil, err
	}
	if !h.has("mv", "rm", "mkdir", "chmod") {
		return nil, &agent.Error{Code: agent.ErrDenied, Field: "write", Message: "the image has no mv, rm, mkdir and chmod, without which files can't be written where the agent isn't"}
	}
	p, err := h.plan(update)
	if err != nil {
		return nil, err
	}
	var u *updating
	err = again(h.ctx, func() error {
		u, err = p.begin(update)
		return err
	})
	if err != nil {
		return nil, err
	}
	// The client may go before it sends what it has announced.
	unused := time.AfterFunc(filesWithin, u.abort)
	return func(content func(i int) io.Reader) (agent.Updated, error) {
		if !unused.Stop() {
			return agent.Updated{}, errors.New("the contents came too late")
		}
		return u.apply(content)
	}, nil
}

// begin starts the script, and returns when it has checked the update and has
// touched nothing yet.
func (p *plan) begin(update agent.Update) (*updating, error) {
	r := p.r
	u := &updating{
		r: r, update: update, word: secret(), info: &bounded{most: 64 << 10},
		heard: make(chan []string, 2*len(update.Delete)+2*len(update.Write)+4),
	}
	u.script = r.run(r.ctx, launch{
		kind: r.updateKind, args: []string{r.take(), r.filesMark()}, told: p.told(update, u.word), stdout: u.info,
		heard: func(s *script, _ int, words []string) {
			if len(words) > 0 && (words[0] == "ended" || words[0] == "refused") {
				s.release(false)
			}
			select {
			case u.heard <- words:
			default: // more than is due
			}
		},
	}, secret())
	ctx, cancel := context.WithTimeout(r.ctx, filesWithin)
	defer cancel()
	words, err := u.next(ctx)
	if err == nil && words[0] != "ready" {
		err = u.refusal(words)
	}
	if err != nil {
		u.abort()
	}
	return u, err
}

// next returns what the script tells next.
func (u *updating) next(ctx context.Context) ([]string, error) {
	var words []string
	select {
	case words = <-u.heard:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-u.script.done:
		select {
		case words = <-u.heard:
		default:
			return nil, fmt.Errorf("update in the runner: %w", u.script.result())
		}
	}
	if len(words) == 0 {
		return nil, errors.New("the runner's answer isn't understood")
	}
	return words, nil
}

// abort lets the script end, which then leaves the file on its way as it was.
func (u *updating) abort() { u.script.cut() }

// refusal makes what the script says against the update the client's.
func (u *updating) refusal(words []string) error {
	if len(words) != 4 || words[0] != "refused" {
		return fmt.Errorf("the runner's answer isn't understood: %q", words)
	}
	e := reason(words[1])
	i, err := strconv.Atoi(words[3])
	switch {
	case err == nil && words[2] == "delete" && i >= 0 && i < len(u.update.Delete):
		e.Path = u.update.Delete[i]
	case err == nil && words[2] == "write" && i >= 0 && i < len(u.update.Write):
		e.Path = u.update.Write[i].Path
	default:
		return fmt.Errorf("the runner's answer isn't understood: %q", words)
	}
	e.Field, e.Index = words[2], i
	return e
}

func reason(word string) *agent.Error {
	switch word {
	case "directory":
		return &agent.Error{Code: agent.ErrWrongType, Message: "is a directory"}
	case "wrongType":
		return &agent.Error{Code: agent.ErrWrongType, Message: "is no directory, or lies below something that is none"}
	case "full":
		return &agent.Error{Code: agent.ErrFull, Message: "no room left"}
	default:
		return &agent.Error{Code: agent.ErrDenied, Message: "permission denied"}
	}
}

// apply sends the contents, and gathers what became of the update.
func (u *updating) apply(content func(i int) io.Reader) (agent.Updated, error) {
	buffer := make([]byte, pieceSize)
	for i, w := range u.update.Write {
		if w.Directory {
			continue
		}
		if err := u.send(content(i), buffer); err != nil {
			u.abort()
			return agent.Updated{}, err
		}
	}
	updated := agent.Updated{Written: []string{}, Deleted: []string{}}
	for {
		words, err := u.next(u.r.ctx)
		if err != nil {
			return updated, err
		}
		if words[0] == "ended" {
			break
		}
		if err := u.take(words, &updated); err != nil {
			return updated, err
		}
	}
	if len(updated.Written) == 1 && len(u.update.Delete)+len(u.update.Write) == 1 && !u.update.Write[0].Directory {
		printed, _ := u.info.take()
		if info, err := oneInfo(printed, u.word, updated.Written[0]); err == nil {
			updated.File = &info
		}
	}
	return updated, nil
}

// send gives a content to the script in pieces, each after its size. A script
// that has ended says why later.
func (u *updating) send(content io.Reader, buffer []byte) error {
	for {
		n, err := 0, error(nil)
		for n < len(buffer) && err == nil { // not io.ReadFull, which makes a cut stream look like an end
			var more int
			more, err = content.Read(buffer[n:])
			n += more
		}
		if err != nil && err != io.EOF {
			return err
		}
		piece := append(values(strconv.Itoa(n)), buffer[:n]...)
		if err == io.EOF && n > 0 {
			piece = append(piece, values("0")...)
		}
		if _, failed := u.script.input.give(piece); failed != nil || err == io.EOF {
			return nil
		}
	}
}

// take takes in what became of one path.
func (u *updating) take(words []string, updated *agent.Updated) error {
	text := strings.Join(words, " ")
	var i int
	var field, why string
	switch {
	case words[0] == "info":
		return nil
	case len(words) == 2 && words[0] == "deleted":
		field = "delete"
		i, _ = strconv.Atoi(words[1])
	case len(words) == 2 && words[0] == "written":
		field = "write"
		i, _ = strconv.Atoi(words[1])
	case len(words) == 4 && words[0] == "failed":
		field, why = words[1], words[3]
		i, _ = strconv.Atoi(words[2])
	default:
		return fmt.Errorf("the runner's answer isn't understood: %q", text)
	}
	var p string
	switch {
	case field == "delete" && i >= 0 && i < len(u.update.Delete):
		p = u.update.Delete[i]
	case field == "write" && i >= 0 && i < len(u.update.Write):
		p = u.update.Write[i].Path
	default:
		return fmt.Errorf("the runner's answer isn't understood: %q", text)
	}
	switch {
	case why != "":
		e := reason(why)
		updated.Failed = append(updated.Failed, agent.Failure{Path: p, Code: e.Code, Message: e.Message})
	case field == "delete":
		updated.Deleted = append(updated.Deleted, p)
	default:
		updated.Written = append(updated.Written, p)
	}
	return nil
}
