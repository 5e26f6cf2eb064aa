package plain

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/agent"
)

var (
	//go:embed common.sh
	commonScript string
	//go:embed members.sh
	membersScript string
	//go:embed open.sh
	openScript string
	//go:embed run.sh
	runScript string
	//go:embed kill.sh
	killScript string
	//go:embed tap.sh
	tapScript string
	//go:embed files.sh
	filesScript string
	//go:embed update.sh
	updateScript string
)

// A kind is a script that runs in the runner; its name tells what it is in the
// runner's list of processes.
type kind struct{ name, text string }

// kinds are all of them.
type kinds struct{ openKind, runKind, killKind, tapKind, filesKind, updateKind kind }

func scripts() kinds {
	return kinds{
		openKind:   kind{"open", shorten(commonScript, membersScript, openScript)},
		runKind:    kind{"run", shorten(commonScript, membersScript, runScript)},
		killKind:   kind{"kill", shorten(commonScript, membersScript, killScript)},
		tapKind:    kind{"tap", shorten(commonScript, tapScript)},
		filesKind:  kind{"files", shorten(commonScript, filesScript)},
		updateKind: kind{"update", shorten(commonScript, updateScript)},
	}
}

// shorten joins the parts of a script without comments and indentation: it goes
// out with every exec, and into the cluster's log.
func shorten(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		for line := range strings.Lines(part) {
			line = strings.TrimLeft(line, "\t")
			if !strings.HasPrefix(line, "#") && line != "\n" {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// lateEnd is how long an exec may go on after its script was told to end. Most
// take milliseconds; docker's looks every 100 ms.
const lateEnd = 15 * time.Second

// A script is one exec on its way.
type script struct {
	secret string
	input  *input
	done   chan struct{} // closed when the exec returned
	cancel context.CancelCauseFunc

	mu     sync.Mutex // guards what follows
	code   int        // of the exec, once it is done
	err    error
	ending *time.Timer
}

// launch says how a script is run.
type launch struct {
	kind           kind
	args           []string
	told           []byte // beside the secret
	terminal       bool
	resize         <-chan agent.Size
	stdout, stderr io.Writer // may be nil: thrown away
	// What the script tells, by the stream (1 or 2). It must not block.
	heard func(s *script, stream int, words []string)
}

// run starts a script. It goes on until ctx ends or it does.
func (r *Runner) run(ctx context.Context, l launch, secret string) *script {
	s := &script{secret: secret, done: make(chan struct{})}
	s.input = newInput(append(values(secret), l.told...))
	ctx, s.cancel = context.WithCancelCause(ctx)
	hear := func(stream int) func([]string) {
		return func(words []string) {
			if l.heard != nil {
				l.heard(s, stream, words)
			}
		}
	}
	stdout := newSplitter(secret, l.terminal, l.stdout, hear(1))
	stderr := newSplitter(secret, false, l.stderr, hear(2))
	r.running.Go(func() {
		defer close(s.done)
		defer s.cancel(nil)
		code, err := r.exec.Exec(ctx, Command{
			Argv:     append([]string{"/bin/sh", "-c", l.kind.text, r.owner + l.kind.name}, l.args...),
			Terminal: l.terminal, Stdin: s.input, Stdout: stdout, Stderr: stderr, Resize: l.resize,
		})
		s.input.end() // whoever reads it still ends, too
		stdout.close()
		stderr.close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.code, s.err = code, err
		if s.ending != nil {
			s.ending.Stop()
		}
	})
	return s
}

// release lets the script end, which waits for that: the server has all that
// was printed. It may be called many times.
func (s *script) release(terminal bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending != nil {
		return
	}
	s.ending = time.AfterFunc(lateEnd, func() { s.cancel(errLate) })
	if s.input.atEnd() {
		// It can't be told, and ends by itself: its exec's connection is of no more use.
		s.cancel(errLate)
		return
	}
	s.input.stop()
	s.input.tell([]byte("\n" + s.secret + "\n"))
	if !terminal { // there, an end of the stdin can end more than the stdin
		s.input.end()
	}
}

// cut ends the script's stdin in the middle, which a script that reads it takes
// for its end.
func (s *script) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil {
		s.ending = time.AfterFunc(lateEnd, func() { s.cancel(errLate) })
	}
	s.input.end()
}

var errLate = errors.New("it was told to end, and didn't")

// result returns how the exec ended, once it is done.
func (s *script) result() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	default:
		return fmt.Errorf("the exec ended with %d", s.code)
	}
}

// mostTries bounds how often what does no harm twice is tried: 3 of 100 execs on
// Nomad's docker driver end with a false 0 before their command begins, because
// it asks too early whether it still runs.
const mostTries = 6

// again calls f until it succeeds, says something that a client is to hear, or
// has been tried often enough.
func again(ctx context.Context, f func() error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := f()
		var told *agent.Error
		if err == nil || errors.As(err, &told) || errors.Is(err, ErrImpossible) || try == mostTries || !sleep(ctx, pause) {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// errBegun is in the chain of the error of a call that may have had its effect.
var errBegun = errors.New("its answer is lost")

// call runs a script to its end and returns what it printed, at most this many
// bytes, and the words that it ended with. A script whose effect must not come
// twice says "ready" before it: if it is lost later, the error has errBegun.
func (r *Runner) call(ctx context.Context, k kind, most int, told []byte, args ...string) (printed []byte, words []string, err error) {
	out := &bounded{most: most}
	ended := make(chan []string, 1)
	var begun atomic.Bool
	s := r.run(ctx, launch{kind: k, args: args, told: told, stdout: out, heard: func(s *script, _ int, words []string) {
		if len(words) == 1 && words[0] == "ready" {
			begun.Store(true)
			s.input.tell(values("go"))
			return
		}
		s.release(false)
		select {
		case ended <- words:
		default:
		}
	}}, secret())
	select {
	case words = <-ended:
	case <-s.done:
		select {
		case words = <-ended:
		default:
			why := fmt.Errorf("%s in the runner: %w", k.name, s.result())
			if ctx.Err() != nil {
				why = context.Cause(ctx)
			}
			if begun.Load() {
				why = fmt.Errorf("%w: %w", errBegun, why)
			}
			return nil, nil, why
		}
	}
	printed, over := out.take()
	if over {
		return nil, words, &agent.Error{Code: agent.ErrTooMany, Message: "the runner's answer is too long"}
	}
	return printed, words, nil
}

// bounded keeps what is written, up to a bound.
type bounded struct {
	most int

	mu   sync.Mutex // guards what follows
	b    []byte
	over bool
}

func (w *bounded) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.b)+len(b) > w.most {
		w.over = true
		return 0, io.ErrShortWrite
	}
	w.b = append(w.b, b...)
	return len(b), nil
}

// take returns what was written until now, and whether some of it is missing.
func (w *bounded) take() ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.b
	w.b = nil
	return b, w.over
}
