package mcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	requests "github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

func TestToolsHaveDescriptionsAndSchemas(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	if got := a.InitializeResult(); got.ServerInfo.Name != "rockpool" || got.ServerInfo.Version != "1.2.3" || !strings.Contains(got.Instructions, "run_program") {
		t.Errorf("%+v", got)
	}
	list, err := a.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var readOnly, destructive, names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.Annotations.ReadOnlyHint {
			readOnly = append(readOnly, tool.Name)
		}
		if *tool.Annotations.DestructiveHint {
			destructive = append(destructive, tool.Name)
		}
		for name, argument := range tool.InputSchema.(object)["properties"].(object) {
			if argument := argument.(object); argument["type"] == nil || argument["description"] == nil {
				t.Errorf("%s: %s is %v", tool.Name, name, argument)
			}
		}
		if tool.OutputSchema.(object)["properties"].(object)["error"] == nil || tool.Description == "" || tool.Title == "" {
			t.Errorf("%s: %+v", tool.Name, tool)
		}
	}
	for what, lists := range map[string][2][]string{
		"all":         {names, {"close_session", "execute", "list_environments", "list_files", "open_session", "read_file", "read_output", "run_program", "write_files"}},
		"read only":   {readOnly, {"list_environments", "list_files", "read_file", "read_output"}},
		"destructive": {destructive, {"close_session", "execute", "write_files"}},
	} {
		slices.Sort(lists[0])
		if !slices.Equal(lists[0], lists[1]) {
			t.Errorf("%s: %q", what, lists[0])
		}
	}
}

func TestRunProgramReturnsTheResult(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var got ran
	result := a.call("run_program", object{"environment": "shell", "shell": "cat", "stdin": "grüße\n"}, &got)
	if got.Outcome != runtime.OutcomeExited || *got.ExitCode != 0 || got.Stdout != "grüße\n" || got.Phase != "run" || got.Execution == "" {
		t.Errorf("%+v", got)
	}
	if text := textIn(result); !strings.Contains(text, "exited with 0") || !strings.Contains(text, "grüße") {
		t.Error(text)
	}
	a.call("run_program", object{"environment": "shell", "command": []string{"stderr"}, "args": []string{"no", "way"}}, &got)
	if *got.ExitCode != 1 || got.Stderr != "no way\n" {
		t.Errorf("%+v", got)
	}
	got = ran{}
	a.call("run_program", object{"environment": "shell", "command": []string{"zeros", "3"}}, &got)
	if got.Stdout != "\x00\x00\x00" || got.StdoutBase64 != "" {
		t.Errorf("%+v", got)
	}
	b.freed()
	if entries, err := b.api.services.Engine.Callers.AuditLog(access.With(t.Context(), access.Server()), audit.Filter{}, 100, ""); err != nil || !strings.Contains(entriesText(entries), "startExecution mcp\n") {
		t.Errorf("%v %s", err, entriesText(entries))
	}
	counted := ""
	for _, c := range b.counts.Read() {
		counted += c.API + " " + c.Pattern + " " + c.Class + "\n"
	}
	for _, want := range []string{"mcp POST /mcp 2xx\n", "mcp tools/call run_program 2xx\n"} {
		if !strings.Contains(counted, want) {
			t.Errorf("no %q in %s", want, counted)
		}
	}
}

func TestBinaryOutputIsAlsoBase64(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	data := []byte{0xff, 0xfe, 'a', 0}
	var done wrote
	a.call("write_files", object{"session": session.Session, "files": []object{{"path": "bytes", "base64": base64.StdEncoding.EncodeToString(data)}}}, &done)
	var read content
	if text := textIn(a.call("read_file", object{"session": session.Session, "path": "bytes"}, &read)); text != inBase64 {
		t.Errorf("the text has it, too: got %s, want %s", text, inBase64)
	}
	if text := (ran{Stdout: "\uFFFDa", StdoutBase64: "//5hAA=="}).String(); !strings.HasSuffix(text, "stdout ("+inBase64+"):\n\uFFFDa\n") {
		t.Error(text)
	}
	if read.Base64 != base64.StdEncoding.EncodeToString(data) || read.Text != "" || read.Size != 4 || done.Written != 1 {
		t.Errorf("%+v %+v", read, done)
	}
	p := newPrinted()
	p.streams[runtime.Stdout].write(data)
	if text, encoded := p.streams[runtime.Stdout].text("", false); text != "\uFFFD\uFFFDa\x00" || encoded != base64.StdEncoding.EncodeToString(data) {
		t.Errorf("%q %q", text, encoded)
	}
}

