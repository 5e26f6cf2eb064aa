package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
)

// maxInactivity bounds the inactivity timeout, so that a session that its agent forgot doesn't hold
// a runner for long.
const maxInactivity = 3600 // seconds

func tools() []tool {
	return slices.Concat(running(), sessionTools(), filing())
}

// sessionTools returns the tools that open and close sessions, and that read.
func sessionTools() []tool {
	readOnly := sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}
	return []tool{
		define("open_session", "Open a session", "Claims an isolated runner that keeps its files until close_session, or until it has not been used for inactivityTimeout seconds. When an execution ends, all processes that it started are killed.",
			sdk.ToolAnnotations{}, func(s *jsonschema.Schema) { between(s, "inactivityTimeout", 1, maxInactivity) }, openSession),
		define("close_session", "Close a session", "Ends a session. Its runner is deleted with all files and processes.",
			sdk.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true}, nil, closeSession),
		define("read_output", "Read output", "Reads the output of an execution from a cursor on, for example the part that a result left out. While the execution runs, it waits up to 40 s for output or the end. It returns the next cursor.",
			readOnly, func(s *jsonschema.Schema) { between(s, "maxBytes", 1, maxReadOutput) }, readOutput),
		define("list_environments", "List environments", "Lists the environments that programs can run in, with their languages, limits and network access.",
			readOnly, nil, listEnvironments),
	}
}

// An openInput has the arguments of open_session.
type openInput struct {
	choice
	InactivityTimeout *int `json:"inactivityTimeout,omitempty" jsonschema:"seconds without use after which the session ends, 1 to 3600; default 600"`
}

// An openResult is the result of open_session.
type openResult struct {
	Session     string `json:"session" jsonschema:"the session's id, for execute and the file tools"`
	Environment string `json:"environment"`
}

// openSession serves open_session. The session's id is the id of its runner.
func openSession(c *call, in openInput) (out openResult, reply answer, err error) {
	environment, _, err := c.choose(in.choice)
	if err != nil {
		return out, reply, err
	}
	if in.InactivityTimeout != nil {
		if err := runtime.Between("inactivityTimeout", int64(*in.InactivityTimeout), 1, maxInactivity, "seconds"); err != nil {
			return out, reply, err
		}
	}
	runner, err := c.claim(environment, in.InactivityTimeout)
	if err != nil {
		return out, reply, err
	}
	out = openResult{string(runner.ID), string(environment)}
	reply.text = fmt.Sprintf("session %s in %s", out.Session, out.Environment)
	return out, reply, nil
}

// A sessionInput has the argument of close_session.
type sessionInput struct {
	Session string `json:"session" jsonschema:"from open_session"`
}

// A closeResult is the result of close_session.
type closeResult struct {
	Closed bool `json:"closed" jsonschema:"false: it had ended before"`
}

// closeSession serves close_session. It closes only sessions that were opened in this MCP session.
func closeSession(c *call, in sessionInput) (out closeResult, reply answer, err error) {
	id := runtime.RunnerID(in.Session)
	out.Closed = c.holds(id) == nil && c.drop(id)
	reply.text = "closed"
	if !out.Closed {
		reply.text = "it had ended before"
	}
	return out, reply, nil
}

// sessionRunner returns the runner of a session that was opened in this MCP session, and
// RUNNER_GONE for any other.
func (c *call) sessionRunner(session string) (runtime.Runner, error) {
	id := runtime.RunnerID(session)
	if err := c.holds(id); err != nil {
		return runtime.Runner{}, err
	}
	runner, there, err := c.api.services.Engine.Runners.Get(c.ctx, id)
	if err == nil && !there {
		c.lost(id)
		err = runtime.Errorf(runtime.CodeRunnerGone, "session %q has ended: it wasn't used for too long, or its runner was lost", session)
	}
	return runner, err
}

// An outputInput has the arguments of read_output.
type outputInput struct {
	Execution string `json:"execution" jsonschema:"the id in a result of run_program or execute"`
	Cursor    string `json:"cursor,omitempty" jsonschema:"where to begin; default: the beginning"`
	MaxBytes  *int   `json:"maxBytes,omitempty" jsonschema:"approximate number of bytes, 1 to 262144; default 65536"`
}

// A page is the result of read_output.
type page struct {
	Chunks []chunk `json:"chunks" jsonschema:"the output, in the order in which it was printed"`
	Cursor string  `json:"cursor" jsonschema:"where the next page begins"`
	End    bool    `json:"end" jsonschema:"whether the execution has ended and this page has its last output"`

	Outcome  runtime.Outcome `json:"outcome,omitempty" jsonschema:"with end: how the execution ended, as in a result of run_program"`
	ExitCode *int            `json:"exitCode,omitempty" jsonschema:"with EXITED; with FAILED 127 or 126, if the program doesn't exist or isn't executable"`
	Signal   string          `json:"signal,omitempty" jsonschema:"with SIGNALED"`
	Message  string          `json:"message,omitempty" jsonschema:"a description of the outcome and its cause"`
	Hint     string          `json:"hint,omitempty" jsonschema:"what may have gone wrong"`
}

// A chunk is consecutive output of one stream, or a gap where output was not kept.
type chunk struct {
	Stream    string `json:"stream,omitempty" jsonschema:"STDOUT or STDERR"`
	Text      string `json:"text,omitempty" jsonschema:"if it is UTF-8"`
	Base64    string `json:"base64,omitempty" jsonschema:"the exact bytes, if they aren't UTF-8"`
	LostBytes int64  `json:"lostBytes,omitempty" jsonschema:"instead of output: how many bytes were not kept here"`
	Reason    string `json:"reason,omitempty" jsonschema:"why they were not kept"`
}

