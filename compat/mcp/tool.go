package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// A tool is an MCP tool.
type tool struct {
	spec *sdk.Tool
	run  func(c *call, arguments json.RawMessage) (*sdk.CallToolResult, error)
}

// A call is one call of a tool. Its context ends when the client cancels the request, and with the
// session.
type call struct {
	*session
	request  *request
	ctx      context.Context
	progress progress
	until    time.Time // when the call must answer
}

// An answer is a tool's result in addition to structured content: the same as text, without base64.
type answer struct {
	text      string
	images    []*sdk.ImageContent
	otherwise string // what was done, if anything, and where to find the result if there is no memory for it
}

// define returns a tool. Change completes the schema of its arguments.
func define[In, Out any](name, title, description string, hints sdk.ToolAnnotations, change func(arguments *jsonschema.Schema), run func(c *call, in In) (Out, answer, error)) tool {
	hints.Title = title
	if hints.DestructiveHint == nil {
		hints.DestructiveHint = new(false)
	}
	if hints.OpenWorldHint == nil {
		hints.OpenWorldHint = new(false)
	}
	input := schemaOf[In]()
	if change != nil {
		change(input)
	}
	output := schemaOf[Out]()
	output.Properties["error"] = schemaOf[problem]()
	output.Required = nil // an error result has none of the fields
	return tool{
		spec: &sdk.Tool{Name: name, Title: title, Description: description, Annotations: &hints, InputSchema: input, OutputSchema: output},
		run: func(c *call, arguments json.RawMessage) (*sdk.CallToolResult, error) {
			var in In
			if err := c.request.hold.Turn(c.ctx, len(arguments), func() error { return decode(arguments, &in) }); err != nil {
				return nil, err
			}
			out, reply, err := run(c, in)
			if err != nil {
				return nil, renamed(err)
			}
			return c.result(out, reply)
		},
	}
}

// schemaOf returns the schema of a struct. Lists may not be null, since some clients don't support
// values of two types.
func schemaOf[T any]() *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // a test covers all types
	}
	simplify(schema)
	return schema
}

// simplify removes null from the types in a schema, also below its properties and items.
func simplify(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	for _, of := range s.Properties {
		simplify(of)
	}
	simplify(s.Items)
}

// between sets a number's range in a schema. The number's description repeats the range.
func between(s *jsonschema.Schema, name string, low, high float64) {
	s.Properties[name].Minimum, s.Properties[name].Maximum = &low, &high
}

// decode decodes a tool's arguments. INVALID_INPUT names the invalid one.
func decode(arguments json.RawMessage, into any) error {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field != "":
		return runtime.Invalid(pathAt(arguments, wrong.Offset), "must be %s, not %s", typeName(wrong.Type.Kind().String()), wrong.Value)
	}
	if _, name, unknown := strings.Cut(err.Error(), "unknown field "); unknown {
		return runtime.Invalid(strings.Trim(name, `"`), "isn't an argument of this tool: see the tool's schema")
	}
	return runtime.Invalid("arguments", "must be a JSON object: %s", err)
}

// pathAt returns the path of the JSON value at which a decoder stopped, such as files.0.path, since
// the decoder's error has no indexes.
func pathAt(text []byte, offset int64) string {
	type level struct {
		name string // of the current value
		list bool
		next int  // in a list: the next index
		key  bool // in an object: a key comes next
	}
	var levels []level
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := decoder.Token()
		if token == json.Delim(']') || token == json.Delim('}') {
			levels = levels[:len(levels)-1]
		}
		var top *level
		if len(levels) > 0 {
			top = &levels[len(levels)-1]
		}
		switch {
		case token == json.Delim(']'), token == json.Delim('}'):
			if top != nil {
				top.key = true
			}
			continue
		case top != nil && top.list:
			top.name = strconv.Itoa(top.next)
			top.next++
		case top != nil && top.key:
			top.name, _ = token.(string)
			top.key = false
			continue
		case top != nil:
			top.key = true
		}
		if err != nil || decoder.InputOffset() >= offset {
			var names []string
			for _, l := range levels {
				names = append(names, l.name)
			}
			return strings.Join(names, ".")
		}
		switch token {
		case json.Delim('['):
			levels = append(levels, level{list: true})
		case json.Delim('{'):
			levels = append(levels, level{key: true})
		}
	}
}

// typeName returns the JSON name of a kind of Go's, for an error message.
func typeName(kind string) string {
	switch kind {
	case "slice":
		return "a list"
	case "struct", "map":
		return "an object"
	case "int", "int64":
		return "a whole number"
	case "bool":
		return "true or false"
	}
	return "a " + kind
}