func TestProgressCarriesLiveOutputAndCancellingEndsTheExecution(t *testing.T) {
	for _, tool := range []string{"run_program", "execute"} {
		t.Run(tool, func(t *testing.T) {
			b := newBed(t, nil)
			a := b.agent(firstToken)
			var session openResult
			a.call("open_session", object{"environment": "shell"}, &session)
			arguments := map[string]object{"run_program": {"environment": "shell"}, "execute": {"session": session.Session}}[tool]
			arguments["shell"] = "count 1000000000 1000"
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				params := &sdk.CallToolParams{Name: tool, Arguments: arguments}
				params.SetProgressToken("p")
				_, err := a.CallTool(ctx, params)
				ended <- err
			}()
			var execution runtime.ExecutionID
			for message := ""; !strings.Contains(message, "1\n"); { // the program doesn't end before
				message = wait.Receive(t, a.progress, "live output")
				if words := strings.Fields(message); len(words) == 4 && words[0] == "execution" {
					execution = runtime.ExecutionID(words[1])
				}
			}
			cancel()
			if err := wait.Receive(t, ended, "the end of the call"); err == nil {
				t.Error("the call has an answer")
			}
			wait.For(t, "the execution is cancelled", func() bool {
				x, err := b.api.services.Engine.Executions.Get(access.With(t.Context(), access.Server()), execution, 0)
				return err == nil && x.End.Outcome == runtime.OutcomeCancelled
			})
			wait.For(t, "only the session's runner is held", func() bool { return b.held() == 1 })
			a.call("execute", object{"session": session.Session, "shell": "echo on"}, &ran{}) // the session lives on
		})
	}
}

func TestLongOutputIsCutAndCanBeRead(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	const size = 500_000
	var got ran
	result := a.call("run_program", object{"environment": "shell", "shell": "lines 500000"}, &got)
	if got.OmittedBytes != size-2*half || got.Cursor == "" || !strings.Contains(got.Stdout, "bytes are cut out here: call read_output with cursor") || !strings.Contains(textIn(result), got.Cursor) {
		t.Fatalf("%d omitted, cursor %q, %d bytes", got.OmittedBytes, got.Cursor, len(got.Stdout))
	}
	all := strings.Repeat("the quick brown fox jumps over the lazy dog, and over again..\n", size/62+1)[:size]
	if !strings.HasPrefix(got.Stdout, all[:half]) || !strings.HasSuffix(got.Stdout, all[size-half:]) {
		t.Error("the beginning or the end isn't that of the output")
	}
	read := func(cursor string) string {
		var text strings.Builder
		for {
			var p page
			a.call("read_output", object{"execution": got.Execution, "cursor": cursor, "maxBytes": 100_000}, &p)
			for _, c := range p.Chunks {
				text.WriteString(c.Text)
			}
			if cursor = p.Cursor; p.End {
				return text.String()
			}
		}
	}
	if whole := read(""); whole != all {
		t.Errorf("%d bytes from the beginning", len(whole))
	}
	if rest := read(got.Cursor); !strings.HasSuffix(all, rest) || len(rest) < size-half {
		t.Errorf("%d bytes from the cursor on", len(rest))
	}
}

func TestOutputIsCutAbove24KiB(t *testing.T) {
	var c cut
	data := []byte(strings.Repeat("x", 2*half))
	c.write(data)
	if c.omitted() != 0 {
		t.Errorf("%d of 24 KiB omitted, want 0", c.omitted())
	}
	if c.write([]byte("more")); c.omitted() != 4 {
		t.Errorf("%d of 4 bytes more omitted, want 4", c.omitted())
	}
}

func TestLiveOutputReportsOmissions(t *testing.T) {
	p := progress{token: 1}
	p.output(strings.Repeat("x", maxLive-1) + "ü")
	p.output("late")
	if want := strings.Repeat("x", maxLive-1); p.pending != want || !p.cut {
		t.Errorf("%d bytes, %t", len(p.pending), p.cut)
	}
	if text := p.take(""); p.cut || !strings.HasSuffix(text, "x\n[… more: the answer or read_output has it]") {
		t.Errorf("%t, %s", p.cut, text[maxLive-1:])
	}
	if p.output("on"); p.pending != "on" {
		t.Error(p.pending)
	}
}