// chunkMemory is the memory of a chunk in addition to its data, in bytes, as in the API.
const chunkMemory = 1400

// readOutput serves read_output. The memory of the output is taken from the request's.
func readOutput(c *call, in outputInput) (out page, reply answer, err error) {
	most, err := bytesArgument(in.MaxBytes, defaultRead, maxReadOutput)
	if err != nil {
		return out, reply, err
	}
	id := runtime.ExecutionID(in.Execution)
	read, next, end, err := c.readPage(id, in.Cursor, most)
	if err == nil && len(read) == 0 && !end {
		if err = c.await(id, next); err == nil {
			read, next, end, err = c.readPage(id, next, most)
		}
	}
	if err != nil {
		return out, reply, err
	}
	out = page{Chunks: []chunk{}, Cursor: next, End: end}
	if end {
		x, err := c.api.services.Engine.Executions.Get(c.ctx, id, 0)
		if err != nil {
			return out, reply, err
		}
		out.Outcome, out.Signal, out.Message, out.Hint = x.End.Outcome, x.End.Signal, x.End.Message, x.Hint
		if x.End.Outcome == runtime.OutcomeExited {
			out.ExitCode = &x.End.ExitCode
		}
	}
	var b strings.Builder
	stream := runtime.Stdout
	for _, event := range read {
		if event.Kind == events.Lost {
			out.Chunks = append(out.Chunks, chunk{LostBytes: event.Bytes, Reason: event.Reason})
			fmt.Fprintf(&b, "\n[… %d bytes were not kept: %s …]\n", event.Bytes, event.Reason)
			continue
		}
		whole := event.Whole()
		if len(whole) == 0 { // part of a character: it comes with its rest
			continue
		}
		part := chunk{Stream: event.Stream.String()}
		part.Text, part.Base64 = textOf(whole)
		out.Chunks = append(out.Chunks, part)
		if event.Stream != stream {
			stream = event.Stream
			fmt.Fprintf(&b, "\n[%s]\n", stream)
		}
		b.WriteString(event.Text())
	}
	if end {
		fmt.Fprintf(&b, "\n[the end: %s]", strings.TrimSuffix(cmp.Or(out.Message, string(out.Outcome))+"; "+out.Hint, "; "))
	} else {
		fmt.Fprintf(&b, "\n[… call read_output with cursor %q for more …]", next)
	}
	reply.text = b.String()
	return out, reply, nil
}

// readPage reads a page of output, and returns the cursor after it. It takes the memory of each event
// when it is read. If there is no memory for more, the page ends.
func (c *call) readPage(id runtime.ExecutionID, after string, most int) (read []events.Event, next string, end bool, err error) {
	page, err := c.api.services.Engine.Executions.Output(c.ctx, id, after, most)
	if err != nil {
		return nil, "", false, err
	}
	defer page.Close()
	return page.Rest(func(output events.Event) error { return c.request.grow(int64(len(output.Data) + chunkMemory)) })
}

// await waits for output of an execution after a cursor, or for its end, until the call must answer.
func (c *call) await(id runtime.ExecutionID, after string) error {
	reader, err := c.api.services.Engine.Executions.Events(c.ctx, id, after)
	if err != nil {
		return err
	}
	defer reader.Close()
	ctx, cancel := context.WithDeadline(c.ctx, c.until)
	defer cancel()
	for {
		event, err := c.event(ctx, reader)
		if err != nil || event.Kind != events.Started {
			if errors.Is(err, errRunning) || errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}

// An environmentsInput has at least one argument, since some clients reject a schema without any.
type environmentsInput struct {
	Language string `json:"language,omitempty" jsonschema:"list only environments that have this language"`
}

// An environments is the result of list_environments.
type environments struct {
	Environments []environment `json:"environments"`
}

// An environment describes one environment to an agent.
type environment struct {
	ID           string   `json:"id"`
	Image        string   `json:"image"`
	Languages    []string `json:"languages" jsonschema:"languages that run_program and execute accept as source here"`
	Network      bool     `json:"network" jsonschema:"whether programs have full or limited network access"`
	MemoryMiB    int      `json:"memoryMiB"`
	WorkspaceMiB int      `json:"workspaceMiB" jsonschema:"size of /workspace"`
	TimeLimit    int      `json:"timeLimit" jsonschema:"default time limit in seconds; 0: none"`
}

// listEnvironments serves list_environments. It finds a language by its id or an alias.
func listEnvironments(c *call, in environmentsInput) (out environments, reply answer, err error) {
	there, err := c.api.services.Engine.Environments.List(c.ctx)
	if err != nil {
		return out, reply, err
	}
	var b strings.Builder
	out.Environments = []environment{}
	for _, env := range there {
		e := environment{
			ID: string(env.ID), Image: env.Image, Languages: []string{},
			Network:   env.Network.Access || len(env.Network.Allow)+len(env.Network.AllowNames) > 0,
			MemoryMiB: env.Resources.MemoryMiB, WorkspaceMiB: env.Resources.WorkspaceMiB, TimeLimit: int(env.DefaultTimeLimit.Seconds()),
		}
		wanted := in.Language == ""
		for _, recipe := range c.api.services.Languages.All() {
			if slices.Contains(recipe.Environments, env.ID) {
				e.Languages = append(e.Languages, recipe.ID)
				wanted = wanted || recipe.ID == in.Language || slices.Contains(recipe.Aliases, in.Language)
			}
		}
		if !wanted {
			continue
		}
		out.Environments = append(out.Environments, e)
		fmt.Fprintf(&b, "%s: languages %s; network %t; memory %d MiB; time limit %d s\n", e.ID, strings.Join(e.Languages, ", "), e.Network, e.MemoryMiB, e.TimeLimit)
	}
	reply.text = b.String()
	return out, reply, nil
}
