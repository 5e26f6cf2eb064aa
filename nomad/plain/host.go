package plain

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" // for a command whose environment has no PATH

	// startWithin is for how long a start is tried, before anything can have run.
	startWithin = 20 * time.Second

	// fileBlock is what ulimit counts files in.
	fileBlock = 512
)

// A host starts commands in the runner. It is the server's [serve.Host].
type host struct{ *Runner }

// Start is of [serve.Host].
func (h host) Start(start agent.Start) (serve.Process, error) {
	if err := h.alive(); err != nil {
		return nil, err
	}
	if err := possible(start); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(h.ctx, startWithin)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		p, again, err := h.begin(ctx, start)
		if err == nil || !again {
			return p, err
		}
		if !sleep(ctx, pause) {
			return nil, fmt.Errorf("start %s: %w", start.ID, err)
		}
	}
}

// possible refuses what can't be had without the agent.
func possible(start agent.Start) error {
	missing := func(field, message string) error {
		return &agent.Error{Code: agent.ErrDenied, Field: field, Message: message + " without the agent"}
	}
	if start.Privileged {
		return missing("privileged", "commands can't be run as another user")
	}
	if l := start.Limits; l != nil && l.CPU > 0 {
		return missing("limits", "an execution's processor time can't be limited")
	}
	if l := start.Limits; l != nil && l.Processes > 0 {
		return missing("limits", "an execution's processes can't be limited")
	}
	if strings.Contains(start.Argv[0], "=") {
		return &agent.Error{Code: agent.ErrInvalid, Field: "argv", Path: start.Argv[0], Message: "a command with = in its name can't be run without the agent"}
	}
	return nil
}

// told is what run.sh is told of a start.
func (h host) told(start agent.Start, fifo string) []byte {
	var input, isolate, openFiles, blocks, size string
	if start.Stdin || start.Terminal != nil {
		input = "1"
	}
	if h.has("setsid") && start.Terminal == nil {
		isolate = "setsid"
	}
	if l := start.Limits; l != nil && l.OpenFiles > 0 {
		openFiles = strconv.Itoa(l.OpenFiles)
	}
	if l := start.Limits; l != nil && l.FileSize > 0 {
		blocks = strconv.FormatInt((l.FileSize+fileBlock-1)/fileBlock, 10)
	}
	if t := start.Terminal; t != nil {
		size = fmt.Sprintf("rows %d cols %d", t.Rows, t.Columns)
	}
	search := defaultPath
	for _, v := range start.Env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			search = value
		}
	}
	told := values(h.absolute(start.Dir), search, input, isolate, openFiles, blocks, fifo, size, start.Argv[0])
	return append(told, list(append(append([]string(nil), start.Env...), start.Argv...))...)
}

func (r *Runner) absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return r.workspace + "/" + p
}

// begin starts a command, and returns when it has begun. Again says that
// nothing can have run.
func (h host) begin(ctx context.Context, start agent.Start) (begun *process, again bool, err error) {
	p := newProcess(h.Runner, start)
	if start.Terminal != nil && h.room != "" && h.has("mkfifo", "cat") {
		p.fifo = h.room + "/rockpool-" + secret()
	}
	p.run(h.told(start, p.fifo))
	words, err := p.next(ctx)
	if err == nil && len(words) == 1 && words[0] == "ready" {
		p.script.input.tell(values("go"))
		words, err = p.next(ctx)
	} else {
		again = err != nil
	}
	switch {
	case err != nil:
		// It may have begun, or waits for a word.
		p.discard()
		p.r.running.Go(func() {
			ctx, cancel := context.WithTimeout(p.r.ctx, killWithin)
			defer cancel()
			p.finally(ctx)
		})
		return nil, again, err
	case words[0] != started || len(words) < 3:
		p.discard()
		return nil, false, refusal(words, start)
	}
	if start.Terminal != nil {
		p.Resize(*start.Terminal) // where the image has no stty
	}
	p.follow()
	return p, false, nil
}

// next returns what the script tells next, before its command has begun.
func (p *process) next(ctx context.Context) ([]string, error) {
	select {
	case words := <-p.begun:
		return words, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-p.script.done:
		select {
		case words := <-p.begun:
			return words, nil
		default:
			return nil, p.script.result()
		}
	}
}

// refusal makes what run.sh says against a start the client's.
func refusal(words []string, start agent.Start) error {
	e := &agent.Error{Code: agent.ErrInternal, Message: "the command could not be started"}
	if len(words) != 3 || words[0] != "refused" {
		return e
	}
	e.Field = words[2]
	switch e.Field {
	case "argv":
		e.Path = start.Argv[0]
	case "dir":
		e.Path = start.Dir
	}
	switch words[1] + " " + words[2] {
	case "notFound argv":
		e.Code, e.Message = agent.ErrNotFound, "command not found"
	case "wrongType argv":
		e.Code, e.Message = agent.ErrWrongType, "a directory, not a command"
	case "denied argv":
		e.Code, e.Message = agent.ErrDenied, "not executable"
	case "notFound dir":
		e.Code, e.Message = agent.ErrNotFound, "no such file or directory"
	case "wrongType dir":
		e.Code, e.Message = agent.ErrWrongType, "not a directory"
	case "denied dir":
		e.Code, e.Message = agent.ErrDenied, "may not be entered"
	case "invalid limits":
		e.Code, e.Message = agent.ErrInvalid, "more than the runner itself may have"
	}
	return e
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// sleep waits, and reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