// An image is sent once, as an image.
func TestImagesAreSentOnce(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	image := []byte("\x89PNG\r\n\x1a\n\xff")
	a.call("write_files", object{"session": session.Session, "files": []object{{"path": "a.png", "base64": base64.StdEncoding.EncodeToString(image)}}}, &wrote{})
	var got content
	result := a.call("read_file", object{"session": session.Session, "path": "a.png"}, &got)
	if got.Base64 != "" || got.Size != int64(len(image)) || !slices.ContainsFunc(result.Content, func(c sdk.Content) bool { i, is := c.(*sdk.ImageContent); return is && string(i.Data) == string(image) }) {
		t.Errorf("%+v", got)
	}
}

func TestSessionsForgetLostRunners(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	if _, err := b.engine.Runners.Release(access.With(t.Context(), access.Server()), runtime.RunnerID(session.Session)); err != nil {
		t.Fatal(err)
	}
	a.refused("execute", object{"session": session.Session, "shell": "true"}, runtime.CodeRunnerGone, "")
	s := b.api.sessionOf(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runners) != 0 {
		t.Errorf("it holds %v", s.runners)
	}
}

// A cancelled call answers without an id, so its runner is released.
func TestCancelledCallsReleaseTheirRunner(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	s := b.api.sessionOf(a)
	ctx, cancel := context.WithCancel(s.ctx)
	c := &call{session: s, ctx: ctx}
	cancel()
	runner, err := b.api.services.Engine.Runners.Claim(s.ctx, requests.Claim{EnvironmentID: "shell", WaitFor: new(maxWait)})
	if err != nil {
		t.Fatal(err)
	}
	if c.keep(runner.ID) == nil || b.held() != 0 {
		t.Error("a call that was cancelled keeps a runner")
	}
	result := s.failed(ctx, "execute", ctx.Err())
	var got struct{ Error problem }
	if decodeContent(t, result, &got); got.Error.Next != "" || got.Error.Code != runtime.CodeClusterUnavailable || !strings.Contains(got.Error.Message, "client") {
		t.Errorf("got %+v, want CLUSTER_UNAVAILABLE because of the client", got)
	}
}

func TestSessionsKeepFilesUntilTheyAreClosed(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	a.call("write_files", object{"session": session.Session, "files": []object{{"path": "a/b.txt", "text": "hello wörld"}}}, &wrote{})
	var list listing
	a.call("list_files", object{"session": session.Session, "recursive": true}, &list)
	if !slices.ContainsFunc(list.Files, func(e entry) bool { return strings.HasSuffix(e.Path, "b.txt") && e.Size == 12 }) {
		t.Errorf("%+v", list)
	}
	var got content
	text := ""
	for offset := int64(0); ; offset = *got.NextOffset { // in pieces that don't cut characters
		got = content{}
		a.call("read_file", object{"session": session.Session, "path": "a/b.txt", "offset": offset, "maxBytes": 8}, &got)
		if text += got.Text; got.NextOffset == nil {
			break
		}
	}
	if text != "hello wörld" {
		t.Errorf("got %q, want \"hello wörld\"", text)
	}
	var done ran
	a.call("execute", object{"session": session.Session, "shell": "echo hi"}, &done)
	if done.Stdout != "hi\n" || b.held() != 1 {
		t.Errorf("%+v, %d held", done, b.held())
	}
	var end closeResult
	if a.call("close_session", object{"session": session.Session}, &end); !end.Closed || b.held() != 0 {
		t.Errorf("%+v, %d held", end, b.held())
	}
	if a.call("close_session", object{"session": session.Session}, &end); end.Closed {
		t.Error("closed twice")
	}
	a.refused("execute", object{"session": session.Session, "shell": "true"}, runtime.CodeRunnerGone, "")
}