// call runs a tool, and counts the call.
func (s *session) call(ctx context.Context, of *request, t tool, request *sdk.CallToolRequest) (result *sdk.CallToolResult) {
	began := time.Now()
	defer func() {
		if panicked := recover(); panicked != nil {
			result = s.failed(ctx, t.spec.Name, fmt.Errorf("panic: %v\n%s", panicked, debug.Stack()))
		}
		s.api.counts[t.spec.Name](result.IsError, time.Since(began))
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	c := &call{session: s, request: of, ctx: ctx, until: began.Add(s.api.within), progress: progress{token: request.Params.GetProgressToken(), to: request.Session}}
	arguments := request.Params.Arguments
	request.Params.Arguments = nil // free them, since the call may take long
	result, err := t.run(c, arguments)
	if err != nil {
		return s.failed(ctx, t.spec.Name, err)
	}
	return result
}

// A problem is an error in the format for agents.
type problem struct {
	Code      runtime.Code `json:"code" jsonschema:"the kind of error"`
	Field     string       `json:"field,omitempty" jsonschema:"the invalid argument"`
	Message   string       `json:"message" jsonschema:"what went wrong, and what is allowed"`
	Retryable bool         `json:"retryable" jsonschema:"whether the same call may succeed later"`
	Next      string       `json:"next,omitempty" jsonschema:"what to do next"`
}

// failed returns the result of a failed call. Details that agents must not see are logged, with an
// id that is also in the result.
func (s *session) failed(ctx context.Context, name string, err error) *sdk.CallToolResult {
	var typed *runtime.Error
	if !errors.As(err, &typed) {
		typed = runtime.Wrap(runtime.CodeInternal, err, "")
		if ctx.Err() != nil {
			typed = runtime.Errorf(runtime.CodeClusterUnavailable, "the call was cancelled: %s", cancelled(ctx))
		}
	}
	p := problem{Code: typed.Code, Field: shorten(typed.Field), Message: shorten(typed.Message), Retryable: typed.Code.Retryable(), Next: next(typed)}
	if ctx.Err() != nil {
		p.Next = "" // the agent cancelled it
	}
	if p.Code == runtime.CodeInternal {
		id := uuid.NewString()
		p.Message = "the server failed; its log has the details under id " + id
		s.api.services.Logger.Error("an MCP tool failed", zap.String("id", id), zap.String("tool", name), zap.Error(err))
	}
	text := p.Message
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	text = fmt.Sprintf("%s (%s)", text, p.Code)
	if p.Next != "" {
		text += "\n" + p.Next
	}
	return &sdk.CallToolResult{IsError: true, StructuredContent: map[string]any{"error": p}, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// maxMessage bounds a message in bytes, since it may repeat an argument of any length.
const maxMessage = 500

// shorten cuts a text after maxMessage bytes, at a whole character.
func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}

// renamed replaces the engine's name of a field in an error by the tools' name.
func renamed(err error) error {
	refused, is := errors.AsType[*runtime.Error](err)
	if !is {
		return err
	}
	renamed := *refused
	switch refused.Field {
	case "after":
		renamed.Field = "cursor"
	case "environmentId":
		renamed.Field = "environment"
	case "runnerId":
		renamed.Field = "session"
	}
	return &renamed
}

// cancelled returns why the context of a call has ended.
func cancelled(ctx context.Context) string {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause.Error()
	}
	return "the client cancelled it"
}

// next returns what an agent can do after an error; "" if the message says it.
func next(err *runtime.Error) string {
	switch err.Code {
	case runtime.CodeEnvironmentNotFound:
		return "Call list_environments for the available environments."
	case runtime.CodeRunnerGone:
		return "Open another session with open_session. The files of the old one are gone."
	case runtime.CodeExecutionNotFound:
		return "Use the id in the field execution of a result."
	case runtime.CodeNoRunnerAvailable:
		return "Close sessions that you don't need with close_session, or try again in a minute."
	case runtime.CodeQuotaExceeded:
		if err.Exceeded == nil {
			return "" // the limit isn't a tenant's quota; the message says what to do
		}
		if err.Exceeded.RetryAfter > 0 {
			return fmt.Sprintf("Try again in %d s.", int(err.Exceeded.RetryAfter.Seconds())+1)
		}
		return "Close sessions that you don't need with close_session, then try again."
	case runtime.CodeStorageFull:
		return "Delete files that you don't need, or use an environment with a larger workspace."
	case runtime.CodeForbidden:
		return "This token may not do that: tell the user that it needs the role CLIENT, or another tenant."
	case runtime.CodeClusterUnavailable, runtime.CodeInternal:
		return "Try again in a minute. If that doesn't help, tell the user."
	}
	return ""
}
