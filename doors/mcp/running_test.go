package mcp

import (
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// Clients end a call after a minute, and cancel its program. So a call answers earlier, and the
// program continues.
func TestLongProgramsOutlastTheirCall(t *testing.T) {
	b := newBed(t, func(d *Door) { d.within = time.Second })
	a := b.agent(firstToken)
	var session opened
	a.call("open_session", object{"environment": "shell"}, &session)
	for tool, arguments := range map[string]object{
		"run_program": {"environment": "shell", "command": []string{"sleep", "3"}},
		"execute":     {"session": session.Session, "command": []string{"sleep", "3"}},
	} {
		var got ran
		result := a.call(tool, arguments, &got)
		if !got.Running || got.Outcome != "" || got.ExitCode != nil || got.Cursor == "" || (got.Session != "") != (tool == "run_program") {
			t.Errorf("%s: %+v", tool, got)
		}
		if text := textIn(result); !strings.Contains(text, "still runs") || !strings.Contains(text, got.Cursor) {
			t.Errorf("%s: %s", tool, text)
		}
		read := page{Cursor: got.Cursor}
		reads := 0
		for ; !read.End; reads++ {
			cursor := read.Cursor
			read = page{}
			a.call("read_output", object{"execution": got.Execution, "cursor": cursor}, &read)
		}
		if read.Outcome != runtime.OutcomeExited || read.ExitCode == nil || *read.ExitCode != 0 || reads > 10 { // each read waits
			t.Errorf("%s: %+v after %d reads", tool, read, reads)
		}
		if got.Session != "" { // its files are still there
			a.call("list_files", object{"session": got.Session}, &listing{})
			a.call("close_session", object{"session": got.Session}, &closed{})
		}
	}
	a.call("close_session", object{"session": session.Session}, &closed{})
	b.freed()
}
