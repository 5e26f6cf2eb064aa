package main

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// fullScreen is an editor in small: it takes the whole terminal, reads keys as they
// are pressed, follows the size, and gives the terminal back.
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
	b := e2e(t)
	runner := b.claim(t, "python")
	p := b.sit(t, object{"runnerId": runner, "command": []string{"python3", "-c", fullScreen}, "terminal": object{"columns": 80, "rows": 24}})
	p.sees(t, "STDOUT", "\x1b[?1049h") // the other fullScreen
	p.sees(t, "STDOUT", "[80 x 24] <>")
	p.types(t, "a") // without a line's end
	p.sees(t, "STDOUT", "a>")
	p.types(t, "\x1bOA") // the up key
	p.sees(t, "STDOUT", "A>")
	p.call(t, resizeMutation, object{"in": object{"executionId": p.id, "columns": 101, "rows": 31}}, nil)
	p.sees(t, "STDOUT", "101 x 31")
	p.types(t, "\x11") // Ctrl-Q, which a cooked terminal would keep
	p.sees(t, "STDOUT", "\x1b[?1049l")
	p.sees(t, "STDOUT", "it was A\r\n")
	if got := b.await(t, p.id); got.Outcome != "EXITED" || *got.ExitCode != 0 {
		t.Errorf("%+v", got)
	}
}

func TestE2ESilentRead(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	p := b.sit(t, object{"runnerId": runner, "command": []string{"bash", "-c", `read -s -p "word: " w; echo; echo "<$w>"; cat; echo end`}, "terminal": object{"columns": 80, "rows": 24}})
	p.sees(t, "STDERR", "word: ")
	p.types(t, "hidden\n")
	p.sees(t, "STDOUT", "\r\n<hidden>\r\n")
	p.types(t, "shown\n")
	p.sees(t, "STDOUT", "shown\r\nshown\r\n") // the echo, then cat
	p.types(t, "\x04")
	p.sees(t, "STDOUT", "end\r\n")
	if got := b.await(t, p.id); got.Outcome != "EXITED" || strings.Count(got.stream("STDOUT"), "hidden") != 1 {
		t.Errorf("%+v", got)
	}
}

// However often and however much at once an execution is asked for with one
// key, it is started once.
func TestE2EOneKeyOneProcess(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	input := object{"runnerId": runner, "shell": "echo started >> count; cat; cat count", "stdin": true, "idempotencyKey": "once in " + runner}
	ids := make([]string, 20)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			var out struct {
				StartExecution struct{ Execution struct{ ID string } }
			}
			if err := b.Ask(t.Context(), `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, object{"in": input}, &out); err != nil {
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
	watchers := []*person{b.attach(t, ids[0]), b.attach(t, ids[0])}
	watchers[0].types(t, "to both\n")
	for _, w := range watchers {
		w.sees(t, "STDOUT", "to both\n")
	}
	watchers[1].call(t, `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": object{"executionId": ids[0], "close": true}}, nil)
	if again := b.start(t, input); again != ids[0] {
		t.Errorf("a later start is %s", again)
	}
	if got := b.await(t, ids[0]); got.Outcome != "EXITED" || got.stream("STDOUT") != "to both\nstarted\n" {
		t.Errorf("%+v", got)
	}
}

func TestE2ECancelOfWhatDoesNotRead(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	id := b.start(t, object{"runnerId": runner, "command": []string{"sleep", "1000"}, "stdin": true})
	written := make(chan error, 1)
	go func() {
		written <- b.Ask(t.Context(), `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`,
			object{"in": object{"executionId": id, "text": strings.Repeat("0123456789abcde\n", 1<<16)}}, nil)
	}()
	wait.For(t, "it runs", func() bool {
		var out struct{ Execution struct{ State string } }
		b.call(t, `query($id: ID!) { execution(id: $id) { state } }`, object{"id": id}, &out)
		return out.Execution.State == "RUNNING"
	})
	b.call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": id}, nil)
	if got := b.await(t, id); got.Outcome != "CANCELLED" {
		t.Errorf("%+v", got)
	}
	// A write that the program doesn't read waits 10 s, and says so: this one was ended by the cancel.
	var e *client.Error
	if err := wait.Receive(t, written, "the write's end"); !errors.As(err, &e) || e.Extensions.Code != runtime.CodeConflict {
		t.Errorf("1 MB for a program that reads nothing: %v", err)
	}
	if got := b.shell(t, runner, "echo usable"); got.stream("STDOUT") != "usable\n" {
		t.Errorf("afterwards: %+v", got)
	}
}
