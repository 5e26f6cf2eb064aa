package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// writeTimeout bounds the write of one piece of a frame, so that an agent that doesn't read can't
// block a goroutine. A working agent always reads: clients send only as much as it has buffers for.
const writeTimeout = 10 * time.Second

// PingAgent returns the agent's executions. It closes conn. An
// [*Error] is the agent's answer; every other error is the stream's, or ctx's cause.
func PingAgent(ctx context.Context, conn net.Conn) (Response, error) {
	return ask(ctx, conn, Request{Ping: &Ping{}})
}

// WarmAgent makes an agent load an interpreter, and returns when it is loaded. It closes conn. An
// [*Error] is the agent's answer.
func WarmAgent(ctx context.Context, conn net.Conn, warm Warm) (Warmed, error) {
	response, err := ask(ctx, conn, Request{Warm: &warm})
	if err != nil {
		return Warmed{}, err
	}
	if response.Warmed == nil {
		return Warmed{}, fmt.Errorf("%w: the response doesn't describe the loaded interpreter", ErrProtocol)
	}
	return *response.Warmed, nil
}

// StartExecution starts a command, or attaches from output offset 0 to the execution that was
// started with this id before. It is therefore safe to repeat. Ctx bounds only the opening of the
// session. Conn belongs to the session and is closed on an error. An [*Error] is the agent's
// answer.
func StartExecution(ctx context.Context, conn net.Conn, start Start) (*Session, error) {
	for _, s := range slices.Concat([]string{start.ID, start.Dir}, start.Argv, start.Env) {
		if !utf8.ValidString(s) {
			_ = conn.Close()
			return nil, &Error{Code: ErrInvalid, Field: "argv", Message: "a command must be valid UTF-8"}
		}
	}
	return openSession(ctx, conn, Request{Start: &start}, &Session{terminal: start.Terminal != nil})
}

// StartCell is like [StartExecution], for a command in a cell, whose descriptors the agent takes over: the socket,
// stdout, stderr and, if start has one, stdin. The caller closes its own. Conn must be a Unix socket.
func StartCell(ctx context.Context, conn net.Conn, start Start, files ...*os.File) (*Session, error) {
	start.Cell = true
	return openSession(ctx, conn, Request{Start: &start, files: files}, &Session{})
}

// AttachExecution continues an execution that was started before, from output offset attach.Offset.
// It acknowledges the output before that offset and the sizes set up to attach.Resized. Ctx, conn
// and errors are as for [StartExecution]; ErrNotFound means that the agent doesn't know the
// execution.
func AttachExecution(ctx context.Context, conn net.Conn, attach Attach) (*Session, error) {
	return openSession(ctx, conn, Request{Attach: &attach}, &Session{terminal: attach.Terminal, offset: attach.Offset, acked: attach.Offset, resized: attach.Resized})
}

// An exchange is one request and its response on a stream. One goroutine uses it, apart from ctx's
// end, which closes conn.
type exchange struct {
	ctx    context.Context // bounds the exchange, which ends with the call or the reader that owns it
	conn   net.Conn
	frames *FrameReader
	stop   func() bool // stops ctx from closing conn
}

// ask sends a request, returns its response, and closes conn.
func ask(ctx context.Context, conn net.Conn, request Request) (Response, error) {
	x, response, err := open(ctx, conn, request)
	if err == nil {
		x.close()
	}
	return response, err
}

// open sends a request and reads its response. It closes conn on an error.
func open(ctx context.Context, conn net.Conn, request Request) (*exchange, Response, error) {
	if ctx.Err() != nil { // AfterFunc would close conn in a goroutine, perhaps only after the response
		_ = conn.Close()
		return nil, Response{}, context.Cause(ctx)
	}
	x := &exchange{ctx: ctx, conn: conn, frames: NewFrameReader(conn, ClientSide)}
	x.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	response, err := x.roundTrip(request)
	if err != nil {
		return nil, Response{}, x.fail(err)
	}
	return x, response, nil
}

// roundTrip sends a request and returns its response. It leaves conn open.
func (x *exchange) roundTrip(request Request) (Response, error) {
	request.Protocol = Protocol
	frame, err := AppendJSON(nil, KindRequest, request)
	if err != nil {
		return Response{}, &Error{Code: ErrInvalid, Message: err.Error()}
	}
	if err := writeWithFiles(x.conn, frame, request.files); err != nil {
		return Response{}, err
	}
	body, err := x.expect(KindResponse)
	if err != nil {
		return Response{}, err
	}
	return parseResponse(body)
}

// parseResponse decodes a response. The error is the agent's own [*Error], ErrProtocol, or
// ErrIncompatible if the agent has another version.
func parseResponse(body []byte) (Response, error) {
	var response Response
	if err := ParseJSON(body, &response); err != nil {
		return Response{}, err
	}
	if response.Protocol != Protocol { // first: an agent of another version answers with an error, too
		return Response{}, &Error{Code: ErrIncompatible, Message: fmt.Sprintf("the agent has protocol %d, but the server has %d", response.Protocol, Protocol)}
	}
	if response.Error != nil {
		response.Error.Message = Shorten(response.Error.Message)
		return Response{}, response.Error
	}
	return response, nil
}

// Shorten truncates a text from an agent, which may be hostile, to 1 KiB of valid UTF-8.
func Shorten(s string) string {
	const most = 1 << 10
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}

// next reads a frame. An end of the stream is an error, io.ErrUnexpectedEOF.
func (x *exchange) next() (Kind, []byte, error) {
	kind, body, err := x.frames.Next()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return kind, body, err
}

// expect reads a frame of the given kind. Every other kind violates the protocol.
func (x *exchange) expect(kind Kind) ([]byte, error) {
	got, body, err := x.next()
	if err != nil {
		return nil, err
	}
	if got != kind {
		return nil, fmt.Errorf("%w: got a frame of kind %d, expected kind %d", ErrProtocol, got, kind)
	}
	return body, nil
}

// writeFrame writes a whole frame. It fails after writeTimeout without progress.
func writeFrame(conn net.Conn, frame []byte) error {
	// Each piece of a large request has its own deadline: only a stream without progress fails.
	const piece = 64 << 10
	for len(frame) > 0 {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		n, err := conn.Write(frame[:min(len(frame), piece)])
		if err != nil {
			return err
		}
		frame = frame[n:]
	}
	return nil
}

// fail closes the stream and returns the error for the caller. If ctx's end closed the stream, that
// is ctx's cause, unless the agent answered with an [*Error], or a [ContentError] came first. A
// content that stalls or breaks off also ends the context of its HTTP request.
func (x *exchange) fail(err error) error {
	ended := !x.stop() && x.ctx.Err() != nil
	_ = x.conn.Close()
	var answered *Error
	var content *ContentError
	if ended && !errors.As(err, &answered) && !errors.As(err, &content) {
		return context.Cause(x.ctx)
	}
	return err
}

func (x *exchange) close() {
	x.stop()
	_ = x.conn.Close()
}