func TestErrorsSayWhatToDoNext(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"language": "python3"}, &session)
	if session.Environment != "python" {
		t.Errorf("%+v", session)
	}
	var done ran
	a.call("execute", object{"session": session.Session, "shell": "true"}, &done)
	for _, test := range []struct {
		tool      string
		arguments object
		code      runtime.Code
		field     string
	}{
		{"run_program", object{}, runtime.CodeInvalidInput, "environment"},
		{"run_program", object{"environment": "nope", "shell": "true"}, runtime.CodeEnvironmentNotFound, ""},
		{"run_program", object{"environment": "shell"}, runtime.CodeInvalidInput, "source"},
		{"run_program", object{"environment": "shell", "shell": "true", "command": []string{"true"}}, runtime.CodeInvalidInput, "source"},
		{"run_program", object{"environment": "shell", "shell": "true", "timeLimit": 0}, runtime.CodeInvalidInput, "timeLimit"},
		{"run_program", object{"environment": "shell", "shell": "true", "timeLimit": 3601}, runtime.CodeInvalidInput, "timeLimit"},
		{"run_program", object{"environment": "shell", "shell": "true", "buildTimeLimit": 0}, runtime.CodeInvalidInput, "buildTimeLimit"},
		{"run_program", object{"environment": "shell", "shell": "true", "timeLimit": "5"}, runtime.CodeInvalidInput, "timeLimit"},
		{"run_program", object{"environment": "shell", "shell": 5}, runtime.CodeInvalidInput, "shell"},
		{"run_program", object{"environment": "shell", "shell": "true", "more": 1}, runtime.CodeInvalidInput, "more"},
		{"run_program", object{"environment": "shell", "shell": "true", "args": []string{"a"}}, runtime.CodeInvalidInput, "args"},
		{"run_program", object{"language": "klingon", "source": "x"}, runtime.CodeInvalidInput, "language"},
		{"run_program", object{"language": "rust", "source": "x"}, runtime.CodeInvalidInput, "language"},
		{"run_program", object{"environment": "shell", "shell": "true", "files": []object{{"path": "a"}}}, runtime.CodeInvalidInput, "files.0"},
		{"run_program", object{"environment": "shell", "shell": "true", "files": []object{{"path": "a", "base64": "!"}}}, runtime.CodeInvalidInput, "files.0.base64"},
		{"run_program", object{"environment": "shell", "shell": "true", "files": []object{{"path": "", "text": "!"}}}, runtime.CodeInvalidInput, "files.0.path"},
		{"run_program", object{"environment": "shell", "shell": "true", "variables": object{"A=B": "x"}}, runtime.CodeInvalidInput, "variables.A=B"},
		{"run_program", object{"environment": "shell", "shell": "true", "variables": object{"C": "x", "A=B": "x", "A": "x", "B": 3}}, runtime.CodeInvalidInput, "variables.B"},
		{"run_program", object{"environment": "shell", "shell": "true", "variables": object{"look-after=": "x"}}, runtime.CodeInvalidInput, "variables.look-after="},
		{"run_program", object{"environment": "shell", "shell": "true", "after": "x"}, runtime.CodeInvalidInput, "after"},
		{"run_program", object{"environment": "shell", "shell": "true", "files": []object{{"path": "a", "text": "x"}, {"path": 3, "text": "x"}}}, runtime.CodeInvalidInput, "files.1.path"},
		{"run_program", object{"environment": "shell", "shell": "true", "files": []any{3}}, runtime.CodeInvalidInput, "files.0"},
		{"run_program", object{"environment": "shell", "command": []any{"true", []string{"a"}}}, runtime.CodeInvalidInput, "command.1"},
		{"run_program", object{"language": "python3", "source": "x", "files": []object{{"path": "a", "text": "x"}, {"path": "/workspace/./main.py", "text": "x"}}}, runtime.CodeInvalidInput, "files.1.path"},
		{"open_session", object{"environment": "shell", "inactivityTimeout": 0}, runtime.CodeInvalidInput, "inactivityTimeout"},
		{"execute", object{"session": "nope", "shell": "true"}, runtime.CodeRunnerGone, ""},
		{"read_file", object{"session": session.Session, "path": "nope"}, runtime.CodeFileError, ""},
		{"read_file", object{"session": session.Session, "path": "nope", "maxBytes": 0}, runtime.CodeInvalidInput, "maxBytes"},
		{"read_file", object{"session": session.Session, "path": "nope", "offset": -1}, runtime.CodeInvalidInput, "offset"},
		{"write_files", object{"session": session.Session}, runtime.CodeInvalidInput, "files"},
		{"read_output", object{"execution": "nope"}, runtime.CodeExecutionNotFound, ""},
		{"read_output", object{"execution": "nope", "maxBytes": -1}, runtime.CodeInvalidInput, "maxBytes"},
		{"read_output", object{"execution": done.Execution, "cursor": "nope"}, runtime.CodeInvalidInput, "cursor"},
	} {
		if p := a.refused(test.tool, test.arguments, test.code, test.field); p.Message == "" {
			t.Errorf("%v: %+v", test.arguments, p)
		}
	}
	if p := a.refused("run_program", object{"language": strings.Repeat("ü", 10_000), "source": "x"}, runtime.CodeInvalidInput, "language"); len(p.Message) > 600 {
		t.Errorf("a message of %d bytes", len(p.Message))
	}
	p := a.refused("run_program", object{"environment": "nope", "shell": "true"}, runtime.CodeEnvironmentNotFound, "")
	if !strings.Contains(p.Next, "list_environments") {
		t.Errorf("%+v", p)
	}
	var all environments
	if a.call("list_environments", object{"language": "py"}, &all); len(all.Environments) != 1 || all.Environments[0].ID != "python" {
		t.Errorf("%+v", all)
	}
	if a.call("list_environments", object{}, &all); len(all.Environments) != 2 || !slices.Contains(all.Environments[0].Languages, "python3") {
		t.Errorf("%+v", all)
	}
}

