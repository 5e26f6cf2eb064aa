package api

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// fullScreen is a small editor: it switches to the alternate screen, reads single keys, follows the
// size, and restores the terminal.
const fullScreen = `
import curses
def main(s):
    curses.raw()
    text, key = "", None
    while True:
        rows, columns = s.getmaxyx()
        s.erase()
        s.addstr(0, 0, "[%d x %d] <%s>" % (columns, rows, text))
        s.refresh()
        key = s.getch()
        if key == curses.KEY_RESIZE: curses.update_lines_cols()
        elif key == curses.KEY_UP: text = text.upper()
        elif key == 17: return text
        else: text += chr(key)
print("it was", curses.wrapper(main))
`

func TestE2EFullScreenProgram(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	p := sit(t, b, object{"runnerId": runner, "command": []string{"python3", "-c", fullScreen}, "terminal": object{"columns": 80, "rows": 24}})
	p.Sees(t, "STDOUT", "\x1b[?1049h") // the alternate screen
	p.Sees(t, "STDOUT", "[80 x 24] <>")
	p.Types(t, "a") // without a newline
	p.Sees(t, "STDOUT", "a>")
	p.Types(t, "\x1bOA") // the up key
	p.Sees(t, "STDOUT", "A>")
	p.Call(t, resizeMutation, object{"in": object{"executionId": p.ID, "columns": 101, "rows": 31}}, nil)
	p.Sees(t, "STDOUT", "101 x 31")
	p.Types(t, "\x11") // Ctrl-Q, which a terminal in cooked mode would not pass on
	p.Sees(t, "STDOUT", "\x1b[?1049l")
	p.Sees(t, "STDOUT", "it was A\r\n")
	if got := b.Await(t, p.ID); got.Outcome != "EXITED" || *got.ExitCode != 0 {
		t.Errorf("%+v", got)
	}
}

func TestE2ESilentRead(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	p := sit(t, b, object{"runnerId": runner, "command": []string{"bash", "-c", `read -s -p "word: " w; echo; echo "<$w>"; cat; echo end`}, "terminal": object{"columns": 80, "rows": 24}})
	p.Sees(t, "STDERR", "word: ")
	p.Types(t, "hidden\n")
	p.Sees(t, "STDOUT", "\r\n<hidden>\r\n")
	p.Types(t, "shown\n")
	p.Sees(t, "STDOUT", "shown\r\nshown\r\n") // the echo, then cat
	p.Types(t, "\x04")
	p.Sees(t, "STDOUT", "end\r\n")
	if got := b.Await(t, p.ID); got.Outcome != "EXITED" || strings.Count(got.Stream("STDOUT"), "hidden") != 1 {
		t.Errorf("%+v", got)
	}
}

// TestE2EIdempotencyKeyStartsOneProcess: requests with the same idempotency key, in sequence or
// concurrently, start one execution.
func TestE2EIdempotencyKeyStartsOneProcess(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	input := object{"runnerId": runner, "shell": "echo started >> count; cat; cat count", "stdin": true, "timeLimit": 600, "idempotencyKey": "once in " + runner}
	ids := make([]string, 20)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			var out struct {
				StartExecution struct{ Execution struct{ ID string } }
			}
			if err := b.Do(t.Context(), `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, object{"in": input}, &out); err != nil {
				t.Error(err)
			}
			ids[i] = out.StartExecution.Execution.ID
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("executions %q", ids)
		}
	}
	watchers := []*Person{attach(t, b, ids[0]), attach(t, b, ids[0])}
	watchers[0].Types(t, "to both\n")
	for _, w := range watchers {
		w.Sees(t, "STDOUT", "to both\n")
	}
	watchers[1].Call(t, `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": object{"executionId": ids[0], "close": true}}, nil)
	if again := b.Start(t, input); again != ids[0] {
		t.Errorf("a later start is %s, want %s", again, ids[0])
	}
	if got := b.Await(t, ids[0]); got.Outcome != "EXITED" || got.Stream("STDOUT") != "to both\nstarted\n" {
		t.Errorf("%+v", got)
	}
}

func TestE2ECancelEndsAProgramThatDoesNotRead(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	id := b.Start(t, object{"runnerId": runner, "command": []string{"sleep", "1000"}, "stdin": true})
	written := make(chan error, 1)
	go func() {
		written <- b.Do(t.Context(), `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`,
			object{"in": object{"executionId": id, "text": strings.Repeat("0123456789abcde\n", 1<<16)}}, nil)
	}()
	wait.For(t, "it runs", func() bool {
		var out struct{ Execution struct{ State string } }
		b.Call(t, `query($id: ID!) { execution(id: $id) { state } }`, object{"id": id}, &out)
		return out.Execution.State == "RUNNING"
	})
	b.Call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": id}, nil)
	if got := b.Await(t, id); got.Outcome != "CANCELLED" {
		t.Errorf("%+v", got)
	}
	// A write that the program doesn't read fails after 10 s with a message. This one was ended by the
	// cancel.
	var e *client.Error
	if err := wait.Receive(t, written, "the write's end"); !errors.As(err, &e) || e.Extensions.Code != runtime.CodeConflict {
		t.Errorf("1 MB for a program that reads nothing: %v", err)
	}
	if got := b.Shell(t, runner, "echo usable"); got.Stream("STDOUT") != "usable\n" {
		t.Errorf("afterwards: %+v", got)
	}
}
