package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// writeTimeout bounds the write of one frame, so that an agent that doesn't
// read can't hold a goroutine. An agent always reads: what it has no room for
// isn't sent to it.
const writeTimeout = 10 * time.Second

// PingAgent asks an agent what it is and what it runs. It closes conn. An
// error that the agent answered is an [*Error].
func PingAgent(ctx context.Context, conn net.Conn) (Response, error) {
	x, response, err := open(ctx, conn, Request{Ping: &Ping{}})
	if err != nil {
		return Response{}, err
	}
	x.close()
	return response, nil
}

// WarmAgent has an agent load an interpreter. It returns when that is loaded, and closes conn. An
// error that the agent answered is an [*Error]: ErrIncompatible says that the agent is too old.
func WarmAgent(ctx context.Context, conn net.Conn, warm Warm) (Warmed, error) {
	x, response, err := open(ctx, conn, Request{Warm: &warm})
	if err != nil {
		return Warmed{}, err
	}
	x.close()
	if response.Warmed == nil {
		return Warmed{}, fmt.Errorf("%w: no answer about the interpreter", ErrProtocol)
	}
	return *response.Warmed, nil
}

// StartExecution starts a command, or attaches to the one that was started
// with this id before, from output offset 0. Ctx bounds the opening only. Conn
// belongs to the session, and is closed on an error, which is an [*Error] if
// the agent answered it.
func StartExecution(ctx context.Context, conn net.Conn, start Start) (*Session, error) {
	for _, s := range slices.Concat([]string{start.ID, start.Dir}, start.Argv, start.Env) {
		if !utf8.ValidString(s) {
			_ = conn.Close()
			return nil, &Error{Code: ErrInvalid, Field: "argv", Message: "a command must be valid UTF-8"}
		}
	}
	return openSession(ctx, conn, Request{Start: &start}, &Session{resizes: start.Resizes})
}

// AttachExecution goes on with an execution that was started before, from
// output offset attach.Offset; what is before it, and the sizes that were set
// until attach.Resized, count as acknowledged. Ctx,
// conn and errors are as for [StartExecution]; ErrNotFound says that the agent
// doesn't know the execution.
func AttachExecution(ctx context.Context, conn net.Conn, attach Attach) (*Session, error) {
	return openSession(ctx, conn, Request{Attach: &attach}, &Session{resizes: attach.Resizes, offset: attach.Offset, acked: attach.Offset, resized: attach.Resized})
}

// An exchange is one request on its stream.
type exchange struct {
	ctx    context.Context // of the call that the exchange lives in
	conn   net.Conn
	frames *FrameReader
	stop   func() bool // stops ctx from closing conn
}

// open sends a request and reads its response. On an error conn is closed.
func open(ctx context.Context, conn net.Conn, request Request) (*exchange, Response, error) {
	if ctx.Err() != nil { // what AfterFunc does to the stream may come after the answer
		_ = conn.Close()
		return nil, Response{}, context.Cause(ctx)
	}
	x := &exchange{ctx: ctx, conn: conn, frames: NewFrameReader(conn, ClientSide)}
	x.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	response, err := x.ask(request)
	if err != nil {
		return nil, Response{}, x.fail(err)
	}
	return x, response, nil
}

func (x *exchange) ask(request Request) (Response, error) {
	request.Protocol = request.version()
	frame, err := AppendJSON(nil, KindRequest, request)
	if err != nil {
		return Response{}, &Error{Code: ErrInvalid, Message: err.Error()}
	}
	if err := writeFrame(x.conn, frame); err != nil {
		return Response{}, err
	}
	body, err := x.expect(KindResponse)
	if err != nil {
		return Response{}, err
	}
	return parseResponse(body)
}

// version returns the oldest version that has all that is asked for.
func (r Request) version() int {
	if r.Search != nil || r.Watch != nil {
		return 6
	}
	if r.Usage != nil || r.Move != nil {
		return 5
	}
	if r.Warm != nil {
		return 4
	}
	if s := r.Start; s != nil && (s.Terminal != nil || s.Limits != nil || s.Privileged) {
		return 2
	}
	if r.Read != nil && (r.Read.Offset != 0 || len(r.Read.Name) > 0) {
		return 2
	}
	if r.Update != nil && slices.ContainsFunc(r.Update.Write, func(w Write) bool { return w.Size < 0 }) {
		return 2
	}
	return Oldest
}

func parseResponse(body []byte) (Response, error) {
	var response Response
	if err := ParseJSON(body, &response); err != nil {
		return Response{}, err
	}
	if response.Error != nil {
		response.Error.Message = Shorten(response.Error.Message)
		return Response{}, response.Error
	}
	if response.Protocol < Oldest || response.Protocol > Protocol {
		return Response{}, &Error{Code: ErrIncompatible,
			Message: fmt.Sprintf("the agent speaks protocol %d, this side %d to %d", response.Protocol, Oldest, Protocol)}
	}
	response.Speaks = max(response.Speaks, response.Protocol)
	return response, nil
}

// Shorten bounds a text that a hostile agent may have made.
func Shorten(s string) string {
	const most = 1 << 10
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}

// next reads a frame, where the stream must not end.
func (x *exchange) next() (Kind, []byte, error) {
	kind, body, err := x.frames.Next()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return kind, body, err
}

// expect reads a frame that must be of this kind.
func (x *exchange) expect(kind Kind) ([]byte, error) {
	got, body, err := x.next()
	if err != nil {
		return nil, err
	}
	if got != kind {
		return nil, fmt.Errorf("%w: kind %d where %d was due", ErrProtocol, got, kind)
	}
	return body, nil
}

func writeFrame(conn net.Conn, frame []byte) error {
	// A large request goes out in pieces, each with its own time.
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

// fail closes the stream and returns what to tell the caller: the end of its
// context rather than what that did to the stream.
func (x *exchange) fail(err error) error {
	ended := !x.stop() && x.ctx.Err() != nil
	_ = x.conn.Close()
	var answered *Error
	if ended && !errors.As(err, &answered) {
		return context.Cause(x.ctx)
	}
	return err
}

func (x *exchange) close() {
	x.stop()
	_ = x.conn.Close()
}