// FuzzArguments checks that no arguments of any tool make the server fail.
func FuzzArguments(f *testing.F) {
	b := newBed(f, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	all := tools()
	for i := range all {
		for _, seed := range []string{
			`{}`, `null`, `[]`, `{"environment":"shell","shell":"echo a"}`, `{"language":"python3","source":"x","args":["a"]}`, `{"session":"S","path":"../../etc/passwd"}`,
			`{"session":"S","files":[{"path":"a\u0000","text":"x"}],"delete":["/"]}`, `{"session":"S","shell":"true","timeLimit":1e99}`, `{"execution":"x","cursor":"AAAA"}`, `{"files":[{"base64":"==="}]}`, `{"session":{}}`,
		} {
			f.Add(i, seed)
		}
	}
	f.Fuzz(func(t *testing.T, which int, arguments string) {
		if len(arguments) > 4096 || strings.Contains(arguments, "sleep") || strings.Contains(arguments, "count") || strings.Contains(arguments, "pace") {
			return // a program that takes long
		}
		chosen := all[int(uint(which)%uint(len(all)))]
		if chosen.spec.Name == "close_session" || chosen.spec.Name == "open_session" {
			return // it takes or leaves what others need
		}
		raw := []byte(strings.ReplaceAll(arguments, `"S"`, `"`+session.Session+`"`))
		s := b.api.sessionOf(a)
		result := s.call(s.ctx, &request{hold: new(clients.Reservation)}, chosen, &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{Name: chosen.spec.Name, Arguments: raw}})
		var got struct{ Error problem }
		decodeContent(t, result, &got)
		if result.IsError != (got.Error.Code != "") || got.Error.Code == runtime.CodeInternal {
			t.Errorf("%s %s: %s", chosen.spec.Name, arguments, textIn(result))
		}
	})
}

func entriesText(page audit.Page) string {
	var b strings.Builder
	for _, e := range page.Entries {
		b.WriteString(e.Action)
		for _, d := range e.Detail {
			fmt.Fprintf(&b, " %s", d.Value())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Without a progress token, no output is copied for progress and no timer runs.
func TestUnwantedProgressCostsNothing(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	s := b.api.sessionOf(a)
	c := &call{session: s, request: &request{hold: new(clients.Reservation)}, ctx: s.ctx, until: time.Now().Add(wait.Limit)}
	shell := "lines 1000"
	out, err := c.run(runtime.RunnerID(session.Session), requests.Start{Shell: &shell}, nil)
	if err != nil || out.Stdout == "" || c.progress != (progress{}) {
		t.Errorf("%v: %+v, %+v", err, out, c.progress)
	}
}

func TestPathAt(t *testing.T) {
	text := `{"a": [1, {"b": {}, "c": [[], "x"]}], "d": true}`
	for want, value := range map[string]string{"a": `[`, "a.0": `1`, "a.1": `{"b"`, "a.1.b": `{}`, "a.1.c": `[[`, "a.1.c.1": `"x"`, "d": "true"} {
		at := strings.Index(text, value)
		if value != "[[" && strings.Trim(value, "[{}") == value { // the error of a list or an object is at its beginning
			at += len(value)
		} else {
			at++
		}
		if got := pathAt([]byte(text), int64(at)); got != want {
			t.Errorf("%s has the path %s, not %s", value, got, want)
		}
	}
}
